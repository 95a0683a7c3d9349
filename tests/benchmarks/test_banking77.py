"""All 10,003 questions of Banking77 through both runtimes: how fast, how large, how right, and whether equal.

`pytest -q tests/benchmarks/test_banking77.py`; the figures are printed.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import banking
import pytest
import runtimes
from runtimes import Site

from facetline.streams.pipeline import poll

LIMIT_S = 1_800.0

pytestmark = [
    pytest.mark.skipif(not banking.QUESTIONS.exists(), reason="needs Banking77's questions in ../shared/data"),
    pytest.mark.kafka,
    pytest.mark.postgres,
    pytest.mark.timeout(4 * LIMIT_S),
]


@dataclass
class Run:
    """What one runtime did; seconds from the start of the import command, megabytes at the peak of a process."""

    runtime: str
    stored: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    applied_s: float = 0.0
    answered_s: float = 0.0
    load_s: float = 0.0
    search_ms: float = 0.0
    peaks_mb: dict[str, float] = field(default_factory=dict)


def test_both_runtimes_answer_every_question_alike(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Both runtimes answer every question, with identical facets."""
    rows = banking.rows()
    local = _local(tmp_path, request.getfixturevalue)
    kafka = _kafka(tmp_path, request.getfixturevalue)
    topics = banking.topics()
    right = sum(
        local.stored[str(number)][0]["topic"]["choice"] == topics[row["category"]] for number, row in enumerate(rows, 1)
    )
    with capsys.disabled():
        print()  # noqa: T201 (figures)
        for run in (local, kafka):
            _print(run, len(rows))
        print(f"agreement with the intents' own grouping: {right} of {len(rows)} = {right / len(rows):.2%}")  # noqa: T201
        print(f"identical facets: {local.stored == kafka.stored}")  # noqa: T201

    assert len(local.stored) == len(rows)
    assert local.stored == kafka.stored


def _print(run: Run, count: int) -> None:
    peaks = ", ".join(f"{name} {peak:.0f} MB" for name, peak in run.peaks_mb.items())
    print(  # noqa: T201 (figures)
        f"{run.runtime}: {count / run.answered_s:.0f} documents/s in all ({run.answered_s:.1f} s);"
        f" written and applied {count / run.applied_s:.0f}/s ({run.applied_s:.1f} s);"
        f" view loaded in {run.load_s:.2f} s, searched in {run.search_ms:.1f} ms; peak memory: {peaks}"
    )


def _local(folder: Path, fixture: Callable[[str], Any]) -> Run:
    run = Run("local")
    for part in ("applied", "answered"):
        (folder / part).mkdir()
        with banking.made("local", folder / part, fixture) as site:
            started_s = time.monotonic()
            run.peaks_mb[f"import --wait {part}"] = _import(site, part)
            setattr(run, f"{part}_s", time.monotonic() - started_s)
            if part == "answered":
                asyncio.run(_look(site, run))
    return run


def _kafka(folder: Path, fixture: Callable[[str], Any]) -> Run:
    run = Run("kafka")
    (folder / "kafka").mkdir()
    with banking.made("kafka", folder / "kafka", fixture) as site, _measured(site, run):
        asyncio.run(_until_at_work(site))
        started_s = time.monotonic()
        run.peaks_mb["import"] = _import(site, "applied")
        run.applied_s = time.monotonic() - started_s
        asyncio.run(_until_answered(site))
        run.answered_s = time.monotonic() - started_s
        asyncio.run(_look(site, run))
    return run


@contextmanager
def _measured(site: Site, run: Run) -> Iterator[None]:
    """Run a worker, and note its peak memory at its end."""
    with site.worker() as worker:
        yield
        run.peaks_mb["worker"] = _peak_mb(worker.pid)


def _import(site: Site, wait: str) -> float:
    with banking.QUESTIONS.open("rb") as file:
        words = ("import", "-", "--format", "csv", *banking.IMPORT, "--wait", wait)
        said, peak_mb = site.place.feed(file, *words)
    assert (said["written"], said["unchanged"], said["failed"], said["refused"]) == (10_003, 0, 0, [])
    return peak_mb


def _peak_mb(pid: int) -> float:
    """Return a running process's peak memory in megabytes, as Linux tells it."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


async def _until_at_work(site: Site) -> None:
    """Wait until the worker has its partitions, by a write of another scope-less key that is removed again."""
    async with site.pipeline() as pipeline:
        await pipeline.write("banking/warm", body="hello", timeout_s=runtimes.ANSWERED_S)
        await pipeline.delete("banking/warm")


async def _until_answered(site: Site) -> None:
    from facetline.storage.queue import queue

    async with site.pipeline() as pipeline:

        async def look() -> bool | None:
            return True if (await pipeline.store.read(queue.pending)).total == 0 else None

        assert await poll(look, time.monotonic() + LIMIT_S)


async def _look(site: Site, run: Run) -> None:
    async with site.pipeline() as pipeline:
        started_s = time.monotonic()
        await pipeline.search("banking")
        run.load_s = time.monotonic() - started_s
        reply = await pipeline.search("banking", {"topic": "top_up"}, min_confidence=0.8, counts="topic")
        run.search_ms = reply["took_ms"]
        run.stored = await banking.stored(pipeline)
