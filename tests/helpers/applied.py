"""Applying events to an open store, and looking at what has become of them."""

from typing import Any

import judged
import stored

from facetline.facets.documents import Document
from facetline.storage import feed
from facetline.storage.db import engine
from facetline.storage.log import apply as writes
from facetline.storage.log import dead_letters, documents, positions
from facetline.storage.log.events import Applied, DeadLetter, Event

URI = "tickets/t1"


async def apply(store: engine.Store, *events: Event, **where: Any) -> Applied:
    """Apply events that lie one after another in partition 0."""
    return await store.write(writes.apply, [judged.batch(*events, **where)])


async def answered(store: engine.Store, *bodies: str) -> None:
    """Write bodies to tickets/t1 and answer the last, so that every column that a clearing resets is set."""
    events = [judged.write(URI, body, {"n": 1}, offset=at) for at, body in enumerate(bodies)]
    await apply(store, *events)
    claim = await store.write(stored.claimed)
    await store.write(stored.answer_all, claim.claims)
    await store.write(feed.number)


async def get(store: engine.Store, uri: str = URI) -> Document:
    """Return a document that is there."""
    document = await store.read(documents.get, uri)
    assert document is not None
    return document


async def letters(store: engine.Store) -> list[DeadLetter]:
    """Return all dead letters."""
    return await store.read(dead_letters.find, states=("open", "redriving", "redriven", "superseded", "discarded"))


async def offset(store: engine.Store, partition: int = 0) -> int:
    """Return a partition's position of record."""
    return (await store.read(positions.get, judged.TOPIC))[partition].next_offset
