"""The view: DuckDB tables kept current from the feed, and the search over them.

The database is private to this object: in memory, or a temporary file that no one else opens. It can be built
again from the feed at any time, so nothing of it is made durable.

Two locks. `_writing` admits one writer. `_switching` is held only for the moments in which what readers see changes,
and in which a reader takes its snapshot: a search never waits for a batch, and its definitions, position and rows
belong together.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from facetline.facets import native_modules, tokens
from facetline.facets.definitions import Definitions
from facetline.facets.documents import Record, Shown
from facetline.facets.errors import UnknownCollection, nearest
from facetline.facets.export import parquet, parquet_sql
from facetline.facets.search import cursors, replies, sql
from facetline.facets.search.conditions import Clause
from facetline.facets.search.row_stream import CHANGES_MAX, PAGE_ROWS, RowReader
from facetline.facets.search.selection import Selection, check_on_table, with_declared
from facetline.facets.search.sql import Query
from facetline.facets.table import ddl, record_arrays, tables
from facetline.facets.table.tables import Table
from facetline.facets.temp_folder import Scratch
from facetline.facets.view import database, overview, result_cache
from facetline.facets.view.compaction import Wear
from facetline.facets.view.result_cache import Found, Remembered

if TYPE_CHECKING:
    import duckdb

# One batch of arrays holds at most this many rows; the feed's pages are as long.
BATCH_ROWS_MAX = 5_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Records and what was made of them for DuckDB, by collection, by the definitions of then."""

    records: Sequence[Record] | Sequence[Shown]
    makers: Mapping[str, record_arrays.RowMaker]
    given: Sequence[tuple[str, "record_arrays.Given"]]


class View:
    """Searches the documents that `apply` was given.

    All methods may be called from any thread at any time. They block: a coroutine calls them through one
    `asyncio.to_thread`.
    """

    def __init__(
        self,
        *,
        folder: Path | None = None,
        store_id: str = "",
        exports: Sequence[Path] = (),
        remembered_bytes: int = result_cache.BYTES_MAX,
        search_s: float = database.SEARCH_S_MAX,
    ) -> None:
        """`exports` are the folders inside of which `export` may write; it can write nowhere else."""
        native_modules.load(*native_modules.VIEW)
        self._store_id = store_id
        self._search_s = search_s
        self._scratch = Scratch(folder) if folder is not None else None
        self._connection = database.open_private(self._scratch, exports)
        self._writing = threading.Lock()
        self._switching = threading.Lock()
        self._tables: Mapping[str, Table] = {}
        self._makers: Mapping[str, record_arrays.RowMaker] = {}
        self._position = 0
        self._state = 0  # one for each commit
        self._remembered = Remembered(bytes_max=remembered_bytes)
        self._wear = Wear()
        self._readers: dict[RowReader, int] = {}

    @property
    def position(self) -> int:
        """The highest `feed_seq` applied; 0 before the first, and again when a table was recreated."""
        return self._position

    @property
    def tables(self) -> Mapping[str, Table]:
        """The tables that are searched, by collection."""
        return self._tables

    @property
    def readers(self) -> int:
        """How many readers hold a snapshot now."""
        return len(self._readers)

    def define(self, definitions: Definitions) -> None:
        """Search these collections from now on.

        Where columns or fingerprint changed the table is recreated, empty; then `position` is 0, and the caller feeds
        the view from the start. What the other tables hold stays.
        """
        with self._writing:
            wanted = {name: tables.table_of(each) for name, each in definitions.by_name.items()}
            changed = [name for name in wanted if not _same(self._tables.get(name), wanted[name])]
            dropped = [name for name in self._tables if name not in wanted or name in changed]
            with self._changing() as cursor:
                for name in dropped:
                    _execute(cursor, ddl.drop(self._tables[name]))
                for name in changed:
                    _execute(cursor, ddl.create(wanted[name]))
                    self._wear.dropped(name)
                if changed:
                    cursor.execute(ddl.WRITE_POSITION, [0])
                with self._switching:
                    cursor.execute("COMMIT")
                    self._state += 1
                    self._tables = wanted
                    self._makers = {name: record_arrays.RowMaker(table) for name, table in wanted.items()}
                    self._position = 0 if changed else self._position

    def apply(self, records: Sequence[Record] | Sequence[Shown]) -> None:
        """Take a batch of the feed, all of it or nothing.

        Records may come again, out of order and several of one uri: what is older than what the view holds changes
        nothing. Deleted documents stay inside, hidden, as guards. Records of collections that are not defined here are
        passed over.
        """
        self.take(self.ready(records))

    def ready(self, records: Sequence[Record] | Sequence[Shown]) -> Batch:
        """Make a batch ready for `take`, while the one before may still be taken: half of the work is done here."""
        makers = self._makers
        given: list[tuple[str, record_arrays.Given]] = []
        for name, found in _by_collection(records).items():
            newest = record_arrays.fold(found) if name in makers else []
            given += [
                (name, makers[name].batch(newest[start : start + BATCH_ROWS_MAX]))
                for start in range(0, len(newest), BATCH_ROWS_MAX)
            ]
        return Batch(records, makers, given)

    def take(self, batch: Batch) -> None:
        """Take a batch as `apply` does."""
        if not batch.records:
            return
        with self._writing:
            if batch.makers is not self._makers:  # redefined since
                batch = self.ready(batch.records)
            position = max(self._position, *(record.feed_seq for record in batch.records))
            with self._changing() as cursor:
                written = [(name, *self._upsert(cursor, name, given)) for name, given in batch.given]
                cursor.execute(ddl.WRITE_POSITION, [position])
                with self._switching:
                    cursor.execute("COMMIT")
                    self._state += 1
                    self._position = position
            for name, changed, size in written:
                self._wear.note(name, written=changed, rows=size)
            self._keep()

    def _upsert(self, cursor: "duckdb.DuckDBPyConnection", name: str, given: "record_arrays.Given") -> tuple[int, int]:
        """Write one batch; return how many rows it wrote, and how many there are."""
        cursor.register(ddl.GIVEN, given)
        [(written,)] = cursor.execute(ddl.upsert(self._tables[name])).fetchall()
        cursor.unregister(ddl.GIVEN)
        [(size,)] = cursor.execute(ddl.size(self._tables[name])).fetchall()
        return written, size

    def _keep(self) -> None:
        """Bound what changes leave behind: take snapshots back from slow readers, rewrite tables that are due."""
        for reader, ends in list(self._readers.items()):
            if self._wear.changes > ends:
                reader.close()
        for name in self._wear.worn():
            with self._changing() as cursor:
                _execute(cursor, ddl.rewrite(self._tables[name]))
                with self._switching:
                    cursor.execute("COMMIT")
                    self._state += 1
            self._wear.renewed(name)

    def search(self, selection: Selection) -> dict[str, Any]:
        """Return a search's reply (docs/search.md) without its links; hits, total and counts are from one snapshot.

        Raises:
            UnknownCollection: the collection is not defined here.
            InvalidCursor: the cursor does not fit.
            InvalidQuery: as `selection.check_selection` does.
            SearchTimeout: it took longer than it may.
        """
        started = time.perf_counter()
        with self._switching:
            known, state = self._tables, self._state
        query = _query(selection, known)
        asked = query.selection.model_dump_json()
        found = self._remembered.find(state, asked)
        if found is None:
            query, found = self._look_for(selection, asked)
        shown = found.page[: selection.limit]
        hits = [replies.hit(row) for row in shown]
        numbers = replies.numbers(query, found.numbers)
        more = len(found.page) > len(shown)
        return {
            "keys": [hit["key"] for hit in hits],
            "hits": hits,
            "total": numbers.total,
            "facets": numbers.facets,
            "next_cursor": cursors.encode(_carried(shown[-1]), query.selection, query.table) if more else None,
            "as_of": {"token": found.token, "pending": numbers.pending},
            "took_ms": round((time.perf_counter() - started) * 1000, 1),
        }

    def _look_for(self, selection: Selection, asked: str) -> tuple[Query, Found]:
        with self._snapshot() as (cursor, known, position, state):
            query = _query(selection, known)
            with database.limited(cursor, self._search_s):
                found = Found(
                    _fetch(cursor, sql.page(query, cursors.decode(query.selection, query.table))),
                    _fetch(cursor, sql.numbers(query)),
                    self._token(cursor, query, position),
                )
        self._remembered.keep(state, asked, found)
        return query, found

    def reader(self, selection: Selection, *, page_rows: int = PAGE_ROWS, changes_max: int = CHANGES_MAX) -> RowReader:
        """Return a reader of all that a selection finds, of one snapshot; its limit and cursor are of no account.

        The caller closes it. It is closed by the view when `changes_max` changes have passed.

        Raises:
            InvalidQuery: as `search` does.
        """
        with contextlib.ExitStack() as stack:
            cursor, known, position, _ = stack.enter_context(self._snapshot())
            query = _query(selection, known)
            token = self._token(cursor, query, position)
            ends = self._wear.changes + changes_max
            held = contextlib.ExitStack()
            with database.limited(cursor, self._search_s):
                reader = RowReader(query, cursor, token, held, page_rows)
            held.push(stack.pop_all())
        self._readers[reader] = ends
        held.callback(self._forget, reader)
        return reader

    def _forget(self, reader: RowReader) -> None:
        self._readers.pop(reader, None)

    def sql_of(self, selection: Selection) -> str:
        """Return the statement that counts what the selection finds, over the tables of `sql`: for people to run.

        Raises:
            InvalidQuery: as `search` does.
        """
        return sql.shown(_query(selection, self._tables))

    def uris(self, selection: Selection, *, after: str = "", limit: int = BATCH_ROWS_MAX) -> list[str]:
        """Return the next `limit` selected uris behind `after`, in order; sort, page and counts are of no account.

        Raises:
            InvalidQuery: as `search` does.
        """
        with self._snapshot() as (cursor, known, _, _):
            found = _fetch(cursor, sql.uris(_query(selection, known), after=after, limit=limit))
        return [uri for (uri,) in found]

    def export(self, folder: Path) -> list[parquet.Wide]:
        """Write `<collection>.parquet` of each collection into an empty folder, all of one snapshot.

        Raises:
            ExportFailed: it cannot be written, or is not inside one of the folders that the view was made with.
        """
        with self._snapshot() as (cursor, known, position, _), parquet.writing(folder):
            return [
                parquet.Wide(table, self._store_id, position, _fetch(cursor, Clause(statement))[0][0])
                for table in known.values()
                for statement in [parquet_sql.wide(table, folder / f"{table.definition.name}.parquet")]
            ]

    def look(self, collection: str, *make: Callable[[Table], Clause]) -> list[list[tuple[Any, ...]]]:
        """Return the rows of each of these statements about a collection's table, all over one snapshot.

        Raises:
            UnknownCollection: the collection is not defined here.
        """
        with self._snapshot() as (cursor, known, _, _):
            table = _known(collection, known)
            return [_fetch(cursor, each(table)) for each in make]

    def _token(self, cursor: "duckdb.DuckDBPyConnection", query: Query, position: int) -> str:
        """Return what a later reader may ask for at least; that of one scope reveals nothing about the others."""
        scope, name = query.selection.scope, query.selection.collection
        if scope is None:
            return tokens.encode(tokens.FeedToken(self._store_id, position))
        [(changes,)] = _fetch(cursor, overview.changes(query.table, scope))
        return tokens.encode(tokens.ScopeToken(self._store_id, name, scope, changes))

    def close(self) -> None:
        """Release the database and remove its file; safe to call twice."""
        for reader in list(self._readers):
            reader.close()
        with self._writing, self._switching:
            self._connection.close()
            if self._scratch is not None:
                self._scratch.close()

    @contextlib.contextmanager
    def _changing(self) -> "Iterator[duckdb.DuckDBPyConnection]":
        """Run a transaction that its user commits; undone if it did not get there."""
        cursor = self._cursor()
        cursor.execute("BEGIN TRANSACTION")
        try:
            yield cursor
        except BaseException:
            cursor.execute("ROLLBACK")
            raise
        finally:
            cursor.close()

    @contextlib.contextmanager
    def _snapshot(self) -> "Iterator[tuple[duckdb.DuckDBPyConnection, Mapping[str, Table], int, int]]":
        """Yield a cursor over one moment, with that moment's tables, position and state."""
        with self._switching:
            cursor = self._connection.cursor()
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            # DuckDB takes the snapshot at the first read, not at BEGIN.
            [(position,)] = cursor.execute(ddl.READ_POSITION).fetchall()
            known, state = self._tables, self._state
        try:
            yield cursor, known, position, state
        finally:
            cursor.execute("ROLLBACK")
            cursor.close()

    def _cursor(self) -> "duckdb.DuckDBPyConnection":
        with self._switching:
            return self._connection.cursor()


def _same(known: Table | None, wanted: Table) -> bool:
    return (
        known is not None
        and known.columns == wanted.columns
        and known.definition.fingerprint == wanted.definition.fingerprint
    )


def _by_collection(records: Sequence[Record] | Sequence[Shown]) -> dict[str, list[Record | Shown]]:
    found: dict[str, list[Record | Shown]] = {}
    for record in records:
        found.setdefault(record.collection, []).append(record)
    return found


def _query(selection: Selection, known: Mapping[str, Table]) -> Query:
    table = _known(selection.collection, known)
    asked = with_declared(selection, table.questions)
    return Query(table, asked, check_on_table(asked, table))


def _known(collection: str, known: Mapping[str, Table]) -> Table:
    table = known.get(collection)
    if table is None:
        hint = nearest(collection[:80], known)
        names = ", ".join(sorted(known)) or "none yet"
        raise UnknownCollection(
            f"there is no collection {collection[:80]!r}{hint}; known: {names}", allowed=sorted(known)
        )
    return table


def _fetch(cursor: "duckdb.DuckDBPyConnection", statement: Clause) -> list[tuple[Any, ...]]:
    return cursor.execute(statement.text, statement.values).fetchall()


def _execute(cursor: "duckdb.DuckDBPyConnection", statements: list[str]) -> None:
    for statement in statements:
        cursor.execute(statement)


def _carried(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*row[len(sql.HIT) :], row[0])
