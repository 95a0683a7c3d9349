"""The whole reply of a search (page, total, four counts, pending): milliseconds, on 100,000 and 1,000,000 documents.

Baseline: the same statements written by hand for this table, on the same table in the same process, their rows fetched
and nothing made of them. Both are medians over four kinds of searches, turn about; nothing is remembered between two.
"""

import statistics
import time
from collections.abc import AsyncIterator, Callable

import duckdb
import searchable
from figures import Figure, note

from facetline.facets.view.view import View

SIZES = {"100k": 100_000, "1m": 1_000_000}
ROUNDS = 15


async def measure() -> AsyncIterator[Figure]:
    """Measure both sizes."""
    for name, count in SIZES.items():
        found = compared(searchable.view(count))
        for kind, (value, baseline) in found.items():
            note(f"  {name} {kind}: {value:.1f} ms, by hand {baseline:.1f} ms")
        values, baselines = zip(*found.values(), strict=True)
        yield Figure(f"search_query_{name}", statistics.fmean(values), "ms", statistics.fmean(baselines))


def compared(view: View) -> dict[str, tuple[float, float]]:
    """Return the median milliseconds of each kind of search, and of the same by hand."""
    found = {}
    for kind in searchable.KINDS:
        selection, statements = searchable.selection(kind), searchable.by_hand(kind)
        cursor = view._connection.cursor()
        check(view, kind, cursor)
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(ROUNDS):
            times[0].append(took_ms(lambda: view.search(selection)))  # noqa: B023 (called at once)
            times[1].append(took_ms(lambda: run(cursor, statements)))  # noqa: B023 (called at once)
        found[kind] = (statistics.median(times[0]), statistics.median(times[1]))
    return found


def run(cursor: duckdb.DuckDBPyConnection, statements: list[str]) -> list[list[tuple[object, ...]]]:
    """Run the statements of one search in one transaction."""
    cursor.execute("BEGIN TRANSACTION READ ONLY")
    try:
        return [cursor.execute(statement).fetchall() for statement in statements]
    finally:
        cursor.execute("ROLLBACK")


def check(view: View, kind: str, cursor: duckdb.DuckDBPyConnection) -> None:
    """Both must say the same, or the comparison says nothing."""
    page, [(total,)], counts, [(pending,)] = run(cursor, searchable.by_hand(kind))
    reply = view.search(searchable.selection(kind))
    assert [hit["uri"] for hit in reply["hits"]] == [row[0] for row in page[:20]]
    assert (reply["total"], reply["as_of"]["pending"]) == (total, pending)
    for facet in reply["facets"]:
        mine = {row[1]: sum(r[4] for r in counts if r[:2] == row[:2]) for row in counts if row[0] == facet["name"]}
        assert {b["value"]: b["count"] for b in facet["buckets"]} == {v: n for v, n in mine.items() if v is not None}


def took_ms(work: Callable[[], object]) -> float:
    """Return how many milliseconds it takes."""
    started_s = time.perf_counter()
    work()
    return (time.perf_counter() - started_s) * 1000
