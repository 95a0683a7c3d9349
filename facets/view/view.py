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
from facetline.facets.text.carried import Carried
from facetline.facets.view import database, line_search, overview, result_cache, text_tables
from facetline.facets.view.compaction import Wear
from facetline.facets.view.lacking_texts import lacking_texts
from facetline.facets.view.result_cache import Found, Remembered
from facetline.facets.view.text_batches import TextBatch, text_batch
from facetline.facets.view.text_index import TextIndex
from facetline.facets.view.text_page import text_page
from facetline.facets.view.text_search import Matches, TextSearch

if TYPE_CHECKING:
    import duckdb

MATCHES_BYTES_MAX = 48 * 1024 * 1024
"""Of remembered matches: the same words with another facet are not looked for again."""
BEST_LOOKED_AT = 2_000
"""Matches, and all that score as the last of them, that are filtered and sorted before all are."""
UNCOMPRESSED_MAX = 100_000
"""Texts that came since the texts were compressed last: 30 MB."""
# One batch of arrays holds at most this many rows; the feed's pages are as long.
BATCH_ROWS_MAX = 5_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Records and what was made of them for DuckDB, by collection, by the definitions of then."""

    records: Sequence[Record] | Sequence[Shown]
    makers: Mapping[str, record_arrays.RowMaker]
    given: Sequence[tuple[str, "record_arrays.Given", TextBatch]]


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
        self._texts: Mapping[str, TextIndex] = {}
        self._uncompressed = 0
        self._position = 0
        self._state = 0  # one for each commit
        self._remembered: Remembered[Found] = Remembered(bytes_max=remembered_bytes)
        self._found_texts: Remembered[Matches] = Remembered(bytes_max=MATCHES_BYTES_MAX, share=1)
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
            made = {name: TextIndex(wanted[name]) for name in changed}
            with self._changing() as cursor, self._changing() as texts:
                for name in dropped:
                    _execute(cursor, [*ddl.drop(self._tables[name]), self._texts[name].tables.drop_dead()])
                    _execute(texts, self._texts[name].tables.drop())
                for name in changed:
                    _execute(cursor, [*ddl.create(wanted[name]), made[name].tables.create_dead()])
                    _execute(texts, made[name].tables.create())
                    self._wear.dropped(name)
                if changed:
                    cursor.execute(ddl.WRITE_POSITION, [0])
                with self._switching:
                    texts.execute("COMMIT")
                    cursor.execute("COMMIT")
                    self._state += 1
                    self._texts = {name: made.get(name) or self._texts[name] for name in wanted}
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
        makers, known = self._makers, self._tables
        given: list[tuple[str, record_arrays.Given, TextBatch]] = []
        for name, found in _by_collection(records).items():
            newest = record_arrays.fold(found) if name in makers else []
            for start in range(0, len(newest), BATCH_ROWS_MAX):
                part = newest[start : start + BATCH_ROWS_MAX]
                given.append((name, makers[name].batch(part), text_batch(part, known[name].definition.text)))
        return Batch(records, makers, given)

    def lacking(self, records: Sequence[Shown]) -> set[str]:
        """Return the uris of those of these records of one collection whose texts are to be read for `apply`."""
        if not records:
            return set()
        with self._snapshot() as (cursor, known, _, _):
            table = known.get(records[0].collection)
            return set() if table is None else lacking_texts(cursor, table, records)

    def take(self, batch: Batch) -> None:
        """Take a batch as `apply` does."""
        if not batch.records:
            return
        with self._writing:
            if batch.makers is not self._makers:  # redefined since
                batch = self.ready(batch.records)
            position = max(self._position, *(record.feed_seq for record in batch.records))
            with self._changing() as cursor, self._changing() as texts:
                written = [
                    (name, *self._upsert(cursor, texts, name, given, found)) for name, given, found in batch.given
                ]
                cursor.execute(ddl.WRITE_POSITION, [position])
                with self._switching:
                    texts.execute("COMMIT")
                    cursor.execute("COMMIT")
                    self._state += 1
                    self._position = position
            for name, changed, size in written:
                self._wear.note(name, written=changed, rows=size)
            self._uncompressed += sum(len(found.bodies) for _, _, found in batch.given)
            self._keep()

    def _upsert(
        self,
        cursor: "duckdb.DuckDBPyConnection",
        texts: "duckdb.DuckDBPyConnection",
        name: str,
        given: "record_arrays.Given",
        found: TextBatch,
    ) -> tuple[int, int]:
        """Write one batch; return how many rows it wrote, and how many there are."""
        index = self._texts[name]
        numbers, lengths = index.take(texts, found)
        cursor.register(ddl.GIVEN, {**given, "doc_text": numbers, "doc_words": lengths})
        before = _numbers(cursor, index)
        [(written,)] = cursor.execute(ddl.upsert(self._tables[name])).fetchall()
        index.note_dead(cursor, before, numbers, _numbers(cursor, index))
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
        for name, index in self._texts.items():
            if index.is_worn() or index.is_unsorted():
                self._rewrite_texts(name, alive=index.is_worn())
        if self._uncompressed > UNCOMPRESSED_MAX:
            self._compress()

    def settle(self) -> None:
        """Put in order what a long way of `take` has left: sort the texts' words, compress them in memory."""
        with self._writing:
            for name, index in self._texts.items():
                if index.is_unsorted(whole=True):
                    self._rewrite_texts(name, alive=False)
            if self._uncompressed > UNCOMPRESSED_MAX // 10:
                self._compress()

    def _rewrite_texts(self, name: str, *, alive: bool) -> None:
        """Sort a collection's words, with `alive` without what is dead: in one moment for readers."""
        index = self._texts[name]
        with self._changing() as texts, self._changing() as cursor:
            index.rewrite(texts, alive=alive)
            if alive:
                cursor.execute(f"DELETE FROM {index.tables.dead}")  # noqa: S608 (a table's own name)
            with self._switching:
                texts.execute("COMMIT")
                cursor.execute("COMMIT")
                self._state += 1
        index.rewritten(alive=alive)
        self._uncompressed = UNCOMPRESSED_MAX + 1  # the new tables are not compressed

    def _compress(self) -> None:
        """Compress the texts in memory; readers go on. Where they hold what was dropped, it is left for later."""
        import duckdb

        with contextlib.suppress(duckdb.TransactionException), contextlib.closing(self._cursor()) as cursor:
            cursor.execute(text_tables.CHECKPOINT)
            self._uncompressed = 0

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
        if found.texts is not None:
            hits = [{**hit, **extra} for hit, extra in zip(hits, found.texts.extras, strict=False)]
        numbers = replies.numbers(query, found.numbers)
        more = len(found.page) > len(shown)
        carried = None if found.texts is None else found.texts.carried
        reply = {
            "keys": [hit["key"] for hit in hits],
            "hits": hits,
            "total": numbers.total,
            "facets": numbers.facets,
            "next_cursor": cursors.encode(query.carried(shown[-1]), carried, query) if more else None,
            "as_of": {"token": found.token, "pending": numbers.pending},
            "took_ms": round((time.perf_counter() - started) * 1000, 1),
        }
        return reply if found.texts is None else {**reply, "search": found.texts.notes}

    def _look_for(self, selection: Selection, asked: str) -> tuple[Query, Found]:
        with self._snapshot() as (cursor, known, position, state):
            query = _query(selection, known)
            after, carried = cursors.decode(query)
            with database.limited(cursor, self._search_s):
                matches = self._matches(cursor, query, carried, state)
                page = _page(cursor, query, after, matches)
                found = Found(
                    page,
                    _fetch(cursor, sql.numbers(query)),
                    self._token(cursor, query, position),
                    None if matches is None else text_page(cursor, query, matches, page),
                )
        self._remembered.keep(state, asked, found)
        return query, found

    def _matches(
        self, cursor: "duckdb.DuckDBPyConnection", query: Query, carried: Carried | None, state: int
    ) -> Matches | None:
        """Find the texts that match, and hand them to the cursor's statements; None where no text is looked for."""
        selection = query.selection
        if not query.by_text:
            return None
        asked = (selection.of_texts, carried)
        matches = self._found_texts.find(state, asked)
        if matches is None:
            matches = TextSearch(cursor, self._texts[selection.collection], selection).find(carried)
            self._found_texts.keep(state, asked, matches)
        cursor.register(sql.MATCHES, matches.arrays)
        return matches

    def reader(self, selection: Selection, *, page_rows: int = PAGE_ROWS, changes_max: int = CHANGES_MAX) -> RowReader:
        """Return a reader of all that a selection finds, of one snapshot; its limit and cursor are of no account.

        The caller closes it. It is closed by the view when `changes_max` changes have passed.

        Raises:
            InvalidQuery: as `search` does.
        """
        with contextlib.ExitStack() as stack:
            cursor, known, position, state = stack.enter_context(self._snapshot())
            query = _query(selection, known)
            token = self._token(cursor, query, position)
            ends = self._wear.changes + changes_max
            held = contextlib.ExitStack()
            with database.limited(cursor, self._search_s):
                self._matches(cursor, query, None, state)
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
        with self._snapshot() as (cursor, known, _, state):
            query = _query(selection, known)
            with database.limited(cursor, self._search_s):
                self._matches(cursor, query, None, state)
                found = _fetch(cursor, sql.uris(query, after=after, limit=limit))
        return [uri for (uri,) in found]

    def grep(self, selection: Selection, *, limit: int, context: int = 0) -> dict[str, Any]:
        """Return the first lines with the selection's pattern, and in how many documents there are such lines.

        Raises:
            InvalidQuery: as `search` does.
        """
        with self._snapshot() as (cursor, known, position, state):
            query = _query(selection, known)
            with database.limited(cursor, self._search_s):
                matches = self._matches(cursor, query, None, state)
                assert matches is not None  # noqa: S101 (there is a pattern)
                assert matches.pattern is not None  # noqa: S101 (as above)
                reply = line_search.lines_with(cursor, query, matches.pattern, limit=limit, context=context)
            return {**reply, "as_of": {"token": self._token(cursor, query, position)}}

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
            with contextlib.suppress(Exception):  # the other one of two may be committed already
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
            # DuckDB takes the snapshot of each catalog at its first read, not at BEGIN.
            [(position,)] = cursor.execute(ddl.READ_POSITION).fetchall()
            cursor.execute(text_tables.TOUCH).fetchall()
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
        and known.definition.text == wanted.definition.text
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
    asked = with_declared(selection, table)
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


def _page(
    cursor: "duckdb.DuckDBPyConnection", query: Query, after: tuple[Any, ...] | None, matches: Matches | None
) -> list[tuple[Any, ...]]:
    """Return a page's rows. Where the best come first, the best of all matches are looked at first: often enough."""
    if matches is not None and sql.best_first(query):
        best = matches.best(BEST_LOOKED_AT, None if after is None else after[0])
        if best is not None:
            cursor.register(sql.MATCHES, best)
            found = _fetch(cursor, sql.page(query, after))
            cursor.register(sql.MATCHES, matches.arrays)
            if len(found) > query.selection.limit:
                return found
    return _fetch(cursor, sql.page(query, after))


def _numbers(cursor: "duckdb.DuckDBPyConnection", index: TextIndex) -> Any:
    """Return the numbers of the texts that the documents of the batch have now."""
    return cursor.execute(index.tables.numbers_of_given()).fetchnumpy()["doc_text"]
