"""A store's clock that goes back: nothing waits longer than any wait of ours, nobody pays twice, and ages stay ages.

Method: the shift of the store's clock, by an hour each way, on both databases.
"""

import pytest
import stored

from facetline.storage import counters, evaluator_outages, publications, store_stats
from facetline.storage.db import engine
from facetline.storage.jobs import jobs, model
from facetline.storage.queue import queue

pytestmark = pytest.mark.collections("notes", "mails")

HOUR_MS = 3_600_000
LEASE_MS = 60_000
TOPIC = "facets"


@pytest.fixture
def clock() -> stored.Clock:
    """The store's clock, an hour ahead of what it is set back to."""
    made = stored.Clock()
    made.shift_ms = HOUR_MS
    return made


async def test_what_was_due_before_the_clock_went_back_is_due_now(store: engine.Store, clock: stored.Clock):
    """Written and retried documents of an hour ahead are claimed at once, counted, and their age counts from then."""
    await store.write(stored.write, {f"notes/{n}": f"text {n}" for n in range(18)})
    [retried] = (await store.write(stored.claimed, slots=1)).claims
    again = queue.Retried(retried.uri, retried.indexed_as, retried.attempt, 300_000, counted=True)
    await store.write(queue.retry, [again])
    clock.shift_ms = 0

    found = await store.write(stored.claimed, slots=100)
    row = await store.read(stored.row, "notes/17")

    assert len(found.claims) == found.clock_corrections == 18
    assert {claim.crashes for claim in found.claims} == {0}
    assert (await store.read(counters.all))[counters.CLOCK_CORRECTIONS] == 18
    assert row["cleared_ms"] == found.claims[0].asked_ms


async def test_a_retry_keeps_its_wait_while_the_clock_is_sound(store: engine.Store, clock: stored.Clock):
    """A wait as long as the longest one is waited for, and nothing is corrected."""
    await store.write(stored.write, {"notes/a": "text"})
    [claim] = (await store.write(stored.claimed)).claims
    longest = queue.Retried(claim.uri, claim.indexed_as, claim.attempt, queue.WAIT_MAX_MS - 1_000, counted=True)
    await store.write(queue.retry, [longest])

    early = await store.write(stored.claimed)
    clock.shift_ms += queue.WAIT_MAX_MS
    late = await store.write(stored.claimed)

    assert (early.claims, early.clock_corrections) == ((), 0)
    assert (len(late.claims), late.clock_corrections) == (1, 0)


async def test_a_lease_of_before_the_jump_ends_in_its_own_time(store: engine.Store, clock: stored.Clock):
    """It begins again: whoever lives is not asked over, whoever died is taken over when it ends, one crash recorded."""
    await store.write(stored.write, {"notes/alive": "one", "notes/dead": "two"})
    alive, dead = (await store.write(stored.claimed, lease_ms=LEASE_MS)).claims
    clock.shift_ms = 0

    corrected = await store.write(stored.claimed, owner="two", lease_ms=LEASE_MS)
    answered = await store.write(queue.answer, [stored.answer_to(alive)])
    clock.shift_ms = LEASE_MS + 1_000
    [taken] = (await store.write(stored.claimed, owner="two", lease_ms=LEASE_MS)).claims
    row = await store.read(stored.row, "notes/dead")

    assert (corrected.claims, corrected.clock_corrections) == ((), 2)
    assert answered.stored == (("notes/alive", alive.indexed_as),)
    assert (taken.uri, taken.attempt) == (dead.uri, dead.attempt + 1)
    assert (row["calls_made"], row["crashes"]) == (2, 1)


async def test_a_lease_of_before_the_jump_begins_again_once(store: engine.Store, clock: stored.Clock):
    """What a dead process held is taken over one lease after the first claim that saw it, however many look before."""
    await store.write(stored.write, {"notes/dead": "text"})
    [dead] = (await store.write(stored.claimed, lease_ms=LEASE_MS)).claims
    corrections, taken = [], []
    for passed_ms in (0, LEASE_MS // 2, LEASE_MS - 1_000, LEASE_MS + 1_000):
        clock.shift_ms = passed_ms
        found = await store.write(stored.claimed, owner="two", lease_ms=LEASE_MS)
        corrections.append(found.clock_corrections)
        taken.append([claim.attempt for claim in found.claims])

    assert corrections == [1, 0, 0, 0]
    assert taken == [[], [], [], [dead.attempt + 1]]


async def test_a_longer_lease_of_another_process_is_left_alone(store: engine.Store, clock: stored.Clock):
    """A lease that ends later than ours would, taken by a process with slower calls, is no sign of a clock."""
    await store.write(stored.write, {"notes/a": "text"})
    await store.write(stored.claimed, owner="slow", lease_ms=10 * LEASE_MS)
    clock.shift_ms += 1_000

    found = await store.write(stored.claimed, owner="quick", lease_ms=LEASE_MS)

    assert (found.claims, found.clock_corrections) == ((), 0)


async def test_an_age_is_never_0_while_something_waits(store: engine.Store, clock: stored.Clock):
    """Also before anything was corrected: the oldest pending document has waited for some time."""
    await store.write(stored.write, {"notes/a": "text"})
    clock.shift_ms = 0

    glance = await store.read(store_stats.glance, "documents", TOPIC)

    assert store_stats.age_ms(glance.now_ms, glance.oldest_ms["notes"]) > 0


async def test_leases_of_jobs_and_of_the_publisher_end(store: engine.Store, clock: stored.Clock):
    """A job's and the publisher's lease of an hour ahead are over: another process goes on at once."""
    await store.write(jobs.create, "j", model.JobRequest("notes", mode="force"))
    await store.write(jobs.take, "one", 30_000, ["notes"])
    await store.write(publications.elect, TOPIC, "one", 9_000)
    held = (
        await store.write(jobs.take, "two", 30_000, ["notes"]),
        await store.write(publications.elect, TOPIC, "two", 9_000),
    )
    clock.shift_ms = 0

    job = await store.write(jobs.take, "two", 30_000, ["notes"])
    position = await store.write(publications.elect, TOPIC, "two", 9_000)

    assert held == (None, None)
    assert (job.owner if job else None, position) == ("two", 0)


async def test_what_was_set_aside_is_tried_again(store: engine.Store, clock: stored.Clock):
    """A record that was to be sent again an hour and more ahead is due now; one within the longest wait is not."""
    await store.write(publications.set_aside, TOPIC, "notes/a", "refused", 10_000)
    clock.shift_ms = -10_000

    again = await store.read(publications.due_again, TOPIC, 10)
    clock.shift_ms = HOUR_MS
    early = await store.read(publications.due_again, TOPIC, 10)

    assert ([each.uri for each in again], early) == (["notes/a"], [])


async def test_an_outage_reported_in_the_future_is_none_now(store: engine.Store, clock: stored.Clock):
    """A report of before the jump says nothing about now; one of a moment ago does, also when a second was lost."""
    await store.write(evaluator_outages.record, "triage", "timeout", "no answer", misconfigured=False, valid_ms=60_000)
    before = await store.read(evaluator_outages.now, "triage")
    clock.shift_ms -= 1_000
    a_second = await store.read(evaluator_outages.now, "triage")
    clock.shift_ms = 0
    after = await store.read(evaluator_outages.now, "triage")

    assert (before is None, a_second is None, after) == (False, False, None)


async def test_a_forced_reindex_takes_no_answer_of_before_the_jump(store: engine.Store, clock: stored.Clock):
    """An answer remembered in the future is older than the job; the new one is remembered in its place."""
    await store.write(stored.write, {"notes/a": "text"})
    await store.write(stored.answer_all, (await store.write(stored.claimed)).claims)
    clock.shift_ms = 0
    await store.write(jobs.create, "j", model.JobRequest("notes", mode="force"))
    await store.write(jobs.take, "one", 30_000, ["notes"])
    while (await store.write(jobs.fill, "j", 10, None)).filled_to is not None:
        pass
    await store.write(jobs.turn, "j", "one", 10, 10)

    asked = await store.write(stored.claimed)
    await store.write(stored.answer_all, asked.claims)
    clock.shift_ms = 10_000
    await store.write(stored.write, {"notes/b": "text"})
    remembered = await store.write(stored.claimed)

    assert (len(asked.claims), asked.remembered) == (1, 0)
    assert (len(remembered.claims), remembered.remembered) == (0, 1)
