"""Imported answers in a real store: kept as they came, found as outdated, asked anew by nothing but a reindex."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import applied
import judged
import pytest
import stored

from facetline.storage import feed
from facetline.storage.db import engine
from facetline.storage.jobs import jobs, model
from facetline.storage.log import positions
from facetline.storage.log.events import IMPORTED_FINGERPRINT, Answered, Event

pytestmark = pytest.mark.collections("tickets")

URI = applied.URI
BILLING = {"topic": {"type": "choice", "choice": "billing", "confidence": 0.5}}
SAID = {"evaluator": "old", "kind": "imported", "model": "svm", "confidence_source": "votes"}


@pytest.fixture
async def store(store: engine.Store) -> engine.Store:
    """A store that has seen the collection `tickets` and its topic."""
    await store.write(positions.first_seen, judged.TOPIC, 0, 0)
    return store


def import_(uri: str = URI, body: str = "body", *, offset: int = 0, at_ms: int | None = None, **facets: Any) -> Event:
    """An import as the wire hands it over."""
    event = judged.write(uri, body, {"n": 1}, offset=offset, unless_equal=True)
    answered = Answered(facets or BILLING, SAID, f"{IMPORTED_FINGERPRINT}1", at_ms)
    assert event.content is not None
    return replace(event, content=replace(event.content, answered=answered))


async def test_an_imported_document_has_its_answers_at_once(store: engine.Store):
    """New or not, it is indexed with what came with it, in the write's own transaction, and shows in the feed."""
    await applied.apply(store, judged.write("tickets/t2", "older"), import_("tickets/t2", offset=1), import_(offset=2))
    await applied.apply(store, import_("tickets/t3", at_ms=1_700_000_000_000, offset=3))

    for uri, version in ((URI, 1), ("tickets/t2", 2), ("tickets/t3", 1)):
        document = await applied.get(store, uri)
        assert (document.status, document.version, document.indexed_as, document.body) == (
            "indexed",
            version,
            version,
            "body",
        )
        assert document.facets == BILLING
        assert document.evaluation is not None
        assert (document.evaluation.kind, document.evaluation.model) == ("imported", "svm")
        assert document.evaluation.fingerprint == f"{IMPORTED_FINGERPRINT}1"
        assert document.calls.made == 0
    row = await store.read(stored.row, "tickets/t3")
    assert (row["classified_ms"], row["due_ms"], row["feed_seq"]) == (1_700_000_000_000, None, None)
    told = (await applied.get(store, "tickets/t3")).evaluation
    assert told is not None
    assert told.classified_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert (await store.read(stored.row, URI))["classified_ms"] == (await store.read(stored.row, URI))["written_ms"]


async def test_nobody_is_asked_about_it(store: engine.Store):
    """There is nothing to claim, and a claim that was running on the older body is void."""
    await applied.apply(store, judged.write(URI, "older"))
    (claim,) = (await store.write(stored.claimed)).claims
    await applied.apply(store, import_(offset=1))
    await store.write(stored.answer_all, [claim], "outage")

    assert (await store.write(stored.claimed)).claims == ()
    assert (await applied.get(store)).facets == BILLING


async def test_again_it_is_unchanged_also_after_a_redelivery(store: engine.Store):
    """The same file once more changes nothing; the same offsets once more are skipped."""
    await applied.apply(store, import_())
    before = await store.read(stored.row, URI)
    again = await applied.apply(store, import_(offset=1))
    redelivered = await applied.apply(store, import_(), start=0)

    assert [outcome.outcome for outcome in again.outcomes] == ["unchanged"]
    assert redelivered.redelivered == 1
    after = await store.read(stored.row, URI)
    assert {**after, "log_offset": 0} == before


async def test_a_write_clears_imported_answers_like_any(store: engine.Store):
    """A new body has no answers until it is asked about; answers of the old one are gone with its fingerprint."""
    await applied.apply(store, import_())
    await applied.apply(store, judged.write(URI, "new", offset=1))

    row = await store.read(stored.row, URI)
    assert (row["status"], row["facets"], row["evaluation"], row["fingerprint"]) == ("pending", None, None, None)
    assert row["classified_ms"] is None


async def test_a_state_write_keeps_them(store: engine.Store):
    """A visible change without a new body leaves answers and their origin alone, in the same batch and later."""
    await applied.apply(store, import_(), judged.write(URI, None, {"n": 2}, offset=1))
    await applied.apply(store, judged.write(URI, None, {"n": 3}, offset=2))

    document = await applied.get(store)
    assert (document.version, document.indexed_as, document.state) == (3, 1, {"n": 3})
    assert (document.status, document.facets) == ("indexed", BILLING)
    assert document.evaluation is not None
    assert document.evaluation.fingerprint == f"{IMPORTED_FINGERPRINT}1"


async def test_the_feed_shows_them_as_of_another_fingerprint(store: engine.Store):
    """Readers of the feed see the answers, and by the fingerprint that they are outdated."""
    await applied.apply(store, import_())
    await store.write(feed.number)
    (record,) = await store.read(feed.read, 0, 10)

    assert (record.status, record.facets, record.fingerprint) == ("indexed", BILLING, f"{IMPORTED_FINGERPRINT}1")


async def test_a_reindex_of_the_outdated_takes_them_all(store: engine.Store):
    """It selects imported documents and leaves those that were asked under the active fingerprint."""
    await applied.answered(store, "asked")
    await applied.apply(store, import_("tickets/t2", offset=1))
    chosen = await store.read(jobs.plan, model.JobRequest("tickets", "", "outdated"))

    assert chosen.documents == 1
