"""Documents read whole: what is there, what was deleted, what is settled, how many there are."""

import applied
import judged
import pytest
import stored

from facetline.storage.db import engine
from facetline.storage.log import documents, positions
from facetline.storage.log.events import Event

pytestmark = pytest.mark.collections("tickets")

URI = applied.URI


@pytest.fixture
async def store(store: engine.Store) -> engine.Store:
    """A store that has seen a partition and the collection `tickets`."""
    await store.write(positions.first_seen, judged.TOPIC, 0, 0)
    return store


async def test_a_document_is_read_whole(store: engine.Store):
    """Body, state, answers, evaluation and the account of calls come back as they were stored."""
    await applied.answered(store, "my card was charged twice ✓ \U0001f4b3")

    document = await applied.get(store)
    assert document.body == "my card was charged twice ✓ \U0001f4b3"
    assert document.state == {"n": 1}
    assert document.facets == {"topic": {"type": "choice", "choice": "billing", "confidence": None}}
    assert document.evaluation is not None
    assert (document.evaluation.fingerprint, document.evaluation.usage) == (stored.FIRST, {"tokens": 7})
    assert (document.calls.made, document.calls.retries, document.calls.crashes) == (1, 0, 0)
    assert (document.key, document.collection, document.scope) == ("t1", "tickets", "")


async def test_a_deleted_document_is_told_from_one_that_never_was(store: engine.Store):
    """Deleted documents keep their counters; of the others nothing is known."""
    await applied.apply(store, judged.write(URI, "x"), judged.delete(URI, offset=1))

    document = await applied.get(store)
    assert (document.status, document.body, document.version) == ("deleted", None, 2)
    assert await store.read(documents.get, "tickets/never") is None


async def test_beginnings_are_cut_by_characters(store: engine.Store):
    """Of each document that has a body the revision and its first characters; deleted and absent ones are left out."""
    await applied.apply(store, judged.write(URI, "日本💳 was charged"), judged.write("tickets/gone", "x", offset=1))
    await applied.apply(store, judged.delete("tickets/gone", offset=2))

    found = await store.read(documents.beginnings, [URI, "tickets/gone", "tickets/never"], 5)
    assert found == {URI: (1, "日本💳 w")}
    assert await store.read(documents.beginnings, [], 5) == {}


async def test_settled_waits_for_the_answer_of_one_clearing(store: engine.Store):
    """None while the answer is awaited or the write has not been applied; the document once it is there."""
    await applied.apply(store, judged.write(URI, "x"))
    waiting = [await store.read(documents.settled, URI, indexed_as) for indexed_as in (1, 2)]
    await store.write(stored.answer_all, (await store.write(stored.claimed)).claims)

    document = await store.read(documents.settled, URI, 1)
    assert waiting == [None, None]
    assert document is not None
    assert (document.status, document.indexed_as) == ("indexed", 1)


async def test_settled_tells_of_a_later_clearing(store: engine.Store):
    """Who waits for an answer that nobody wants any more is told, by the higher identity."""
    await applied.apply(store, judged.write(URI, "x"), judged.write(URI, "y", offset=1))

    document = await store.read(documents.settled, URI, 1)
    assert document is not None
    assert (document.indexed_as, document.status) == (2, "pending")


@pytest.mark.parametrize("event", [judged.write(URI, " ", offset=1), judged.delete(URI, offset=1)])
async def test_nothing_to_ask_is_settled_at_once(store: engine.Store, event: Event):
    """Empty and deleted documents wait for no answer."""
    await applied.apply(store, judged.write(URI, "x"), event)

    assert await store.read(documents.settled, URI, 2) is not None


async def test_documents_are_counted_by_collection_and_status(store: engine.Store):
    """Each document counts once, where it stands now."""
    await applied.apply(
        store,
        judged.write("tickets/a", "x"),
        judged.write("tickets/b", " ", offset=1),
        judged.write("notes/a", "x", offset=2),
        judged.write("notes/b", "x", offset=3),
        judged.delete("notes/b", offset=4),
    )

    assert await store.read(documents.counts) == {
        "notes": {"deleted": 1, "pending": 1},
        "tickets": {"empty": 1, "pending": 1},
    }
