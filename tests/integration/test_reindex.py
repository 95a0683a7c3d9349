"""Reindex jobs at work over a real store: which documents are asked about again, how often, and what kills it.

Each test runs on SQLite and on PostgreSQL. The evaluator is a fake that does what its script says.
"""

import asyncio
import os
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import chains
import pytest
import stored
from chains import QUICK
from fake_evaluator import FakeEvaluator, Held
from polling import eventually

from facetline.facets.errors import EvaluationFailed
from facetline.storage.db import engine
from facetline.storage.jobs import jobs, model
from facetline.streams import failpoints
from facetline.streams.reindex.runner import LEASE_S, UNANSWERED_PER_SLOT

pytestmark = pytest.mark.collections("tickets")

CHILD = Path(chains.__file__).with_name("chain_child.py")
LEASES_MS = int((LEASE_S + QUICK.call_s + QUICK.lease_margin_s) * 1000)
"""Longer than any lease of a process that was killed."""


async def indexed(store: engine.Store, count: int) -> None:
    """Write documents `tickets/tNN` and have them answered: "billing"."""
    await store.write(stored.write, {f"tickets/t{number:02}": f"body {number}" for number in range(count)})
    async with chains.running(store, FakeEvaluator(), owner="before"):
        await chains.settled(store)


async def job_of(store: engine.Store, mode: str, **fields: Any) -> str:
    """Make a job over `tickets`; the clock goes on first, so that what was written before is before it."""
    job_id = uuid.uuid4().hex
    now_ms = time.time_ns() // 1_000_000
    await eventually(lambda: time.time_ns() // 1_000_000 > now_ms + 1, every_s=0.001)
    await store.write(jobs.create, job_id, model.JobRequest("tickets", mode=mode, **fields))
    return job_id


async def ended(store: engine.Store, job_id: str, *, deadline_s: float = 20.0) -> model.Job:
    """Wait for a job's end."""

    async def job_ended() -> bool:
        """Say whether it has."""
        return (await store.read(jobs.get, job_id)).state not in model.ACTIVE

    await eventually(job_ended, deadline_s=deadline_s, what="the job has ended")
    return await store.read(jobs.get, job_id)


async def statuses(store: engine.Store) -> dict[str, str]:
    """Return every document's status by key."""
    return {found["key"]: found["status"] for found in (await store.read(stored.rows)).values()}


async def test_missing_documents_are_asked_about_again_and_no_others(store: engine.Store):
    """A job for the missing ones touches exactly the failed documents, and ends with their names."""
    await indexed(store, 10)
    failing = FakeEvaluator(EvaluationFailed("refused", "no"))
    await store.write(stored.write, {f"tickets/f{number}": f"bad {number}" for number in range(6)})
    async with chains.running(store, failing):
        await chains.settled(store)
    evaluator = FakeEvaluator("outage")
    evaluator.script("f5", EvaluationFailed("refused", "still no"))
    job_id = await job_of(store, "missing")
    async with chains.reindexing(store, evaluator):
        job = await ended(store, job_id)
    reindexed = await store.read(jobs.items, job_id, "reindexed")
    failed = await store.read(jobs.items, job_id, "failed")

    assert job.state == "succeeded"
    assert evaluator.calls == {f"f{number}": 1 for number in range(6)}
    assert [item.key for item in reindexed] == [f"f{number}" for number in range(5)]
    assert [(item.key, item.reason) for item in failed] == [("f5", "refused")]


async def test_a_forced_job_asks_about_everything_once(store: engine.Store):
    """All documents are asked about again although their answers are remembered, equal bodies once between them."""
    await store.write(stored.write, {"tickets/a": "same", "tickets/b": "same", "tickets/c": "other"})
    async with chains.running(store, FakeEvaluator()):
        await chains.settled(store)
    evaluator = FakeEvaluator("outage")
    job_id = await job_of(store, "force")
    async with chains.reindexing(store, evaluator):
        await ended(store, job_id)
    found = await store.read(stored.rows)

    assert sorted(evaluator.bodies) == ["other", "same"]
    assert all('"outage"' in each["facets"] for each in found.values())
    assert (await store.read(jobs.progress, job_id)) == {"reindexed": 3}


async def test_the_collection_never_goes_dark(store: engine.Store):
    """A job has no more than twice the call slots cleared and unanswered; all other documents keep their answers."""
    await indexed(store, 40)
    evaluator, held = FakeEvaluator(), [Held() for _ in range(40)]
    for number, each in enumerate(held):
        evaluator.script(f"t{number:02}", each)
    most = UNANSWERED_PER_SLOT * 4
    job_id = await job_of(store, "force")
    dark: list[int] = []
    async with chains.reindexing(store, evaluator, replace(QUICK, concurrency=4)):
        for done in range(40):

            async def as_many_as_may_be(left: int = 40 - done) -> bool:
                """Count the documents without an answer; say whether the bound is reached."""
                dark.append(sum(status != "indexed" for status in (await statuses(store)).values()))
                return dark[-1] == min(most, left)

            await eventually(as_many_as_may_be, every_s=0.01)
            key = f"t{done:02}"
            await eventually(lambda key=key: evaluator.calls[key] == 1, every_s=0.01)
            held[done].release()
        await ended(store, job_id)

    assert max(dark) == most
    assert set(evaluator.calls.values()) == {1}


async def test_a_canceled_job_gives_no_more_turns(store: engine.Store):
    """After a cancel what was asked about ends as usual, and the rest keeps its answers untouched."""
    await indexed(store, 30)
    evaluator, limits = FakeEvaluator(Held("outage")), replace(QUICK, concurrency=2)
    job_id = await job_of(store, "force")
    async with chains.reindexing(store, evaluator, limits):
        await eventually(lambda: len(evaluator.history) == 2, every_s=0.01)
        await store.write(jobs.cancel, job_id)
        assert isinstance(evaluator.always, Held)
        evaluator.always.release()
        await chains.settled(store)
    found = await store.read(stored.rows)
    asked = [uri for uri, each in found.items() if '"outage"' in each["facets"]]
    progress = await store.read(jobs.progress, job_id)

    assert len(asked) == len(evaluator.history) <= 2 * UNANSWERED_PER_SLOT
    assert progress == {"reindexed": len(asked), "canceled": 30 - len(asked)}
    assert (await store.read(jobs.get, job_id)).state == "canceled"


async def test_live_writes_go_first_and_win(store: engine.Store):
    """Documents written during a forced job end with the answers about their newest body, and are not held up by it."""
    await indexed(store, 60)
    evaluator = FakeEvaluator(0.05)
    job_id = await job_of(store, "force")
    async with chains.reindexing(store, evaluator, replace(QUICK, concurrency=2)) as chain:
        await eventually(lambda: len(evaluator.history) >= 4, every_s=0.01)
        rewritten = {f"tickets/t{number:02}": f"newer {number}" for number in range(50, 60)}
        newest = await store.write(stored.write, rewritten)
        chain.wake()

        async def live_ones_answered() -> bool:
            """Say whether all rewritten documents have their answers."""
            found = await store.read(stored.rows)
            return all(found[uri]["status"] == "indexed" for uri in rewritten)

        await eventually(live_ones_answered, every_s=0.02)
        still_waiting = (await store.read(jobs.progress, job_id)).get("waiting", 0)
        await ended(store, job_id)
    found = await store.read(stored.rows)
    progress = await store.read(jobs.progress, job_id)

    assert still_waiting > 20
    assert {uri: found[uri]["indexed_as"] for uri in rewritten} == newest
    assert (progress["superseded"], progress["reindexed"]) == (10, 50)
    assert all(evaluator.bodies.count(body) == 1 for body in rewritten.values())
    assert all(each["calls_made"] == 1 + each["retries"] + each["crashes"] for each in found.values())


async def test_a_reindex_is_not_starved_by_live_writes(store: engine.Store):
    """While live documents never run out, a tenth of the calls still goes to the job."""
    await indexed(store, 5)
    evaluator = FakeEvaluator(0.01)
    job_id = await job_of(store, "force")
    await store.write(stored.write, {f"tickets/live{number}": f"live {number}" for number in range(150)})
    async with chains.reindexing(store, evaluator, replace(QUICK, concurrency=2)):
        await eventually(lambda: sum(asked.key.startswith("t0") for asked in evaluator.history) == 5)
        live_left = sum(status == "pending" for status in (await statuses(store)).values())
        await ended(store, job_id)

    assert live_left > 20


async def test_a_killed_job_goes_on_elsewhere(store: engine.Store, store_url: str, clock: stored.Clock):
    """SIGKILL after a turn: another process goes on when the leases end, and asks about each document once."""
    await indexed(store, 40)
    job_id = await job_of(store, "force")
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        str(CHILD),
        store_url,
        "child",
        "hang",
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, failpoints.VARIABLE: "reindex.after_turn=kill"},
    )
    await child.communicate()
    before = await store.read(stored.rows)
    evaluator = FakeEvaluator("outage")
    async with chains.reindexing(store, evaluator, owner="two") as chain:
        clock.shift_ms = LEASES_MS
        chain.wake()
        job = await ended(store, job_id)
    found = await store.read(stored.rows)

    assert child.returncode == -9
    assert 0 < sum(each["status"] == "pending" for each in before.values()) <= UNANSWERED_PER_SLOT * QUICK.concurrency
    assert job.state == "succeeded"
    assert (await store.read(jobs.progress, job_id)) == {"reindexed": 40}
    assert all('"outage"' in each["facets"] for each in found.values())
    assert set(evaluator.calls.values()) == {1}
    assert all(each["calls_made"] == 1 + each["retries"] + each["crashes"] for each in found.values())


async def test_a_stopped_process_gives_its_job_up(store: engine.Store):
    """After a stop another process takes the job at once, without waiting for the lease."""
    await indexed(store, 20)
    evaluator, held = FakeEvaluator("outage"), Held("outage")
    evaluator.script("t00", held)
    job_id = await job_of(store, "force")
    limits = replace(QUICK, concurrency=1)
    async with chains.reindexing(store, evaluator, limits):
        await eventually(lambda: evaluator.calls["t00"] == 1, every_s=0.01)
        running = await store.read(jobs.get, job_id)
        held.release()
    stopped = await store.read(jobs.get, job_id)
    async with chains.reindexing(store, FakeEvaluator("outage"), limits, owner="two"):
        await ended(store, job_id, deadline_s=10.0)

    assert (running.owner, stopped.owner, stopped.state) == ("one", None, "running")


async def test_a_job_stays_with_a_process_that_lives(store: engine.Store):
    """The lease is renewed while answers are waited for, longer than it lasts."""
    await indexed(store, 4)
    held, watched = Held("outage"), chains.Watched(store)
    job_id = await job_of(store, "force")
    async with chains.reindexing(watched, FakeEvaluator(held), lease_s=3.0):

        async def leased() -> int:
            """Return when the lease ends, 0 without one."""
            return (await store.read(jobs.get, job_id)).lease_until_ms or 0

        first_ms = await eventually(leased, every_s=0.01)

        async def renewed() -> bool:
            """Say whether it ends later than a single lease would."""
            return await leased() > first_ms + 3_000

        await eventually(renewed)
        held.release()
        await ended(store, job_id)
    taken = [answer.id for name, answer in watched.history if name == "take" and answer is not None]

    assert taken == [job_id]


async def test_one_process_works_on_a_job(store: engine.Store, store_url: str, clock: stored.Clock):
    """Two processes with reindexers share the calls of a job, and none is made twice."""
    await indexed(store, 60)
    one, two = FakeEvaluator(0.01), FakeEvaluator(0.01)
    job_id = await job_of(store, "force")
    async with (
        stored.opened(store_url, clock) as second,
        chains.reindexing(store, one, owner="one"),
        chains.reindexing(second, two, owner="two"),
    ):
        await ended(store, job_id)
    calls = one.calls + two.calls

    assert set(calls.values()) == {1}
    assert len(calls) == 60


async def test_a_filter_chooses_the_documents(store: engine.Store):
    """A job with a filter asks about the documents that the filter finds."""
    await indexed(store, 5)
    await store.write(stored.write, {"tickets/x1": "down", "tickets/x2": "down too"})
    async with chains.running(store, FakeEvaluator("outage")):
        await chains.settled(store)
    evaluator = FakeEvaluator("billing")
    job_id = await job_of(store, "force", filter="topic = 'outage'")
    async with chains.reindexing(store, evaluator):
        job = await ended(store, job_id)

    assert job.total == 2
    assert evaluator.calls == {"x1": 1, "x2": 1}


async def test_a_filter_that_no_longer_fits_ends_its_job(store: engine.Store):
    """A filter that names what the collection does not have cancels the job instead of stopping the process."""
    await indexed(store, 2)
    job_id = await job_of(store, "force", filter="colour = 'red'")
    async with chains.reindexing(store, FakeEvaluator()):
        job = await ended(store, job_id)

    assert job.state == "canceled"


async def test_a_store_that_is_away_does_not_end_the_work(store: engine.Store):
    """Turns that could not be given are given when the store answers again."""
    await indexed(store, 10)
    away = chains.Watched(store)
    job_id = await job_of(store, "force")
    async with chains.reindexing(away, FakeEvaluator("outage")):
        away.refusals = 3
        job = await ended(store, job_id)

    assert (job.state, away.refusals) == ("succeeded", 0)
