"""Events on their way to a log: what is sent, and what sends it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from facetline.storage.log import events
from facetline.streams.wire import codec


@dataclass(frozen=True, slots=True)
class Sent:
    """An event on its way: `message` for the log, `event` as it was judged before it was sent."""

    message: codec.Message
    event: events.Event
    deadline_ms: int | None = None


class Writer(Protocol):
    """Appends events to a runtime's log, in order.

    Raises (both): `WriteInDoubt`, `BrokerUnavailable`, `StoreUnavailable`. Returns outcomes where they are known at
    once, None where a worker applies the events later.
    """

    async def append(self, sent: Sequence[Sent]) -> Sequence[events.Outcome] | None:
        """Append the events, which are in the log permanently when this returns."""

    async def deadline_ms(self) -> int | None:
        """Return the deadline of a write that begins now, in the log's own time; None where none is needed."""

    async def close(self) -> None:
        """Send what is unsent and close."""
