"""All hits of one search, however many: read in pages out of one snapshot, in order.

What is held for it is a place of eight bytes for each hit, and the snapshot. Holding a snapshot costs nothing while
nothing changes; every change that passes meanwhile keeps up to 900 bytes more (measured, see docs/benchmarks.md), so
the view takes a snapshot back from a reader after `CHANGES_MAX` of them.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from facetline.facets.errors import SnapshotGone
from facetline.facets.search import sql

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    from numpy.typing import NDArray

    from facetline.facets.search.sql import Query

PAGE_ROWS = 5_000
"""Rows of a page; each may cost a look through the whole table."""
CHANGES_MAX = 300_000
"""Changes that may pass while a reader holds its snapshot: less than 300 MB."""

Run = Callable[[Callable[[], list[dict[str, Any]]]], Awaitable[list[dict[str, Any]]]]


class RowReader:
    """The hits of one search. Methods block and may be called from any thread; `close` gives the snapshot up.

    `columns` are those that people may name, in the table's order; `token` says what the snapshot holds.
    """

    def __init__(
        self,
        query: "Query",
        cursor: "duckdb.DuckDBPyConnection",
        token: str,
        held: contextlib.ExitStack,
        page_rows: int = PAGE_ROWS,
    ) -> None:
        statement = sql.places(query)
        self.columns = tuple(query.table.columns)
        self.token = token
        self._statement = sql.cells_at(query)
        self._cursor = cursor
        self._page_rows = page_rows
        self._held = held
        self._turn = threading.Lock()
        self._places: NDArray[np.int64] = cursor.execute(statement.text, statement.values).fetchnumpy()["place"]
        self._read = 0
        self._open = True

    @property
    def total(self) -> int:
        """How many hits there are."""
        return len(self._places)

    def page(self) -> list[dict[str, Any]]:
        """Return the next hits, a bounded number; none when all were read. Moments are in UTC, without zone.

        Raises:
            SnapshotGone: the snapshot was given up, by `close` or because too much changed meanwhile.
        """
        with self._turn:
            if not self._open:
                raise SnapshotGone
            places = self._places[self._read : self._read + self._page_rows]
            if not len(places):
                return []
            self._cursor.register(sql.PLACES, {"place": places})
            found = self._cursor.execute(self._statement).fetchall()
            self._cursor.unregister(sql.PLACES)
            self._read += len(places)
            # They come as they lie in the table.
            cells = {row[0]: row[1:] for row in found}
            return [dict(zip(self.columns, cells[place], strict=True)) for place in places.tolist()]

    def close(self) -> None:
        """Give the snapshot up, after the page that is just being read; safe to call twice."""
        with self._turn:
            self._open = False
            self._held.close()


class RowStream:
    """A `RowReader` as `facets.backend.Rows`: `run` has a page read elsewhere, `held` is released in the end."""

    def __init__(self, reader: RowReader, run: Run, held: contextlib.AsyncExitStack) -> None:
        self._reader = reader
        self._run = run
        self._held = held
        self._closing: asyncio.Task[None] | None = None
        self.columns: Sequence[str] = reader.columns
        self.total = reader.total
        self.token = reader.token

    async def pages(self) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
        """Yield the hits in pages.

        Raises:
            SnapshotGone: as `RowReader.page` does.
        """
        while page := await self._run(self._reader.page):
            yield page

    async def aclose(self) -> None:
        """Release the snapshot, even if the caller is cancelled; safe to call twice."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="rows: close")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await asyncio.to_thread(self._reader.close)  # it may have to wait for a page
        await self._held.aclose()
