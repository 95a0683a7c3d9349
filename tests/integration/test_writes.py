"""Applying batches of events to a real store: cleared first, once each, and no batch held up by one bad event."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import judged
import pytest
import sqlalchemy as sa
import stored

from facets.documents import Document
from storage import dead_letters, documents, engine, feed, job_items, jobs, outcomes, positions, writes
from storage.events import Applied, Batch, DeadLetter, Event, Position

URI = "tickets/t1"


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[engine.Store]:
    """A store that has seen two partitions and the collection `tickets`."""
    async with stored.opened(store_url) as opened:
        await opened.write(stored.defined, "tickets")
        for partition in (0, 1):
            await opened.write(positions.first_seen, judged.TOPIC, partition, 0)
        yield opened


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
    return await store.read(dead_letters.find, states=("open", "redriving", "redriven", "superseded"))


async def offset(store: engine.Store, partition: int = 0) -> int:
    """Return a partition's position of record."""
    return (await store.read(positions.get, judged.TOPIC))[partition].next_offset


async def test_a_body_write_clears_what_was_answered_about_the_old_body(store: engine.Store):
    """New body, no answers, pending, an untouched account of calls: all in the write's own transaction."""
    await answered(store, "old")

    await apply(store, judged.write(URI, "new", offset=1))

    row = await store.read(stored.row, URI)
    cleared = ("reason", "reason_message", "facets", "evaluation", "fingerprint", "classified_ms", "feed_seq", "owner")
    cleared += ("lease_until_ms", "claimed_ms", "claimed_fingerprint", "memo_after_ms")
    counted = ("lane", "attempt", "calls_made", "retries", "crashes", "tries", "retry_wait_ms")
    assert {name: row[name] for name in cleared} == dict.fromkeys(cleared)
    assert {name: row[name] for name in counted} == dict.fromkeys(counted, 0)
    assert (row["status"], row["version"], row["revision"], row["indexed_as"]) == ("pending", 3, 3, 3)
    assert row["due_ms"] == row["cleared_ms"] == row["written_ms"]
    assert (await get(store)).body == "new"


async def test_nothing_of_a_batch_is_visible_when_it_is_rolled_back(store: engine.Store):
    """Clearing, body, outcome, dead letter and position stand or fall together."""
    await answered(store, "old")
    before = await get(store)

    def broken(tx: engine.Tx) -> None:
        writes.apply(tx, [judged.batch(judged.write(URI, "new", offset=1), judged.refused(offset=2))])
        raise LookupError

    with pytest.raises(LookupError):
        await store.write(broken)

    assert await get(store) == before
    assert await store.read(outcomes.find, "test", "e1") is None
    assert await letters(store) == []
    assert await offset(store) == 1


async def test_a_state_write_keeps_the_answers_and_shows_in_the_feed(store: engine.Store):
    """State alone is a visible change of version that asks no model."""
    await answered(store, "body")
    before = await store.read(stored.row, URI)

    await apply(store, judged.write(URI, None, {"n": 2}, offset=1))

    row = await store.read(stored.row, URI)
    assert (row["version"], row["revision"], row["indexed_as"], row["status"]) == (3, 1, 1, "indexed")
    assert (row["facets"], row["calls_made"], row["cleared_ms"]) == (before["facets"], 1, before["cleared_ms"])
    assert (row["state"], row["feed_seq"]) == ('{"n":2}', None)


async def test_an_unchanged_event_leaves_the_feed_alone(store: engine.Store):
    """What changes nothing moves the log position only: no new feed number, no new time."""
    await answered(store, "body")
    before = await store.read(stored.row, URI)

    await apply(store, judged.write(URI, "body", unless_equal=True, offset=1))

    row = await store.read(stored.row, URI)
    assert row == {**before, "log_offset": 1}


async def test_a_delete_takes_body_state_and_answers(store: engine.Store):
    """A deleted document keeps its uri and its counters, nothing else, and is not asked about."""
    await answered(store, "body")

    await apply(store, judged.delete(URI, offset=1))

    document = await get(store)
    assert (document.status, document.version, document.revision, document.indexed_as) == ("deleted", 3, 1, 3)
    assert (document.body, document.state, document.facets, document.evaluation) == (None, None, None, None)
    assert (await store.read(stored.row, URI))["due_ms"] is None
    assert (await store.write(stored.claimed)).claims == ()


async def test_a_blank_body_is_not_asked_about(store: engine.Store):
    """An empty document has its body stored and nothing due."""
    await apply(store, judged.write(URI, " \n"))

    document = await get(store)
    assert (document.status, document.body) == ("empty", " \n")
    assert (await store.write(stored.claimed)).claims == ()


async def test_redelivery_is_skipped_at_any_age(store: engine.Store):
    """Records below the position change nothing and are counted, also without any memory of their ids."""
    events = [judged.write(URI, body, offset=at) for at, body in enumerate("abc")]
    await apply(store, *events)
    await store.write(outcomes.purge, -1)
    before = await store.read(stored.row, URI)

    again = await apply(store, *events)
    overlapping = await apply(store, *events[1:], judged.write(URI, "d", offset=3))

    assert (again.outcomes, again.redelivered) == ((), 3)
    assert ([outcome.version for outcome in overlapping.outcomes], overlapping.redelivered) == ([4], 2)
    assert before["version"] == 3
    assert await offset(store) == 4


async def test_a_gap_is_refused_and_nothing_changes(store: engine.Store):
    """A batch above the position names the offset to read from; what came before it in the call is not applied."""
    with pytest.raises(positions.PositionGap) as caught:
        await store.write(
            writes.apply, [judged.batch(judged.write(URI, "a")), judged.batch(judged.write(URI, "b", offset=5))]
        )

    assert (caught.value.topic, caught.value.partition, caught.value.expected) == (judged.TOPIC, 0, 1)
    assert await store.read(documents.get, URI) is None
    assert await offset(store) == 0


async def test_an_unknown_partition_is_a_gap_without_an_offset(store: engine.Store):
    """A partition must have been seen, with its start offset, before anything of it is applied."""
    with pytest.raises(positions.PositionGap) as caught:
        await apply(store, judged.write(URI, "a"), partition=7)

    assert caught.value.expected is None


async def test_offsets_without_records_are_passed(store: engine.Store):
    """Transaction markers and aborted records move the position although there is nothing to apply."""
    await apply(store, start=0, end=3)
    applied = await apply(store, judged.write(URI, "a", offset=3), end=9)

    assert [outcome.version for outcome in applied.outcomes] == [1]
    assert await offset(store) == 9


async def test_the_position_keeps_what_the_last_record_looked_like(store: engine.Store):
    """Timestamp and hash of the last record stand beside the position, and redelivery does not put older ones there."""
    await apply(store, judged.write(URI, "a"), judged.write(URI, "b", offset=1))
    await apply(store, judged.write(URI, "a"))

    state = (await store.read(positions.get, judged.TOPIC))[0]
    assert (state.next_offset, state.last_timestamp_ms, state.last_hash) == (2, 2, "h2")


async def test_batches_of_several_partitions_are_one_transaction(store: engine.Store):
    """Outcomes come in the order in which the batches were given, whatever order their rows are locked in."""
    applied = await store.write(
        writes.apply,
        [
            judged.batch(judged.write(URI, "a", event_id="x"), partition=1),
            judged.batch(judged.write(URI, "b", event_id="y"), partition=0),
            judged.batch(judged.write(URI, "c", offset=1, event_id="z"), partition=1),
        ],
    )

    assert [(outcome.id, outcome.version) for outcome in applied.outcomes] == [("x", 1), ("y", 2), ("z", 3)]
    assert [await offset(store, partition) for partition in (0, 1)] == [1, 2]


async def test_a_batch_larger_than_any_statement_is_applied_whole(store: engine.Store):
    """More documents than one statement takes are all written, each once."""
    events = [judged.write(f"tickets/t{at}", "x", offset=at) for at in range(1_201)]

    applied = await apply(store, *events)

    assert {outcome.version for outcome in applied.outcomes} == {1}
    assert await store.read(documents.counts) == {"tickets": {"pending": 1_201}}


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
    applied = await apply(
        store, judged.write("tickets/a", "x"), poison, judged.write("tickets/b", "x", offset=2), end=3
    )

    assert [outcome.outcome for outcome in applied.outcomes] == ["applied", "rejected", "applied"]
    assert applied.outcomes[1].reason == "invalid_text"
    [letter] = await letters(store)
    assert (letter.raw, letter.reason, letter.stage) == (poison.raw, "invalid_text", "apply")
    assert "surrogates not allowed" in letter.message
    assert {uri: (await get(store, uri)).body for uri in ("tickets/a", "tickets/b")} == {
        "tickets/a": "x",
        "tickets/b": "x",
    }
    assert await offset(store) == 3


@pytest.mark.parametrize("place", [Position("t\0\ud800", 1, 0, 1), Position("t", 2**40, -3, 2**70)])
async def test_a_redriven_event_with_an_impossible_origin_holds_nothing_up(store: engine.Store, place: Position):
    """Where an event came from is what its sender says; whatever that is, the batch goes through."""
    strange = replace(judged.again(judged.write("tickets/strange", "x\ud800", offset=1)), position=place)

    applied = await apply(store, judged.write("tickets/a", "x"), strange, start=0)

    assert [outcome.outcome for outcome in applied.outcomes] == ["applied", "rejected"]
    assert len(await letters(store)) == 1


async def test_nul_in_a_body_is_a_dead_letter_where_the_database_refuses_it(store: engine.Store):
    """PostgreSQL takes no NUL: should one come through, it is the event's fault and nobody else's."""
    applied = await apply(store, judged.write("tickets/a", "x"), judged.write("tickets/b", "x\0y", offset=1))

    expected = "rejected" if store.engine.dialect.name == "postgresql" else "applied"
    assert [outcome.outcome for outcome in applied.outcomes] == ["applied", expected]


async def test_a_rejected_event_is_an_outcome_and_a_dead_letter(store: engine.Store):
    """Its writer can read the reason by the event's id, and the bytes are kept."""
    await apply(store, judged.refused(URI, reason="invalid_state"))

    outcome = await store.read(outcomes.find, "test", "e0")
    [letter] = await letters(store)
    assert outcome is not None
    assert (outcome.outcome, outcome.reason, outcome.uri, outcome.version) == ("rejected", "invalid_state", URI, None)
    assert letter.raw == judged.refused(URI).raw


async def test_a_later_judgement_overwrites_a_rejection(store: engine.Store):
    """The same event again is judged afresh, and once applied its outcome says so."""
    state = judged.write(URI, None, {"n": 1}, event_id="late")
    await apply(store, state)
    await apply(store, judged.write(URI, "a", offset=1))

    applied = await apply(store, judged.again(state), start=2)

    outcome = await store.read(outcomes.find, "test", "late")
    assert outcome is not None
    assert [each.reason for each in applied.outcomes] == ["superseded"]
    assert outcome.reason == "superseded"
    fresh = await apply(store, judged.write(URI, None, {"n": 1}, offset=3, event_id="late"))
    assert (await store.read(outcomes.find, "test", "late")) == fresh.outcomes[0]
    assert fresh.outcomes[0].outcome == "applied"


async def test_a_reused_id_is_a_row_of_its_own(store: engine.Store):
    """Another event under a settled id is rejected, and the outcome of the first one stays what it was."""
    first = await apply(store, judged.write(URI, "a", event_id="one"))
    second = await apply(store, judged.write(URI, "b", offset=1, event_id="one"))

    assert second.outcomes[0].reason == "id_reused"
    for applied in (first, second):
        outcome = applied.outcomes[0]
        assert await store.read(outcomes.find, "test", "one", outcome.digest) == outcome


async def test_a_duplicate_in_a_later_batch_changes_nothing(store: engine.Store):
    """A retry under the same id returns the first outcome, and the document and its feed number stay."""
    first = await apply(store, judged.write(URI, "a", event_id="one"))
    await apply(store, judged.write(URI, "b", offset=1))
    await store.write(feed.number)
    before = await store.read(stored.row, URI)

    second = await apply(store, judged.write(URI, "a", offset=2, event_id="one"))

    assert second.outcomes == (replace(first.outcomes[0], duplicate=True),)
    assert await store.read(stored.row, URI) == before


async def test_a_redriven_event_that_applies_closes_its_letter(store: engine.Store):
    """Whoever redrives sees the letter closed in the transaction that applied the event, not before."""
    bad = judged.refused(URI, event_id="one")
    await apply(store, bad)
    good = judged.again(judged.write(URI, "mended", event_id="one"))

    await apply(store, good, start=1)

    [letter] = await letters(store)
    assert (letter.state, letter.attempts, letter.raw) == ("redriven", 1, bad.raw)
    assert (await get(store)).body == "mended"


async def test_a_redriven_event_that_fails_again_counts_its_attempts(store: engine.Store):
    """One letter for each original position, however often it comes back, open again and with the latest reason."""
    bad = judged.refused(URI, reason="invalid_state")
    await apply(store, bad)

    await apply(store, judged.again(replace(bad, reason="too_large")), judged.again(bad), start=1)

    [letter] = await letters(store)
    assert (letter.state, letter.attempts, letter.reason, letter.position.offset) == ("open", 3, "invalid_state", 0)


async def test_a_superseded_redrive_closes_the_letter_and_keeps_its_reason(store: engine.Store):
    """A redriven event that its document has passed is closed for good; why it failed at first stays readable."""
    bad = judged.refused(URI, reason="invalid_state")
    await apply(store, bad, judged.write(URI, "newer", offset=1))

    applied = await apply(store, judged.again(judged.write(URI, "older")), start=2)

    [letter] = await letters(store)
    assert applied.outcomes[0].reason == "superseded"
    assert (letter.state, letter.reason, letter.attempts) == ("superseded", "invalid_state", 2)
    assert (await get(store)).body == "newer"


async def test_a_live_write_closes_the_open_item_of_a_job(store: engine.Store):
    """A document written after its job began is none of the job's business any more; state alone leaves it be."""
    await answered(store, "body")
    request = jobs.JobRequest(collection="tickets", scope="", mode="force", filter=None)
    job, _ = await store.write(jobs.create, "job", request)
    await store.write(jobs.fill, job.id, 100, None)

    await apply(store, judged.write(URI, None, {"n": 2}, offset=1))
    waiting = await store.read(_item_state)
    await apply(store, judged.write(URI, "new", offset=2))

    assert waiting == "waiting"
    assert await store.read(_item_state) == "superseded"


def _item_state(tx: engine.Tx) -> str:
    return str(tx.execute(sa.select(job_items._ITEMS.c.state)).scalar_one())


async def test_the_local_log_numbers_its_events(store: engine.Store):
    """Appended events get the next offsets of the one local partition; a redriven one keeps its own."""
    first = await store.write(writes.append, "local", [judged.write(URI, "a", event_id="x"), judged.refused()])
    bad = (await letters(store))[0]
    redriven = replace(judged.again(judged.write("tickets/t2", "b", event_id="y")), position=bad.position)

    await store.write(writes.append, "local", [redriven, judged.write(URI, "c", event_id="z")])

    assert [outcome.outcome for outcome in first.outcomes] == ["applied", "rejected"]
    assert (bad.position.topic, bad.position.incarnation, bad.position.partition, bad.position.offset) == (
        "local",
        1,
        0,
        1,
    )
    assert (await store.read(stored.row, "tickets/t2"))["log_offset"] == 1
    assert (await store.read(stored.row, URI))["log_offset"] == 3
    assert [letter.state for letter in await letters(store)] == ["redriven"]


async def test_appending_the_same_events_again_is_safe(store: engine.Store):
    """A write whose commit was in doubt may be sent again: the ids know it."""
    events = [judged.write(URI, "a", event_id="x"), judged.delete("tickets/none", event_id="y")]
    first = await store.write(writes.append, "local", events)

    second = await store.write(writes.append, "local", events)

    assert second.outcomes == tuple(replace(outcome, duplicate=True) for outcome in first.outcomes)
    assert (await get(store)).version == 1


async def test_an_empty_batch_changes_nothing(store: engine.Store):
    """Nothing to apply is no error."""
    empty = Batch(judged.TOPIC, 1, 0, 0, 0, (), ())

    applied = await store.write(writes.apply, [empty])

    assert applied == Applied((), 0)
    assert await offset(store) == 0
