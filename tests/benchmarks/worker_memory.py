"""Memory of a `facetline worker` that applies, answers and publishes 100,000 documents: its peak in megabytes.

Baseline: its memory after the first fifth; a ratio near one means that it does not grow with what it has done.
Linux only: /proc tells it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import kafka_topics
import services
import workers
from apply_kafka import message
from figures import Figure, note

from facetline.storage.db.engine import Store
from facetline.storage.log import documents
from facetline.streams import wiring

DOCUMENTS = 100_000
CHUNK = 5_000
LIMIT_S = 600.0


async def measure() -> AsyncIterator[Figure]:
    """Measure it."""
    with ExitStack() as with_, TemporaryDirectory() as folder:
        bootstrap = with_.enter_context(services.kafka())
        url = with_.enter_context(services.database(with_.enter_context(services.postgres())))
        async with (
            workers.running(Path(folder), bootstrap, url) as (settings, pid),
            wiring.open_pipeline(settings) as opened,
        ):
            filling = asyncio.create_task(_fill(settings.kafka))
            await _answered(opened.store, DOCUMENTS // 5)
            early = memory_mb(pid, "VmRSS")
            note(f"  after {DOCUMENTS // 5}: {early:.0f} MB")
            await filling
            await _answered(opened.store, DOCUMENTS)
            note(f"  after {DOCUMENTS}: {memory_mb(pid, 'VmRSS'):.0f} MB")
            yield Figure("worker_memory", memory_mb(pid, "VmHWM"), "MB", early)


async def _fill(kafka: object) -> None:
    for start in range(0, DOCUMENTS, CHUNK):
        await kafka_topics.fill(kafka, [message(number) for number in range(start, start + CHUNK)])


async def _answered(store: Store, count: int) -> None:
    async def look() -> bool:
        return (await store.read(documents.counts)).get("tickets", {}).get("indexed", 0) >= count

    await workers.until(look, LIMIT_S, 1.0)


def memory_mb(pid: int, name: str) -> float:
    """A running process's memory: `VmRSS` now, `VmHWM` at its peak."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))
