"""How claims end when their holder does: stops, cancellations, kills, expired leases, and late words of old claims."""

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import chains
import pytest
import stored
from chains import QUICK
from fake_evaluator import FakeEvaluator, Held
from polling import eventually

from facetline.storage import counters
from facetline.storage.db import engine
from facetline.streams import failpoints
from facetline.streams.classify.side_chain import SideChain

pytestmark = pytest.mark.collections("tickets")

LEASE_MS = int((QUICK.call_s + QUICK.lease_margin_s) * 1000)
CHILD = Path(chains.__file__).with_name("chain_child.py")


@pytest.fixture
async def store(store: engine.Store) -> engine.Store:
    """An open store with the collection `tickets` and the pending document `tickets/t1`."""
    await store.write(stored.write, {"tickets/t1": "words"})
    return store


async def called(evaluator: FakeEvaluator, count: int = 1) -> None:
    """Wait until so many calls have begun."""
    await eventually(lambda: len(evaluator.history) >= count, every_s=0.01, what=f"{count} calls have begun")


async def started(
    store: engine.Store, evaluator: FakeEvaluator, **options: float
) -> tuple[SideChain, asyncio.Event, asyncio.Task[None]]:
    """Run a side chain until its first call has begun."""
    chain = SideChain(store, await chains.assignments(store, evaluator), owner="one", **options)
    stop = asyncio.Event()
    task = asyncio.create_task(chain.run(stop))
    await called(evaluator)
    return chain, stop, task


async def test_a_stop_lets_running_calls_end(store: engine.Store):
    """A call that ends within the grace period is stored; nothing new is claimed meanwhile."""
    evaluator, held = FakeEvaluator(), Held()
    evaluator.script("t1", held)
    _, stop, task = await started(store, evaluator)
    stop.set()
    await store.write(stored.write, {"tickets/t2": "written after the stop"})
    held.release()
    await task
    found = await store.read(stored.rows)

    assert (found["tickets/t1"]["status"], found["tickets/t1"]["crashes"]) == ("indexed", 0)
    assert (found["tickets/t2"]["status"], found["tickets/t2"]["owner"]) == ("pending", None)


async def stop_within_grace(chain: SideChain, stop: asyncio.Event, task: asyncio.Task[None]) -> None:
    """Stop, and let the grace period run out."""
    stop.set()
    await task


async def stop_and_halt(chain: SideChain, stop: asyncio.Event, task: asyncio.Task[None]) -> None:
    """Stop, and do not wait."""
    stop.set()
    chain.halt()
    await task


async def halt_only(chain: SideChain, stop: asyncio.Event, task: asyncio.Task[None]) -> None:
    """Halt without a stop before."""
    chain.halt()
    await task


async def cancel(chain: SideChain, stop: asyncio.Event, task: asyncio.Task[None]) -> None:
    """Cancel the task that runs it."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


End = Callable[[SideChain, asyncio.Event, asyncio.Task[None]], Awaitable[None]]
ENDS: list[tuple[End, float]] = [(stop_within_grace, 0.2), (stop_and_halt, 60.0), (halt_only, 60.0), (cancel, 60.0)]


@pytest.mark.parametrize(("end", "grace_s"), ENDS, ids=[end.__name__ for end, _ in ENDS])
@pytest.mark.parametrize("stubborn", [False, True], ids=["", "stubborn"])
async def test_a_call_cut_off_is_released_and_recorded(store: engine.Store, end: End, grace_s: float, stubborn: bool):
    """However the end comes, also to an evaluator that ignores it: the claim is free, with one crash recorded."""
    evaluator, held = FakeEvaluator(), Held(stubborn=stubborn)
    evaluator.script("t1", held)
    chain, stop, task = await started(store, evaluator, grace_s=grace_s)
    began_s = time.monotonic()
    await end(chain, stop, task)
    took_s = time.monotonic() - began_s
    found = await chains.row(store, "tickets/t1")
    held.release()
    async with chains.running(store, evaluator, owner="two"):
        await chains.settled(store)
    after = await chains.row(store, "tickets/t1")

    assert took_s < 10
    assert (found["status"], found["owner"], found["crashes"]) == ("pending", None, 1)
    assert (after["status"], after["calls_made"], after["crashes"]) == ("indexed", 2, 1)


async def test_a_killed_process_is_taken_over(store: engine.Store, store_url: str, clock: stored.Clock):
    """SIGKILL in mid-call: when the lease has ended another process asks once more, and one crash is recorded."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(CHILD), store_url, "child", "hang", stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    line = await child.stdout.readline()
    child.kill()
    await child.wait()
    evaluator = FakeEvaluator()
    async with chains.running(store, evaluator, owner="two") as chain:
        await store.write(stored.write, {"tickets/t2": "other words"})
        await eventually(lambda: evaluator.calls == {"t2": 1})
        left_alone = await chains.row(store, "tickets/t1")
        clock.shift_ms = LEASE_MS + 1000
        chain.wake()
        await chains.settled(store)
    found = await chains.row(store, "tickets/t1")

    assert line == b"called t1\n"
    assert (left_alone["status"], left_alone["owner"]) == ("pending", "child")
    assert evaluator.calls == {"t1": 1, "t2": 1}
    assert (found["status"], found["calls_made"], found["crashes"]) == ("indexed", 2, 1)


@pytest.mark.parametrize("point", ["chain.after_claim", "chain.before_store", "chain.after_store"])
async def test_a_kill_at_any_step_loses_nothing(store: engine.Store, store_url: str, clock: stored.Clock, point: str):
    """SIGKILL at each step of a round: every document ends answered; each call more than one is a recorded crash."""
    await store.write(stored.write, {f"tickets/k{number}": f"body {number}" for number in range(20)})
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        str(CHILD),
        store_url,
        "child",
        "answer",
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, failpoints.VARIABLE: f"{point}=kill"},
    )
    said, _ = await child.communicate()
    evaluator = FakeEvaluator()
    clock.shift_ms = LEASE_MS + 1000
    async with chains.running(store, evaluator, owner="two"):
        await chains.settled(store)
    found = await store.read(stored.rows)
    calls = evaluator.calls + Counter(line.removeprefix("called ") for line in said.decode().splitlines())

    assert child.returncode == -signal.SIGKILL
    assert {each["status"] for each in found.values()} == {"indexed"}
    assert len(found) == 21
    assert all(
        calls[each["key"]] <= each["calls_made"] == 1 + each["retries"] + each["crashes"] for each in found.values()
    )


async def two_claims(
    store: engine.Store, clock: stored.Clock, first: Held, second: Held
) -> tuple[tuple[SideChain, asyncio.Event, asyncio.Task[None]], tuple[SideChain, asyncio.Event, asyncio.Task[None]]]:
    """Let a worker's lease on `tickets/t1` end while its call runs, and a second worker take over; both calls hang."""
    one, two = FakeEvaluator(first), FakeEvaluator(second)
    old = await started(store, one)
    clock.shift_ms = LEASE_MS + 1000
    chain = SideChain(store, await chains.assignments(store, two), owner="two")
    stop = asyncio.Event()
    new = asyncio.create_task(chain.run(stop))
    await called(two)
    return old, (chain, stop, new)


async def test_the_first_valid_answer_wins(store: engine.Store, clock: stored.Clock):
    """A frozen worker's answer is taken if nobody was quicker; the other one is discarded and counted, not stored."""
    first, second = Held("billing"), Held("outage")
    old, new = await two_claims(store, clock, first, second)
    first.release()
    await eventually(lambda: old[0].stats.stored == 1)
    second.release()
    await eventually(lambda: new[0].stats.discarded == 1)
    for _, stop, task in (old, new):
        stop.set()
        await task
    found = await chains.row(store, "tickets/t1")

    assert '"billing"' in found["facets"]
    assert (found["calls_made"], found["crashes"]) == (2, 1)
    assert (await store.read(counters.all))["answers_discarded"] == 1


async def test_a_late_failure_of_an_old_claim_is_discarded(store: engine.Store, clock: stored.Clock):
    """The worker whose lease ended finds that its call failed: the document belongs to another claim and goes on."""
    first, second = Held(ValueError("late")), Held("outage")
    old, new = await two_claims(store, clock, first, second)
    first.release()
    await eventually(lambda: old[0].stats.discarded == 1)
    meanwhile = await chains.row(store, "tickets/t1")
    second.release()
    for _, stop, task in (old, new):
        stop.set()
        await task

    assert (meanwhile["status"], meanwhile["owner"]) == ("pending", "two")
    assert '"outage"' in (await chains.row(store, "tickets/t1"))["facets"]


async def test_a_late_release_of_an_old_claim_is_discarded(store: engine.Store, clock: stored.Clock):
    """The worker whose lease ended is stopped: it frees nothing that is another's, and records no second crash."""
    first, second = Held("billing"), Held("outage")
    old, new = await two_claims(store, clock, first, second)
    await stop_and_halt(*old)
    meanwhile = await chains.row(store, "tickets/t1")
    second.release()
    new[1].set()
    await new[2]
    found = await chains.row(store, "tickets/t1")

    assert (meanwhile["owner"], meanwhile["crashes"]) == ("two", 1)
    assert (found["status"], found["calls_made"], found["crashes"]) == ("indexed", 2, 1)


async def test_claims_of_an_exchange_that_was_cancelled_are_released(store: engine.Store):
    """A cancellation while claims are being committed leaves no document claimed by nobody."""
    evaluator, watched = FakeEvaluator(Held()), chains.Watched(store)
    watched.late.clear()
    chain = SideChain(watched, await chains.assignments(store, evaluator), owner="one")
    task = asyncio.create_task(chain.run(asyncio.Event()))
    await eventually(lambda: watched.writes == 1, every_s=0.01, what="claims are committed, and nobody knows it yet")
    claimed = await chains.row(store, "tickets/t1")
    task.cancel()
    await asyncio.sleep(0)
    watched.late.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    found = await chains.row(store, "tickets/t1")

    assert claimed["owner"] == "one"
    assert (found["status"], found["owner"], found["crashes"], found["calls_made"]) == ("pending", None, 0, 0)
    assert evaluator.history == []
