"""Many seeds at once on all cores, and a failing one made small."""

import multiprocessing
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor

import structlog
from sim_plan import Op, plan
from sim_world import Result, simulate

SEEDS = int(os.environ.get("FACETLINE_SEEDS", "100"))
SHRINKS_MAX = 60
"""Runs that making a failing plan small may take."""


def quiet() -> None:
    """Keep the log out of a simulation: formatting it would take most of the time."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


def pool() -> ProcessPoolExecutor:
    """Return a pool of fresh processes, one for each core."""
    return ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn"), quiet)


def failures(executor: ProcessPoolExecutor, seeds: Iterable[int]) -> list[Result]:
    """Run seeds; return those that break a promise."""
    return [result for result in executor.map(simulate, seeds) if result.failure]


def shrunk(seed: int) -> tuple[list[Op], Result]:
    """Drop operations of a failing plan as long as it goes on failing."""
    ops, runs, size = plan(seed), 0, len(plan(seed)) // 2
    last = simulate(seed, ops)
    while size and runs < SHRINKS_MAX:
        for start in range(0, len(ops), size):
            fewer = [*ops[:start], *ops[start + size :]]
            runs += 1
            result = simulate(seed, fewer)
            if result.failure:
                ops, last = fewer, result
                break
        else:
            size //= 2
    return ops, last


def told(seed: int, ops: Sequence[Op], result: Result) -> str:
    """Return what a person needs to find the fault."""
    lines = [f"seed {seed}: {result.failure}", f"again: pytest tests/simulation --seed {seed}", "with these alone:"]
    return "\n".join([*lines, *map(str, ops), "the end of its trace:", *result.trace])
