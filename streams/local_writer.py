"""The log of the runtime without a broker: an event is applied in the transaction that logs it."""

from collections.abc import Callable, Sequence

from facetline.storage.db.engine import Store, Tx
from facetline.storage.log import apply, events
from facetline.streams import failpoints
from facetline.streams.wire.outgoing import Sent

TOPIC = "local"
SOURCE = "facetline/local"


class LocalWriter:
    """Logs and applies events in one transaction of the store; `wake` is called when there is something to classify."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.wake: Callable[[], None] | None = None

    async def append(self, sent: Sequence[Sent]) -> Sequence[events.Outcome]:
        """Apply the events; their outcomes are known at once."""
        if not sent:
            return ()
        applied = await self._store.write(_commit, [each.event for each in sent])
        failpoints.failpoint("apply.after_commit")
        if self.wake is not None:
            self.wake()
        return applied.outcomes

    async def deadline_ms(self) -> int | None:
        """Return None: nothing can come late here."""
        return None

    async def close(self) -> None:
        """Do nothing: nothing is held back."""


def _commit(tx: Tx, judged: Sequence[events.Event]) -> events.Applied:
    applied = apply.append(tx, TOPIC, judged)
    failpoints.failpoint("apply.before_commit")
    return applied
