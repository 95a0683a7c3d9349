"""What a claim costs with 300,000 documents pending: 64 of them, in turns between 1,000 scopes, over both databases.

The baseline is the same claim with 3,000 pending in as many scopes. `claim_ms_*` is the transaction's time;
`claim_work_*` does not depend on the machine: rows that PostgreSQL read for it, and steps of SQLite's machine (in
thousands). A cost that grew with what is pending would have a ratio of 100.
"""

import itertools
import sqlite3
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sample
import services
import sqlalchemy as sa
from figures import Figure, note

from facetline.facets.definitions import Definition, Definitions
from facetline.storage import definitions
from facetline.storage.db import engine, models, opening
from facetline.storage.queue import queue
from facetline.streams import pipeline
from facetline.streams.local_writer import LocalWriter
from facetline.streams.pipeline import Headers, NewDocument

FEW, TIMES, SCOPES = 3_000, 100, 1_000
CLAIMS = 30
"""Of each number pending; the median counts. All together take a hundredth part of the many."""
STEPS = 100
"""Of SQLite's machine, between two counts."""
COPIED = (models.DOCUMENTS, models.BODIES)


async def measure() -> AsyncIterator[Figure]:
    """Measure it, in one database after the other."""
    with TemporaryDirectory() as folder:
        async for figure in _of_store("sqlite", *(f"sqlite:///{Path(folder) / name}.db" for name in ("few", "many"))):
            yield figure
    with services.postgres() as admin_url, services.database(admin_url) as few, services.database(admin_url) as many:
        async for figure in _of_store("postgres", few, many):
            yield figure


async def _of_store(database: str, few: str, many: str) -> AsyncIterator[Figure]:
    found = {}
    for name, url, times in (("few", few, 1), ("many", many, TIMES)):
        found[name] = await _claims(url, times)
        note(f"  {database}, {FEW * times} pending: {found[name][0]:.1f} ms, work {found[name][1]:.1f}")
    (base_ms, base_work), (value_ms, value_work) = found["few"], found["many"]
    yield Figure(f"claim_ms_{database}", value_ms, "ms", base_ms)
    yield Figure(f"claim_work_{database}", value_work, "rows" if database == "postgres" else "1000 steps", base_work)


async def _claims(url: str, times: int) -> tuple[float, float]:
    """Return the milliseconds and the work of a claim."""
    definition = sample.definition().model_copy(update={"scoped": True})
    store = await opening.open_store(url)
    try:
        await store.write(definitions.activate, [definition])
        await _write(store, definition)
        await store.write(_copy, times)
        measured = []
        for _ in range(CLAIMS):
            started_s = time.perf_counter()
            work = await store.write(_worked, definition)
            measured.append((1000 * (time.perf_counter() - started_s), work))
        return statistics.median(ms for ms, _ in measured), statistics.median(work for _, work in measured)
    finally:
        await store.close()


async def _write(store: engine.Store, definition: Definition) -> None:
    writer, active = LocalWriter(store), Definitions([definition])
    uris = [f"@s{number % SCOPES:04d}/tickets/t{number:05d}" for number in range(FEW)]
    for start in range(0, FEW, sample.BATCH):
        batch = enumerate(uris[start : start + sample.BATCH], start)
        rows = [NewDocument(uri, f"{uri}: {sample.body(number)}", None, uri) for number, uri in batch]
        await writer.append([pipeline.sent_write(active, row, Headers("bench", row.event_id)) for row in rows])


def _copy(tx: engine.Tx, times: int) -> None:
    """Make each document as many, without asking the log: that takes minutes."""
    numbers = sa.select(sa.literal(1).label("n")).cte("numbers", recursive=True)
    numbers = numbers.union_all(sa.select(numbers.c.n + 1).where(numbers.c.n < times - 1))
    for table in COPIED if times > 1 else ():
        ended = sa.literal("-") + sa.cast(numbers.c.n, sa.Text)
        columns = [column + ended if column.name in {"uri", "key"} else column for column in table.c]
        tx.execute(table.insert().from_select(list(table.c), sa.select(*columns).join(numbers, sa.true())))
    tx.execute(sa.text("ANALYZE"))


def _worked(tx: engine.Tx, definition: Definition) -> float:
    """Claim, and return the work that it was."""
    counted: Any = _rows if tx.dialect == "postgresql" else _steps
    count = counted(tx)
    before = count()
    asked = {"reindex_slots_min": 0, "fingerprints": {definition.name: definition.fingerprint}, "busy_keys": ()}
    found = queue.claim(tx, "one", slots=sample.SLOTS, lease_ms=600_000, **asked)
    if len(found.claims) != sample.SLOTS:
        raise RuntimeError(f"{len(found.claims)} of {sample.SLOTS} were claimed")
    return float(count() - before)


def _rows(tx: engine.Tx) -> Any:
    read = "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables"
    return lambda: int(tx.execute(sa.text(read)).scalar_one())


def _steps(tx: engine.Tx) -> Any:
    driver = tx.connection.connection.driver_connection
    if not isinstance(driver, sqlite3.Connection):
        raise TypeError(driver)
    steps = itertools.count()
    driver.set_progress_handler(lambda: next(steps) < 0, STEPS)
    return lambda: next(steps) * STEPS / 1000
