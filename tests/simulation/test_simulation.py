"""The whole pipeline under a seeded scheduler: whatever happens whenever, the promises hold.

Every seed is one world: processes with the real parts on a real SQLite, simulated time, a log, evaluators, faults and
kills at failpoints. What the records must make of documents, and what else may change, is looked at after every commit.
`--seeds 5000`, `--first-seed 7000` and `--minutes 10` run other seeds, `--seed 7` one.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest
from simulation import runs
from simulation.plan import KINDS, POINTS, PUBLISHING, Op, plan
from simulation.world import simulate

CHUNK = 25
"""Seeds of one test: some seconds, so that test workers end at about the same time."""
FRESH = 10_000_000


@pytest.fixture(scope="module")
def executor() -> Iterator[ProcessPoolExecutor]:
    """Processes that run seeds."""
    with runs.pool(runs.processes()) as made:
        yield made


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each chunk of seeds; with a limit of time, one of each test worker's fresh ones."""
    if "seeds" not in metafunc.fixturenames:
        return

    def option(name: str) -> int | None:
        return metafunc.config.getoption(name, default=None)

    one, minutes = option("--seed"), option("--minutes")
    first = int(option("--first-seed") or os.environ.get("FACETLINE_FIRST_SEED", "0"))
    end = first + (option("--seeds") or runs.SEEDS)
    chunks = [range(start, min(start + CHUNK, end)) for start in range(first, end, CHUNK)]
    if minutes is not None:
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        chunks = [range(first + worker, first + FRESH, workers) for worker in range(workers)]
    if one is not None:
        chunks = [range(one, one + 1)]
    metafunc.parametrize("seeds", chunks, ids=[str(each.start) for each in chunks])


@pytest.mark.timeout(7200)
def test_promises_hold_in_every_simulated_world(
    seeds: range, executor: ProcessPoolExecutor, request: pytest.FixtureRequest
):
    """Whatever a seed makes happen, no promise breaks at any commit, and everything has ended at the end."""
    minutes = request.config.getoption("--minutes", default=None)
    until_s = time.monotonic() + (3600.0 if minutes is None else 60 * minutes)

    failing, ran = runs.failures_until(executor, seeds, until_s)

    if failing:
        seed = min(result.seed for result in failing)
        ops, result = executor.submit(runs.shrunk, seed).result()
        pytest.fail(runs.told(seed, ops, result), pytrace=False)
    assert ran > 0
    if minutes is not None:
        print(f"{ran} seeds from {seeds.start} on, every {seeds.step}.")  # noqa: T201 (shown by -s and in reports)


@pytest.mark.parametrize("seed", [3, 20])
def test_a_seed_runs_the_same_way_in_every_process(seed: int):
    """The same seed gives the same trace, commit by commit, in two processes with other hashes and addresses."""
    with runs.pool(1) as one, runs.pool(1) as other:
        first, second = one.submit(simulate, seed).result(), other.submit(simulate, seed).result()

    assert first.hash == second.hash
    assert first.commits == second.commits > 20


@pytest.mark.parametrize("what", ["answers kept", "a version lost", "a claim stolen"])
def test_a_broken_store_is_found_and_its_plan_made_small(what: str, executor: ProcessPoolExecutor):
    """A fault that is put into the store is noticed, and what has nothing to do with it is dropped from the plan."""
    ops = sorted([*plan(2), Op(4.0, "write", ("tickets/a", "money", None)), Op(7.0, "tamper", (what,))], key=_moment)

    fewer, result = executor.submit(runs.shrunk, 2, ops).result()

    assert result.failure is not None
    assert "tamper" in {op.kind for op in fewer}
    assert len(fewer) <= 3 < len(ops)
    assert executor.submit(simulate, 2, fewer).result().hash == result.hash


def test_plans_contain_every_kind_of_fault():
    """No operation or fault is only thought of: together the seeds do all of them."""
    kinds = {op.kind for seed in range(runs.SEEDS) for op in plan(seed)}

    assert kinds == KINDS


def test_worlds_come_to_the_states_that_matter(executor: ProcessPoolExecutor):
    """Takeovers, remembered answers, canceled jobs with work left and kills at each failpoint do happen."""
    seen: Counter[str] = Counter()
    for result in executor.map(simulate, range(1, 201, 4)):  # of these each has a publisher
        seen.update(+result.seen)

    wanted = {"takeover", "answered", "remembered", "job succeeded", "job canceled", "job canceled with items waiting"}
    assert set(seen) >= wanted | {f"killed at {point}" for point in (*POINTS, *PUBLISHING)}


def test_a_log_that_is_made_anew_is_recognised_although_it_ends_with_a_marker():
    """Markers of transactions tell no log from another: the record below them does."""
    place = ("tickets/a", 0, 0, 1)
    ops = [
        Op(1.0, "write", ("tickets/a", "money", None)),
        Op(1.5, "marker", place),
        Op(4.0, "remake", place),
        Op(6.0, "write", ("tickets/c", "down", None)),
        Op(6.01, "marker", place),
    ]

    result = simulate(7, ops)

    assert result.failure is None


def _moment(op: Op) -> float:
    return op.at_s
