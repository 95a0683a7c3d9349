"""Fairness: how long the only document of a scope waits for its answer behind 10,000 of another scope.

With 200 ms a call and 64 calls at once, over SQLite; the value is in calls, so that 1 is an answer at once. Baseline:
the wait of the last of those 10,000, which is what the lone document had without turns.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import sample
import workers
from figures import Figure, interleaved

from facetline.facets.definitions import Definition, Definitions
from facetline.facets.documents import Status
from facetline.storage import definitions
from facetline.storage.db import opening
from facetline.storage.db.engine import Store
from facetline.storage.log import documents
from facetline.streams import pipeline
from facetline.streams.background import classifying
from facetline.streams.classify.call import Assignment, CallLimits
from facetline.streams.local_writer import LocalWriter
from facetline.streams.pipeline import Headers, NewDocument

DOCUMENTS = 10_000
DELAY_S = 0.2
ROUNDS = 3
LIMIT_S = 120.0
LONE = "@zoe/tickets/alone"


async def measure() -> AsyncIterator[Figure]:
    """Measure it."""
    found = await interleaved(ROUNDS, alone=_alone)
    yield Figure("fair_scopes", found["alone"], "calls", DOCUMENTS / sample.SLOTS)


async def _alone() -> float:
    definition = sample.definition().model_copy(update={"scoped": True})
    assigned = Assignment(definition, sample.Sample(DELAY_S), CallLimits(concurrency=sample.SLOTS))
    with TemporaryDirectory() as folder:
        store = await opening.open_store(f"sqlite:///{Path(folder) / 'store.db'}")
        try:
            await store.write(definitions.activate, [definition])
            await _write(store, definition, [f"@many/tickets/t{number:05d}" for number in range(DOCUMENTS)])
            async with classifying(store, {"tickets": assigned}, grace_s=0.0, memo_rows_max=1_000_000) as work:

                async def busy() -> bool:
                    return work.side_chain.stats.stored >= sample.SLOTS

                await workers.until(busy, LIMIT_S, 0.005)
                started_s = time.perf_counter()
                await _write(store, definition, [LONE])
                work.side_chain.wake()
                await workers.until(lambda: _is_answered(store), LIMIT_S, 0.005)
                return (time.perf_counter() - started_s) / DELAY_S
        finally:
            await store.close()
            await asyncio.sleep(0)


async def _write(store: Store, definition: Definition, uris: list[str]) -> None:
    writer, active = LocalWriter(store), Definitions([definition])
    for start in range(0, len(uris), sample.BATCH):
        rows = [
            NewDocument(uri, sample.body(start + number) + uri, None, uri)
            for number, uri in enumerate(uris[start : start + sample.BATCH])
        ]
        await writer.append([pipeline.sent_write(active, row, Headers("bench", row.event_id)) for row in rows])


async def _is_answered(store: Store) -> bool:
    found = await store.read(documents.get, LONE)
    return found is not None and found.status is Status.INDEXED
