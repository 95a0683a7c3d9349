"""How long a view's table takes to be filled, and to be made anew when it is worn: seconds, for two sizes.

Filling is what a start takes beyond reading the store (`view_build` has both together), against an INSERT of the
same rows from one plain table into another. Made anew is what the writer waits for once in as many changes as there are
documents, while searches go on; its baseline is CREATE TABLE AS on the same table.
"""

import time
from collections.abc import AsyncIterator

import duckdb
import searchable
from figures import Figure

from facetline.facets.definitions import Definitions
from facetline.facets.table import ddl
from facetline.facets.view.view import View

SIZES = {"100k": 100_000, "1m": 1_000_000}


async def measure() -> AsyncIterator[Figure]:
    """Measure both sizes."""
    for name, count in SIZES.items():
        view = View()
        view.define(Definitions([searchable.definition()]))
        filled_s = 0.0
        for page in searchable.documents(count):
            started_s = time.perf_counter()
            view.apply(page)
            filled_s += time.perf_counter() - started_s
        table = view.tables["tickets"]
        cursor = view._connection.cursor()
        insert = f"INSERT INTO live.main.plain SELECT * FROM {ddl.name_of(table)}"
        statements = ddl.create(table)[-1].replace(ddl.name_of(table), "live.main.plain"), insert
        yield Figure(f"search_rebuild_{name}_filled", filled_s, "s", _run(cursor, *statements))
        copy = f"CREATE OR REPLACE TABLE live.main.plain AS SELECT * FROM {ddl.name_of(table)}"
        copied_s = _run(cursor, copy)
        renewed_s = _run(cursor, "BEGIN", *ddl.rewrite(table), "COMMIT")
        yield Figure(f"search_rebuild_{name}_anew", renewed_s, "s", copied_s)
        view.close()


def _run(cursor: duckdb.DuckDBPyConnection, *statements: str) -> float:
    """Return how many seconds the statements take."""
    started_s = time.perf_counter()
    for statement in statements:
        cursor.execute(statement)
    return time.perf_counter() - started_s
