"""Run the benchmarks and print their figures: `python tests/benchmarks/run.py [NAME ...]`, all without a name.

A name is that of a benchmark or of one of its figures; `banking77`, which is not among all, is a data set through both
runtimes in five minutes, by pytest.

One JSON object a line on standard output, `{"bench", "value", "unit", "baseline", "ratio"}`; progress goes to standard
error. What each figure and its baseline is stands at the head of its file. The data lie in TMPDIR: on a disk, if the
figures are to say what a commit costs.
"""

import asyncio
import importlib
import logging
import os
import sys
import time
from pathlib import Path

BENCHES = (
    "feed_to_view",
    "view_build",
    "search_query",
    "search_http",
    "search_100_readers",
    "search_memory",
    "search_rebuild",
    "side_chain",
    "fair_scopes",
    "claim_cost",
    "model_calls",
    "reindex",
    "write_to_searchable",
    "apply_kafka",
    "freshness",
    "worker_memory",
)
HERE = Path(__file__).resolve().parent


async def main(names: list[str]) -> int:
    """Run the named benchmarks, or all."""
    from figures import note
    from services import Missing

    from facetline.streams.cli import running

    running.spare_what_stays()  # as every command does; for the baselines as well
    if any(not name.startswith(BENCHES) for name in names):
        note(f"there are {', '.join(BENCHES)} and banking77")
        return 2
    note(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    for name in BENCHES:
        if names and not any(given.startswith(name) for given in names):
            continue
        started_s = time.monotonic()
        note(f"{name} …")
        try:
            async for figure in importlib.import_module(name).measure():
                print(figure.line(), flush=True)  # noqa: T201 (what this is for)
        except Missing as error:
            note(f"{name} left out: {error}")
        note(f"{name}: {time.monotonic() - started_s:.0f} s")
    return 0


def configure_logs() -> None:
    """Warnings only, on standard error."""
    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


if __name__ == "__main__":
    sys.path[:0] = [*map(str, (HERE, HERE.parent / "helpers", HERE.parent / "services", HERE.parents[1]))]
    configure_logs()
    if sys.argv[1:] == ["banking77"]:
        os.execv(sys.executable, [sys.executable, "-m", "pytest", "-q", str(HERE / "test_banking77.py")])  # noqa: S606 (ours)
    sys.exit(asyncio.run(main(sys.argv[1:])))
