"""Many seeds in processes of their own, and a failing one made small."""

import multiprocessing
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor

import structlog
from simulation.plan import Op, plan
from simulation.world import Result, simulate

SEEDS = 500
SHRINKS_MAX = 150
"""Runs that making a failing plan small may take."""


def quiet() -> None:
    """Keep the log out of a simulation: formatting it would take most of the time."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


def pool(processes: int) -> ProcessPoolExecutor:
    """Return a pool of fresh processes, which no coverage or other measuring slows down."""
    return ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), quiet)


def processes() -> int:
    """Return how many processes one test may use: all cores, shared with the other test workers."""
    return max(1, (os.cpu_count() or 1) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def failures(executor: ProcessPoolExecutor, seeds: Iterable[int]) -> list[Result]:
    """Run seeds; return those that break a promise."""
    return [result for result in executor.map(simulate, seeds) if result.failure]


def failures_until(executor: ProcessPoolExecutor, seeds: range, until_s: float) -> tuple[list[Result], int]:
    """Run seeds until a moment of the monotonic clock or the first failure; return what failed, and how many ran."""
    size, done = 4 * processes(), 0
    while time.monotonic() < until_s and done < len(seeds):
        found = failures(executor, seeds[done : done + size])
        done += size
        if found:
            return found, done
    return [], done


def shrunk(seed: int, ops: Sequence[Op] | None = None) -> tuple[list[Op], Result]:
    """Drop operations of a failing plan as long as it goes on failing; return what is left, and how it fails."""
    ops = list(plan(seed) if ops is None else ops)
    last = simulate(seed, ops)
    size, runs = max(len(ops) // 2, 1), 0
    while size and runs < SHRINKS_MAX:
        start = 0
        while start < len(ops) and runs < SHRINKS_MAX:
            fewer = [*ops[:start], *ops[start + size :]]
            runs += 1
            result = simulate(seed, fewer)
            if result.failure:
                ops, last = fewer, result
            else:
                start += size
        size //= 2
    return ops, last


def told(seed: int, ops: Sequence[Op], result: Result) -> str:
    """Return what a person needs to find the fault."""
    lines = [f"seed {seed} breaks a promise: {result.failure}", f"again: pytest tests/simulation --seed {seed}"]
    lines += [f"it takes {len(ops)} of the plan's steps:", *map(str, ops), "the end of the trace:", *result.trace]
    return "\n".join(lines)
