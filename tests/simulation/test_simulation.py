"""The whole pipeline under a seeded scheduler: whatever happens whenever, the promises hold.

Every seed is one world: processes with the real parts on a real SQLite, simulated time, a log, evaluators, faults and
kills at failpoints. A model looks at the store after every commit. `FACETLINE_SEEDS=5000` runs more seeds,
`FACETLINE_SEED=7` or `--seed 7` one.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest
import sim_runs
from sim_plan import Op, plan
from sim_world import simulate

CHUNKS = 10
REGRESSIONS: tuple[int, ...] = (24, 37, 42, 148, 172)
"""Seeds that have found something once."""


@pytest.fixture(scope="module")
def executor() -> Iterator[ProcessPoolExecutor]:
    """Processes that run seeds."""
    with sim_runs.pool() as made:
        yield made


@pytest.fixture
def only_seed(request: pytest.FixtureRequest) -> int | None:
    """The one seed that was asked for."""
    given = request.config.getoption("--seed", default=None)
    return given if given is not None else int(os.environ.get("FACETLINE_SEED", "0")) or None


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_promises_hold_in_every_simulated_world(chunk: int, executor: ProcessPoolExecutor, only_seed: int | None):
    """Whatever a seed makes happen, no promise breaks at any commit, and everything has ended at the end."""
    seeds = range(chunk, sim_runs.SEEDS, CHUNKS)
    if only_seed is not None:
        seeds = range(only_seed, only_seed + 1) if chunk == 0 else range(0)

    failing = sim_runs.failures(executor, seeds)

    if failing:
        seed = min(result.seed for result in failing)
        ops, result = executor.submit(sim_runs.shrunk, seed).result()
        pytest.fail(sim_runs.told(seed, ops, result), pytrace=False)


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_seeds_that_found_a_fault_stay_sound(seed: int, executor: ProcessPoolExecutor):
    """What was mended after a seed stays mended."""
    found = sim_runs.failures(executor, [seed])

    assert [result.failure for result in found] == []


@pytest.mark.parametrize("seed", [3, 20])
def test_a_seed_runs_the_same_way_in_every_process(seed: int):
    """The same seed gives the same trace, commit by commit, in two processes with other hashes and addresses."""
    with sim_runs.pool() as one, sim_runs.pool() as other:
        first, second = one.submit(simulate, seed).result(), other.submit(simulate, seed).result()

    assert first.hash == second.hash
    assert first.commits == second.commits > 50


def test_plans_contain_every_kind_of_fault():
    """No operation or fault is only thought of: together the seeds do all of them."""
    kinds = {op.kind for seed in range(sim_runs.SEEDS) for op in plan(seed)}

    assert len(kinds) >= 25


def test_a_log_that_is_made_anew_is_recognised_although_it_ends_with_a_marker():
    """Markers of transactions tell no log from another: the record below them does."""
    place = ("tickets/a", 0, 0, 1)
    ops = [
        Op(2.0, "write", ("tickets/a", "money", None)),
        Op(2.5, "marker", place),
        Op(17.5, "remake", place),
        Op(23.6, "write", ("tickets/c", "down", None)),
        Op(23.61, "marker", place),
    ]

    result = simulate(7, ops)

    assert result.failure is None
