"""Rejected events: kept with their bytes, told to their writers, and never in the way of others."""

from dataclasses import replace

import applied
import judged
import pytest
import stored

from facetline.storage import feed
from facetline.storage.db import engine
from facetline.storage.log import outcomes, positions
from facetline.storage.log.events import Event, Position

pytestmark = pytest.mark.collections("tickets")

URI = applied.URI


@pytest.fixture
async def store(store: engine.Store) -> engine.Store:
    """A store that has seen two partitions and the collection `tickets`."""
    for partition in (0, 1):
        await store.write(positions.first_seen, judged.TOPIC, partition, 0)
    return store


@pytest.mark.parametrize(
    "poison",
    [
        judged.write("tickets/poison", "half a pair: \ud800", offset=1),
        judged.write("tickets/poison-\ud800", "fine", offset=1),
        judged.write("tickets/poison", "fine", offset=1, event_id="id-\udfff"),
    ],
    ids=["body", "uri", "id"],
)
async def test_a_poison_event_is_a_dead_letter_and_its_neighbours_are_applied(store: engine.Store, poison: Event):
    """What the store cannot take costs nobody else anything, and is kept byte for byte with the driver's reason."""
    done = await applied.apply(
        store, judged.write("tickets/a", "x"), poison, judged.write("tickets/b", "x", offset=2), end=3
    )

    assert [outcome.outcome for outcome in done.outcomes] == ["applied", "rejected", "applied"]
    assert done.outcomes[1].reason == "invalid_text"
    [letter] = await applied.letters(store)
    assert (letter.raw, letter.reason, letter.stage) == (poison.raw, "invalid_text", "apply")
    assert "surrogates not allowed" in letter.message
    assert {uri: (await applied.get(store, uri)).body for uri in ("tickets/a", "tickets/b")} == {
        "tickets/a": "x",
        "tickets/b": "x",
    }
    assert await applied.offset(store) == 3


@pytest.mark.parametrize("place", [Position("t\0\ud800", 1, 0, 1), Position("t", 2**40, -3, 2**70)])
async def test_a_redriven_event_with_an_impossible_origin_holds_nothing_up(store: engine.Store, place: Position):
    """Where an event came from is what its sender says; whatever that is, the batch goes through."""
    strange = replace(judged.again(judged.write("tickets/strange", "x\ud800", offset=1)), position=place)

    done = await applied.apply(store, judged.write("tickets/a", "x"), strange, start=0)

    assert [outcome.outcome for outcome in done.outcomes] == ["applied", "rejected"]
    assert len(await applied.letters(store)) == 1


async def test_nul_in_a_body_is_a_dead_letter_where_the_database_refuses_it(store: engine.Store):
    """PostgreSQL takes no NUL: should one come through, it is the event's fault and nobody else's."""
    done = await applied.apply(store, judged.write("tickets/a", "x"), judged.write("tickets/b", "x\0y", offset=1))

    expected = "rejected" if store.engine.dialect.name == "postgresql" else "applied"
    assert [outcome.outcome for outcome in done.outcomes] == ["applied", expected]


async def test_a_rejected_event_is_an_outcome_and_a_dead_letter(store: engine.Store):
    """Its writer can read the reason by the event's id, and the bytes are kept."""
    await applied.apply(store, judged.refused(URI, reason="invalid_state"))

    outcome = await store.read(outcomes.find, "test", "e0")
    [letter] = await applied.letters(store)
    assert outcome is not None
    assert (outcome.outcome, outcome.reason, outcome.uri, outcome.version) == ("rejected", "invalid_state", URI, None)
    assert letter.raw == judged.refused(URI).raw


async def test_a_later_judgement_overwrites_a_rejection(store: engine.Store):
    """The same event again is judged afresh, and once applied its outcome says so."""
    state = judged.write(URI, None, {"n": 1}, event_id="late")
    await applied.apply(store, state)
    await applied.apply(store, judged.write(URI, "a", offset=1))

    done = await applied.apply(store, judged.again(state), start=2)

    outcome = await store.read(outcomes.find, "test", "late")
    assert outcome is not None
    assert [each.reason for each in done.outcomes] == ["superseded"]
    assert outcome.reason == "superseded"
    fresh = await applied.apply(store, judged.write(URI, None, {"n": 1}, offset=3, event_id="late"))
    assert (await store.read(outcomes.find, "test", "late")) == fresh.outcomes[0]
    assert fresh.outcomes[0].outcome == "applied"


async def test_a_reused_id_is_a_row_of_its_own(store: engine.Store):
    """Another event under a settled id is rejected, and the outcome of the first one stays what it was."""
    first = await applied.apply(store, judged.write(URI, "a", event_id="one"))
    second = await applied.apply(store, judged.write(URI, "b", offset=1, event_id="one"))

    assert second.outcomes[0].reason == "id_reused"
    for done in (first, second):
        outcome = done.outcomes[0]
        assert await store.read(outcomes.find, "test", "one", outcome.digest) == outcome


async def test_a_duplicate_in_a_later_batch_changes_nothing(store: engine.Store):
    """A retry under the same id returns the first outcome, and the document and its feed number stay."""
    first = await applied.apply(store, judged.write(URI, "a", event_id="one"))
    await applied.apply(store, judged.write(URI, "b", offset=1))
    await store.write(feed.number)
    before = await store.read(stored.row, URI)

    second = await applied.apply(store, judged.write(URI, "a", offset=2, event_id="one"))

    assert second.outcomes == (replace(first.outcomes[0], duplicate=True),)
    assert await store.read(stored.row, URI) == before


async def test_a_redriven_event_that_applies_closes_its_letter(store: engine.Store):
    """Whoever redrives sees the letter closed in the transaction that applied the event, not before."""
    bad = judged.refused(URI, event_id="one")
    await applied.apply(store, bad)
    good = judged.again(judged.write(URI, "mended", event_id="one"))

    await applied.apply(store, good, start=1)

    [letter] = await applied.letters(store)
    assert (letter.state, letter.attempts, letter.raw) == ("redriven", 1, bad.raw)
    assert (await applied.get(store)).body == "mended"


async def test_a_redriven_event_that_fails_again_counts_its_attempts(store: engine.Store):
    """One letter for each original position, however often it comes back, open again and with the latest reason."""
    bad = judged.refused(URI, reason="invalid_state")
    await applied.apply(store, bad)

    await applied.apply(store, judged.again(replace(bad, reason="too_large")), judged.again(bad), start=1)

    [letter] = await applied.letters(store)
    assert (letter.state, letter.attempts, letter.reason, letter.position.offset) == ("open", 3, "invalid_state", 0)


async def test_a_superseded_redrive_closes_the_letter_and_keeps_its_reason(store: engine.Store):
    """A redriven event that its document has passed is closed for good; why it failed at first stays readable."""
    bad = judged.refused(URI, reason="invalid_state")
    await applied.apply(store, bad, judged.write(URI, "newer", offset=1))

    done = await applied.apply(store, judged.again(judged.write(URI, "older")), start=2)

    [letter] = await applied.letters(store)
    assert done.outcomes[0].reason == "superseded"
    assert (letter.state, letter.reason, letter.attempts) == ("superseded", "invalid_state", 2)
    assert (await applied.get(store)).body == "newer"
