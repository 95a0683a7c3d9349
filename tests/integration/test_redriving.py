"""Sending dead letters again: each is told what became of it, and none keeps the others from being sent."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import builders
import pytest
import stored

from facetline.facets.documents import EventReason
from facetline.facets.errors import InvalidEvent
from facetline.storage import definitions
from facetline.storage.db import engine
from facetline.storage.log import apply, events
from facetline.streams.replay import redrive
from facetline.streams.wire import codec as wire
from facetline.streams.wire.outgoing import Sent

pytestmark = pytest.mark.collections("notes")


@dataclass
class Sender:
    """A pipeline as far as redriving uses it; its log refuses what `unsendable` names, and takes nothing beside it."""

    store: engine.Store
    unsendable: bytes
    sent: list[bytes | None] = field(default_factory=list)

    async def definitions(self) -> Any:
        """Return the active definitions."""
        return (await self.store.read(definitions.active))[1]

    async def append(self, sent: Sequence[Sent]) -> None:
        """Send all or none."""
        if any(each.message.key == self.unsendable for each in sent):
            raise InvalidEvent(EventReason.TOO_LARGE, "too large")
        self.sent += [each.message.key for each in sent]


async def test_letter_that_cannot_be_sent_holds_no_other_up(store: engine.Store):
    """The log refuses one of three: the others are sent, and the one is told as impossible with the reason."""
    active = (await store.read(definitions.active))[1]
    raws = [builders.raw(key=f"notes/{n}", value="{") for n in range(3)]
    bad = [wire.decode(raw, events.Position("", 0, 0, n), active) for n, raw in enumerate(raws)]
    await store.write(apply.append, stored.TOPIC, bad)
    sender: Any = Sender(store, b"notes/1")

    told = await redrive.redrive(sender, ids=[], reason="not_json")

    assert sender.sent == [b"notes/0", b"notes/2"]
    assert [(each["outcome"], each["reason"]) for each in told] == [
        ("sent", None),
        ("impossible", "too_large"),
        ("sent", None),
    ]
