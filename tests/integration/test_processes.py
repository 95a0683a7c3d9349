"""Who answers for a store: rows of processes, on both databases, by the store's clock.

Method: rows as processes write them and a shift of the store's clock; the side chain's own renewal for real.
"""

import asyncio
import os

import chains
import pytest
import sqlalchemy as sa
import stored
from fake_evaluator import FakeEvaluator
from polling import eventually

from facetline.storage import processes
from facetline.storage.db import engine, models
from facetline.storage.queue import queue
from facetline.streams.background import classifying
from facetline.streams.monitor import answering

pytestmark = pytest.mark.collections("notes", "mails", "tickets")

HOUR_MS = 3_600_000


async def living(store: engine.Store) -> list[str]:
    """Return the ids of the living processes."""
    return [each.id for each in await store.read(processes.living)]


def ids(tx: engine.Tx) -> list[str]:
    """Return the ids of all rows."""
    return list(tx.execute(sa.select(models.PROCESSES.c.id).order_by(models.PROCESSES.c.id)).scalars())


async def test_a_process_lives_as_long_as_it_renews_its_row(store: engine.Store, clock: stored.Clock):
    """Renewed rows count, with the time of the first one as their start; others end within 15 s, or when they leave."""
    await store.write(processes.beat, "a", "worker")
    await store.write(processes.beat, "b", "worker")
    [first, _] = await store.read(processes.living)
    clock.shift_ms += processes.LIVING_MS - 1_000
    await store.write(processes.beat, "a", "worker")
    both = await living(store)
    clock.shift_ms += 2_000
    one = await living(store)
    [renewed] = await store.read(processes.living)
    await store.write(processes.leave, "a")

    assert (both, one, await living(store)) == (["a", "b"], ["a"], [])
    assert (renewed.started_ms, renewed.pid, renewed.kind) == (first.started_ms, os.getpid(), "worker")
    assert renewed.seen_ms > first.seen_ms


@pytest.mark.parametrize("hours", [-1, 1, -1_000, 1_000])
async def test_a_dead_process_lives_again_by_no_clock(store: engine.Store, clock: stored.Clock, hours: int):
    """After the clock went back or forward the dead one does not count, and a living one does with its next renewal."""
    await store.write(processes.beat, "dead", "worker")
    await store.write(processes.beat, "alive", "worker")
    clock.shift_ms += hours * HOUR_MS
    moved = await living(store)
    await store.write(processes.beat, "alive", "worker")
    renewed = await living(store)
    clock.shift_ms += processes.LIVING_MS + 1_000 - hours * HOUR_MS  # and back to just after the dead one was seen
    await store.write(processes.beat, "alive", "worker")

    assert (moved, renewed, await living(store)) == ([], ["alive"], ["alive"])


async def test_a_time_ahead_is_deleted_before_the_clock_reaches_it(store: engine.Store, clock: stored.Clock):
    """The row of a process that died before the clock went back does not count an hour later either."""
    await store.write(processes.beat, "dead", "worker")
    clock.shift_ms -= HOUR_MS
    await store.write(processes.beat, "alive", "worker")
    left = await store.read(ids)
    clock.shift_ms += HOUR_MS

    assert (left, await living(store)) == (["alive"], [])


async def test_rows_of_killed_processes_are_bounded(store: engine.Store, clock: stored.Clock):
    """Each renewal deletes up to a hundred that were not renewed for an hour, and none that still may be."""
    many = processes.PURGED_MAX + 20
    for number in range(many):
        await store.write(processes.beat, f"p{number:03}", "worker")
    clock.shift_ms += processes.KEPT_MS + 60_000
    await store.write(processes.beat, "x", "worker")
    once = await store.read(ids)
    await store.write(processes.beat, "y", "worker")

    assert len(once) == many - processes.PURGED_MAX + 1
    assert await store.read(ids) == ["x", "y"]


async def test_processes_that_renew_at_once_do_not_hold_each_other_up(store: engine.Store, clock: stored.Clock):
    """Thirty at a time over the same old rows: all are there, and the old ones are gone."""
    for number in range(50):
        await store.write(processes.beat, f"old{number}", "worker")
    clock.shift_ms += 2 * HOUR_MS
    names = sorted(f"p{number:02}" for number in range(30))
    await asyncio.gather(*(store.write(processes.beat, name, "worker") for name in names))
    await store.write(processes.beat, names[0], "worker")

    assert await store.read(ids) == names


async def test_what_waits_is_told_with_who_asks(store: engine.Store, clock: stored.Clock):
    """Due, put off and claimed documents all wait for a worker, since the oldest one was written; nothing else does."""
    nothing = await store.read(processes.answering)
    await store.write(stored.write, {"notes/a": "a"})
    since_ms = (await store.read(stored.row, "notes/a"))["cleared_ms"]
    clock.shift_ms += 60_000
    await store.write(stored.write, {"mails/b": "b", "notes/c": "c", "notes/d": "d"})
    claims = {claim.uri: claim for claim in (await store.write(stored.claimed)).claims}
    put_off = claims["mails/b"]
    await store.write(
        queue.retry, [queue.Retried(put_off.uri, put_off.indexed_as, put_off.attempt, 60_000, counted=True)]
    )
    await store.write(stored.answer_all, [claims["notes/d"]])
    alone = await store.read(processes.answering)
    await store.write(processes.beat, "a", "worker")
    asked = await store.read(processes.answering)

    assert nothing == processes.Answering((), 0, None)
    assert answering.says(nothing) == "no worker is running; no document waits"
    assert (alone.living, alone.waiting, alone.since_ms) == ((), 3, since_ms)
    assert [answering.is_amiss(each) for each in (nothing, alone, asked)] == [False, True, False]
    assert answering.says(alone).startswith("3 documents wait for their answers since 20")
    assert answering.says(alone).endswith("UTC; no worker is running: start 'facetline worker'")
    assert answering.says(asked).startswith(f"{asked.living[0].shown} asks; 3 documents wait")


async def test_a_side_chain_renews_its_row_until_it_stops(store: engine.Store, clock: stored.Clock):
    """A worker's row is there at once, comes back within a renewal when it was lost, and goes with an orderly stop."""
    given = await chains.assignments(store, FakeEvaluator())
    async with classifying(store, given, grace_s=1.0, memo_rows_max=1_000, kind="worker"):
        await eventually(lambda: living(store), what="the process is there")
        clock.shift_ms -= HOUR_MS
        assert await living(store) == []
        await eventually(lambda: living(store), deadline_s=processes.BEAT_S + 5, what="it is there again")

    assert await store.read(ids) == []


async def test_a_command_that_is_done_in_a_moment_leaves_no_row(store: engine.Store):
    """A command that asks for less than a renewal writes nothing about itself."""
    await store.write(stored.write, {"tickets/t": "text"})
    given = await chains.assignments(store, FakeEvaluator())
    async with classifying(store, given, grace_s=1.0, memo_rows_max=1_000):
        await chains.settled(store, deadline_s=processes.BEAT_S - 1)
        assert await store.read(ids) == []

    assert await store.read(ids) == []
