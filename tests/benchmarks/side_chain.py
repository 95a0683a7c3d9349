"""The side chain at 200 ms a call: documents a second with 64 calls at once, over SQLite.

Baseline: the ideal, 64 calls in 200 ms. Two thousand documents are 31.25 rounds of 64, of which the last is a quarter
full: a bare pool of 64 tasks, which is measured beside it and said, reaches 0.98 of it at most.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import sample
import workers
from figures import Figure, interleaved, note

from facetline.storage import definitions
from facetline.storage.db import opening
from facetline.storage.db.engine import Store
from facetline.streams.background import classifying

DOCUMENTS = 2_000
DELAY_S = 0.2
ROUNDS = 3
LIMIT_S = 300.0


async def measure() -> AsyncIterator[Figure]:
    """Measure it."""
    found = await interleaved(ROUNDS, pool=_bare_pool, chain=_chain)
    ideal = sample.SLOTS / DELAY_S
    note(f"  a bare pool reaches {found['pool'] / ideal:.3f} of the ideal")
    yield Figure("side_chain_200ms", found["chain"], "documents/s", ideal)


async def _bare_pool() -> float:
    evaluator, numbers = sample.Sample(DELAY_S), iter(range(DOCUMENTS))

    async def work() -> None:
        for number in numbers:
            await evaluator.evaluate(sample.body(number), sample.QUESTIONS, key="", deadline_s=60)

    started_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(sample.SLOTS)))
    return DOCUMENTS / (time.perf_counter() - started_s)


async def _chain() -> float:
    with TemporaryDirectory() as folder:
        store = await opening.open_store(f"sqlite:///{Path(folder) / 'store.db'}")
        try:
            await written(store, DOCUMENTS)
            return DOCUMENTS / await answered_s(store, DOCUMENTS, DELAY_S)
        finally:
            await store.close()


async def written(store: Store, count: int) -> None:
    """Make `tickets` active, and write documents that nobody asks about yet."""
    await store.write(definitions.activate, [sample.definition()])
    await sample.write(store, range(count))


async def answered_s(store: Store, count: int, delay_s: float) -> float:
    """Return how many seconds a side chain takes to answer `count` documents."""
    started_s = time.perf_counter()
    async with classifying(store, sample.assignments(delay_s), grace_s=1.0, memo_rows_max=1_000_000) as work:

        async def all_stored() -> bool:
            return work.side_chain.stats.stored >= count

        await workers.until(all_stored, LIMIT_S, 0.005)
        return time.perf_counter() - started_s
