"""From writing to searchable, with a model that answers at once: documents a second in the local runtime.

All documents are written as an import does, the side chain answers them, and a reader searches all the while; the clock
stops when a search shows every one of them answered. Baseline: what one writes by hand for this, without a promise: a
batch is inserted and committed, asked about all at once, its answers are stored and committed, and inserted into
DuckDB.
"""

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import sample
from figures import Figure, interleaved

from facetline.streams import wiring
from facetline.streams.pipeline import NewDocument, Pipeline

DOCUMENTS = 6_000
ROUNDS = 3
READ_EVERY_S = 0.25


async def measure() -> AsyncIterator[Figure]:
    """Measure it."""
    found = await interleaved(ROUNDS, baseline=_by_hand, value=_pipeline)
    yield Figure("write_to_searchable_0ms", found["value"], "documents/s", found["baseline"])


async def _pipeline() -> float:
    with TemporaryDirectory() as folder:
        settings = sample.configure(Path(folder))
        async with wiring.open_pipeline(settings, classify=True) as opened:
            await opened.search("tickets")  # the view's own start is `view_build`'s
            started_s = time.perf_counter()
            async with asyncio.TaskGroup() as both:
                both.create_task(_write(opened))
                both.create_task(_read(opened))
            return DOCUMENTS / (time.perf_counter() - started_s)


async def _write(opened: Pipeline) -> None:
    active = await opened.definitions()
    for start in range(0, DOCUMENTS, sample.BATCH):
        batch = [
            NewDocument(sample.uri(number), sample.body(number), sample.state(number), str(number))
            for number in range(start, start + sample.BATCH)
        ]
        await opened.write_many(active, batch, source="bench")


async def _read(opened: Pipeline) -> None:
    while True:
        reply = await opened.search("tickets", limit=1)
        if reply["total"] == DOCUMENTS and reply["as_of"]["pending"] == 0:
            return
        await asyncio.sleep(READ_EVERY_S if reply["total"] < DOCUMENTS else 0.02)


async def _by_hand() -> float:
    with TemporaryDirectory() as folder:
        store = sqlite3.connect(Path(folder) / "store.db")
        store.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
            "CREATE TABLE documents (uri TEXT PRIMARY KEY, body TEXT, state TEXT, facets TEXT)"
        )
        view = duckdb.connect()
        view.execute("CREATE TABLE shown (uri VARCHAR PRIMARY KEY, state JSON, facets JSON)")
        started_s = time.perf_counter()
        for start in range(0, DOCUMENTS, sample.BATCH):
            await _batch_by_hand(store, view, range(start, start + sample.BATCH))
        took_s = time.perf_counter() - started_s
        store.close()
        view.close()
        return DOCUMENTS / took_s


async def _batch_by_hand(store: sqlite3.Connection, view: duckdb.DuckDBPyConnection, numbers: range) -> None:
    bodies = {sample.uri(number): sample.body(number) for number in numbers}
    states = {sample.uri(number): json.dumps(sample.state(number)) for number in numbers}
    with store:
        rows = [(uri, body, states[uri]) for uri, body in bodies.items()]
        store.executemany("INSERT INTO documents (uri, body, state) VALUES (?, ?, ?)", rows)
    evaluator = sample.Sample()
    asking = [evaluator.evaluate(body, sample.QUESTIONS, key="", deadline_s=60) for body in bodies.values()]
    answers = [
        json.dumps({name: answer.model_dump() for name, answer in evaluated.answers.items()})
        for evaluated in await asyncio.gather(*asking)
    ]
    with store:
        rows = list(zip(answers, bodies, strict=True))
        store.executemany("UPDATE documents SET facets = ? WHERE uri = ?", rows)
    shown = [[uri, states[uri], facets] for uri, facets in zip(bodies, answers, strict=True)]
    insert = "INSERT INTO shown SELECT r[1], r[2], r[3] FROM (SELECT unnest(CAST(? AS VARCHAR[][])) AS r)"
    view.execute(insert.replace("CAST(? AS VARCHAR[][])", "from_json(?, '[[\"VARCHAR\"]]')"), [json.dumps(shown)])
