"""A forced reindex with a model that answers at once: documents a second, over SQLite.

Baseline: the same side chain on the same documents when they are new, without a job.
"""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import sample
import side_chain
import workers
from figures import Figure, interleaved

from facetline.storage.db import opening
from facetline.storage.db.engine import Store
from facetline.storage.jobs import jobs, model
from facetline.streams.background import classifying

DOCUMENTS = 5_000
ROUNDS = 3
LIMIT_S = 300.0


async def measure() -> AsyncIterator[Figure]:
    """Measure it: each round answers new documents, and then the same ones again."""
    again: list[float] = []

    async def first() -> float:
        with TemporaryDirectory() as folder:
            store = await opening.open_store(f"sqlite:///{Path(folder) / 'store.db'}")
            try:
                await side_chain.written(store, DOCUMENTS)
                took_s = await side_chain.answered_s(store, DOCUMENTS, 0.0)
                again.append(DOCUMENTS / await _again_s(store))
            finally:
                await store.close()
        return DOCUMENTS / took_s

    async def once_more() -> float:
        return again[-1]

    found = await interleaved(ROUNDS, baseline=first, value=once_more)
    yield Figure("reindex_0ms", found["value"], "documents/s", found["baseline"])


async def _again_s(store: Store) -> float:
    started_s = time.perf_counter()
    job, _joined = await store.write(jobs.create, "bench", model.JobRequest("tickets", mode="force"))

    async def ended() -> bool:
        return (await store.read(jobs.get, job.id)).state == "succeeded"

    async with classifying(store, sample.assignments(), grace_s=1.0, memo_rows_max=1_000_000):
        await workers.until(ended, LIMIT_S)
        return time.perf_counter() - started_s
