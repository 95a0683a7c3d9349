"""Feed to view: records a second from a store whose documents have all changed into a fresh view.

Counted is everything that happens between a commit and a search: numbering, reading, and applying to DuckDB.
Baseline: the same rows by hand, read with the bare driver and inserted from JSON into a plain table, without versions,
order or checks.
"""

import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import answered
import duckdb
from figures import Figure, interleaved

from facetline.storage.db import opening
from facetline.storage.db.engine import Store
from facetline.streams.views.follower import Follower

RECORDS = 40_000
ROUNDS = 3
PAGE = 5_000

_TABLE = """
CREATE TABLE shown (uri VARCHAR, key VARCHAR, version BIGINT, status VARCHAR, topic VARCHAR, open VARCHAR,
  urgent BOOLEAN, severity DOUBLE, title VARCHAR, priority BIGINT)
"""
_READ = "SELECT uri, key, version, status, facets, state FROM documents WHERE rowid > ? ORDER BY rowid LIMIT ?"
_INSERT = """
INSERT INTO shown SELECT r[1]->>'$', r[2]->>'$', CAST(r[3] AS BIGINT), r[4]->>'$', r[5]->>'$.topic.choice',
  r[5]->>'$.status.choice', CAST(r[5]->'$.urgent.value' AS BOOLEAN), CAST(r[5]->'$.severity.score' AS DOUBLE),
  r[6]->>'$.title', CAST(r[6]->'$.priority' AS BIGINT) FROM (SELECT unnest(CAST(? AS JSON[][])) AS r)
"""


async def measure() -> AsyncIterator[Figure]:
    """Measure it."""
    found = await interleaved(ROUNDS, baseline=_by_hand, value=_followed)
    yield Figure("feed_to_view", found["value"], "records/s", found["baseline"])


async def _followed() -> float:
    async with filled(RECORDS, numbered=False) as (store, _path):
        return RECORDS / await follow(store)


async def _by_hand() -> float:
    async with filled(RECORDS, numbered=False) as (_store, path):
        return RECORDS / copy(path)


@asynccontextmanager
async def filled(count: int, *, numbered: bool) -> AsyncIterator[tuple[Store, Path]]:
    """A SQLite store with answered documents, and its file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        store = await opening.open_store(f"sqlite:///{path}", deadline_s=600)
        try:
            await store.write(answered.fill, count, numbered=numbered)
            yield store, path
        finally:
            await store.close()


async def follow(store: Store) -> float:
    """Return how many seconds a fresh view takes to hold everything."""
    follower = Follower(store, "tickets")
    started_s = time.perf_counter()
    await follower.caught_up()
    took_s = time.perf_counter() - started_s
    await follower.close()
    return took_s


def copy(path: Path) -> float:
    """Return how many seconds the same takes by hand."""
    source, view = sqlite3.connect(path), duckdb.connect(config={"threads": 2})
    view.execute(_TABLE)
    started_s, at = time.perf_counter(), 0
    while rows := source.execute(_READ, (at, PAGE)).fetchall():
        # Facets and state are JSON already: put together, not taken apart.
        texts = ('["{}","{}",{},"{}",{},{}]'.format(*row) for row in rows)
        view.execute(_INSERT, [f"[{','.join(texts)}]"])
        at += len(rows)
    took_s = time.perf_counter() - started_s
    source.close()
    view.close()
    return took_s
