"""Applying batches of events to a real store: cleared first, once each, and no batch held up by one bad event."""

from dataclasses import replace

import applied
import judged
import pytest
import sqlalchemy as sa
import stored

from facetline.storage.db import engine
from facetline.storage.jobs import items, jobs, model
from facetline.storage.log import apply, documents, outcomes, positions
from facetline.storage.log.events import Applied, Batch

pytestmark = pytest.mark.collections("tickets")

URI = applied.URI


@pytest.fixture
async def store(store: engine.Store) -> engine.Store:
    """A store that has seen two partitions and the collection `tickets`."""
    for partition in (0, 1):
        await store.write(positions.first_seen, judged.TOPIC, partition, 0)
    return store


async def test_a_body_write_clears_what_was_answered_about_the_old_body(store: engine.Store):
    """New body, no answers, pending, an untouched account of calls: all in the write's own transaction."""
    voided = ("reason", "reason_message", "facets", "evaluation", "fingerprint", "owner", "claimed_fingerprint")
    unset = ("classified_ms", "feed_seq", "lease_until_ms", "claimed_ms", "memo_after_ms")
    counted = ("lane", "attempt", "calls_made", "retries", "crashes", "tries", "retry_wait_ms")
    await applied.answered(store, "old")
    used = [*(f"{name} = '{{}}'" for name in voided), *(f"{name} = 7" for name in (*unset, *counted))]
    await store.write(lambda tx: tx.execute(sa.text(f"UPDATE documents SET {', '.join(used)}")))

    await applied.apply(store, judged.write(URI, "new", offset=1))

    row = await store.read(stored.row, URI)
    assert {name: row[name] for name in (*voided, *unset)} == dict.fromkeys((*voided, *unset))
    assert {name: row[name] for name in counted} == dict.fromkeys(counted, 0)
    assert (row["status"], row["version"], row["revision"], row["indexed_as"]) == ("pending", 3, 3, 3)
    assert row["due_ms"] == row["cleared_ms"] == row["written_ms"]
    assert (await applied.get(store)).body == "new"


async def test_nothing_of_a_batch_is_visible_when_it_is_rolled_back(store: engine.Store):
    """Clearing, body, outcome, dead letter and position stand or fall together."""
    await applied.answered(store, "old")
    before = await applied.get(store)

    def broken(tx: engine.Tx) -> None:
        apply.apply(tx, [judged.batch(judged.write(URI, "new", offset=1), judged.refused(offset=2))])
        raise LookupError

    with pytest.raises(LookupError):
        await store.write(broken)

    assert await applied.get(store) == before
    assert await store.read(outcomes.find, "test", "e1") is None
    assert await applied.letters(store) == []
    assert await applied.offset(store) == 1


async def test_a_state_write_keeps_the_answers_and_shows_in_the_feed(store: engine.Store):
    """State alone is a visible change of version that asks no model."""
    await applied.answered(store, "body")
    before = await store.read(stored.row, URI)

    await applied.apply(store, judged.write(URI, None, {"n": 2}, offset=1))

    row = await store.read(stored.row, URI)
    assert (row["version"], row["revision"], row["indexed_as"], row["status"]) == (3, 1, 1, "indexed")
    assert (row["facets"], row["calls_made"], row["cleared_ms"]) == (before["facets"], 1, before["cleared_ms"])
    assert (row["state"], row["feed_seq"]) == ('{"n":2}', None)


async def test_an_unchanged_event_leaves_the_feed_alone(store: engine.Store):
    """What changes nothing moves the log position only: no new feed number, no new time."""
    await applied.answered(store, "body")
    before = await store.read(stored.row, URI)

    await applied.apply(store, judged.write(URI, "body", unless_equal=True, offset=1))

    row = await store.read(stored.row, URI)
    assert row == {**before, "log_offset": 1}


async def test_a_delete_takes_body_state_and_answers(store: engine.Store):
    """A deleted document keeps its uri and its counters, nothing else, and is not asked about."""
    await applied.answered(store, "body")

    await applied.apply(store, judged.delete(URI, offset=1))

    document = await applied.get(store)
    assert (document.status, document.version, document.revision, document.indexed_as) == ("deleted", 3, 1, 3)
    assert (document.body, document.state, document.facets, document.evaluation) == (None, None, None, None)
    assert (await store.read(stored.row, URI))["due_ms"] is None
    assert (await store.write(stored.claimed)).claims == ()


async def test_a_blank_body_is_not_asked_about(store: engine.Store):
    """An empty document has its body stored and nothing due."""
    await applied.apply(store, judged.write(URI, " \n"))

    document = await applied.get(store)
    assert (document.status, document.body) == ("empty", " \n")
    assert (await store.write(stored.claimed)).claims == ()


async def test_redelivery_is_skipped_at_any_age(store: engine.Store):
    """Records below the position change nothing and are counted, also without any memory of their ids."""
    events = [judged.write(URI, body, offset=at) for at, body in enumerate("abc")]
    await applied.apply(store, *events)
    await store.write(outcomes.purge, -1)
    before = await store.read(stored.row, URI)

    again = await applied.apply(store, *events)
    overlapping = await applied.apply(store, *events[1:], judged.write(URI, "d", offset=3))

    assert (again.outcomes, again.redelivered) == ((), 3)
    assert ([outcome.version for outcome in overlapping.outcomes], overlapping.redelivered) == ([4], 2)
    assert before["version"] == 3
    assert await applied.offset(store) == 4


async def test_a_gap_is_refused_and_nothing_changes(store: engine.Store):
    """A batch above the position names the offset to read from; what came before it in the call is not applied."""
    with pytest.raises(positions.PositionGap) as caught:
        await store.write(
            apply.apply, [judged.batch(judged.write(URI, "a")), judged.batch(judged.write(URI, "b", offset=5))]
        )

    assert (caught.value.topic, caught.value.partition, caught.value.expected) == (judged.TOPIC, 0, 1)
    assert await store.read(documents.get, URI) is None
    assert await applied.offset(store) == 0


async def test_an_unknown_partition_is_a_gap_without_an_offset(store: engine.Store):
    """A partition must have been seen, with its start offset, before anything of it is applied."""
    with pytest.raises(positions.PositionGap) as caught:
        await applied.apply(store, judged.write(URI, "a"), partition=7)

    assert caught.value.expected is None


async def test_offsets_without_records_are_passed(store: engine.Store):
    """Transaction markers and aborted records move the position although there is nothing to apply."""
    await applied.apply(store, start=0, end=3)
    done = await applied.apply(store, judged.write(URI, "a", offset=3), end=9)

    assert [outcome.version for outcome in done.outcomes] == [1]
    assert await applied.offset(store) == 9


async def test_the_position_keeps_what_the_last_record_looked_like(store: engine.Store):
    """Timestamp and hash of the last record stand beside the position, and redelivery does not put older ones there."""
    await applied.apply(store, judged.write(URI, "a"), judged.write(URI, "b", offset=1))
    await applied.apply(store, judged.write(URI, "a"))

    state = (await store.read(positions.get, judged.TOPIC))[0]
    assert (state.next_offset, state.last_timestamp_ms, state.last_hash) == (2, 2, "h2")


async def test_batches_of_several_partitions_are_one_transaction(store: engine.Store):
    """Outcomes come in the order in which the batches were given, whatever order their rows are locked in."""
    done = await store.write(
        apply.apply,
        [
            judged.batch(judged.write(URI, "a", event_id="x"), partition=1),
            judged.batch(judged.write(URI, "b", event_id="y"), partition=0),
            judged.batch(judged.write(URI, "c", offset=1, event_id="z"), partition=1),
        ],
    )

    assert [(outcome.id, outcome.version) for outcome in done.outcomes] == [("x", 1), ("y", 2), ("z", 3)]
    assert [await applied.offset(store, partition) for partition in (0, 1)] == [1, 2]


async def test_a_batch_larger_than_any_statement_is_applied_whole(store: engine.Store):
    """More documents than one statement takes are all written, each once."""
    events = [judged.write(f"tickets/t{at}", "x", offset=at) for at in range(1_201)]

    done = await applied.apply(store, *events)

    assert {outcome.version for outcome in done.outcomes} == {1}
    assert await store.read(documents.counts) == {"tickets": {"pending": 1_201}}


async def test_a_live_write_closes_the_open_item_of_a_job(store: engine.Store):
    """A document written after its job began is none of the job's business any more; state alone leaves it be."""
    await applied.answered(store, "body")
    request = model.JobRequest(collection="tickets", scope="", mode="force", filter=None)
    job, _ = await store.write(jobs.create, "job", request)
    await store.write(jobs.fill, job.id, 100, None)

    await applied.apply(store, judged.write(URI, None, {"n": 2}, offset=1))
    waiting = await store.read(_item_state)
    await applied.apply(store, judged.write(URI, "new", offset=2))

    assert waiting == "waiting"
    assert await store.read(_item_state) == "superseded"


def _item_state(tx: engine.Tx) -> str:
    return str(tx.execute(sa.select(items._ITEMS.c.state)).scalar_one())


async def test_the_local_log_numbers_its_events(store: engine.Store):
    """Appended events get the next offsets of the one local partition; a redriven one keeps its own."""
    first = await store.write(apply.append, "local", [judged.write(URI, "a", event_id="x"), judged.refused()])
    bad = (await applied.letters(store))[0]
    redriven = replace(judged.again(judged.write("tickets/t2", "b", event_id="y")), position=bad.position)

    await store.write(apply.append, "local", [redriven, judged.write(URI, "c", event_id="z")])

    assert [outcome.outcome for outcome in first.outcomes] == ["applied", "rejected"]
    assert (bad.position.topic, bad.position.incarnation, bad.position.partition, bad.position.offset) == (
        "local",
        1,
        0,
        1,
    )
    assert (await store.read(stored.row, "tickets/t2"))["log_offset"] == 1
    assert (await store.read(stored.row, URI))["log_offset"] == 3
    assert [letter.state for letter in await applied.letters(store)] == ["redriven"]


async def test_appending_the_same_events_again_is_safe(store: engine.Store):
    """A write whose commit was in doubt may be sent again: the ids know it."""
    events = [judged.write(URI, "a", event_id="x"), judged.delete("tickets/none", event_id="y")]
    first = await store.write(apply.append, "local", events)

    second = await store.write(apply.append, "local", events)

    assert second.outcomes == tuple(replace(outcome, duplicate=True) for outcome in first.outcomes)
    assert (await applied.get(store)).version == 1


async def test_an_empty_batch_changes_nothing(store: engine.Store):
    """Nothing to apply is no error."""
    empty = Batch(judged.TOPIC, 1, 0, 0, 0, (), ())

    done = await store.write(apply.apply, [empty])

    assert done == Applied((), 0)
    assert await applied.offset(store) == 0
