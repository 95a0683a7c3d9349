"""Where SQLite and PostgreSQL differ, and nowhere else: connections, transactions, locks and the clock.

A `Store` runs plain functions, each in exactly one transaction, in threads of its own; the event loop never waits in
a driver. A function gets a `Tx` and must not keep it. Lock conflicts, serialization failures and lost connections run
the whole function again until a deadline; so every function given to `write` is safe to run twice.
"""

import asyncio
import contextlib
import functools
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import sqlalchemy as sa
import structlog
from sqlalchemy import event, exc
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import ConnectionPoolEntry

from facetline.facets import errors, masking
from facetline.storage.db import postgres, sqlite_errors, sqlite_file_guard, sqlite_files
from facetline.storage.db.daemon_threads import DaemonThreads
from facetline.storage.db.models import Row

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=Row)
Dialect = Literal["sqlite", "postgresql"]
Clock = Callable[[], int]
"""Milliseconds to add to the store's clock; zero outside tests."""

RETRY_FIRST_S = 0.02
RETRY_MAX_S = 1.0
SQLITE_BUSY_MS = 10_000
"""How long SQLite waits for another process's write transaction; those last milliseconds."""
SQLITE_STEPS = 10_000
"""Instructions of SQLite's machine between two looks at the clock: about a tenth of a millisecond."""
POOL_SIZE = 8
"""Connections of one process; 12 processes fit PostgreSQL's default of 100."""
HURRY_S = 3.0
"""How long a transaction may take once the process is stopping; the first one that takes longer is the last."""
SILENT_S = 0.5
"""How long each later one may then take."""

log = structlog.get_logger(__name__)


def no_shift() -> int:
    """Leave the store's clock as it is."""
    return 0


class Tx:
    """One open transaction: the connection, the kind of database, and the store's time at first asking."""

    def __init__(self, connection: Connection, clock_shift: Clock) -> None:
        self.connection = connection
        self._clock_shift = clock_shift

    @property
    def dialect(self) -> Dialect:
        """Which database this is."""
        return "sqlite" if self.connection.dialect.name == "sqlite" else "postgresql"

    @functools.cached_property
    def now_ms(self) -> int:
        """The store's clock: the same value all through the transaction."""
        if self.dialect == "sqlite":  # the same machine: its clock is the store's
            return time.time_ns() // 1_000_000 + self._clock_shift()
        clock = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"
        return int(self.connection.execute(sa.text(clock)).scalar_one()) + self._clock_shift()

    def execute(self, statement: sa.Executable, parameters: Any = None) -> sa.CursorResult[Any]:
        """Run one statement."""
        return self.connection.execute(statement, parameters)

    def rows(self, model: type[R], query: sa.Select[Any]) -> list[R]:
        """Return what a query of a whole table finds, as objects of its model."""
        return [model(**row) for row in self.execute(query).mappings()]

    def savepoint(self) -> sa.NestedTransaction:
        """Open a savepoint, to be used in a `with`."""
        return self.connection.begin_nested()

    @contextlib.contextmanager
    def limited(self, limit_s: float) -> Iterator[None]:
        """End what runs inside after `limit_s`, on PostgreSQL each statement: for questions that may be dropped.

        Raises:
            StoreUnavailable: it would have taken longer.
        """
        try:
            with _limited(self, limit_s):
                yield
        except exc.DBAPIError as error:
            if not _was_ended(error):
                raise
            raise errors.StoreUnavailable(f"the store did not answer within {limit_s:g} s") from error

    def among(self, column: sa.ColumnElement[str], values: Sequence[str]) -> sa.ColumnElement[bool]:
        """Say that a text column is one of some hundred values; as one parameter where many would cost the driver."""
        if self.dialect == "sqlite":
            return column.in_(values)
        return column == sa.any_(sa.bindparam(None, list(values), type_=postgresql.ARRAY(sa.Text)))

    def lock_rows(self, statement: sa.Select[Any], *, skip_locked: bool = False) -> sa.Select[Any]:
        """Make a select lock its rows; see `lock_rows`."""
        return lock_rows(self.dialect, statement, skip_locked=skip_locked)


def lock_rows(dialect: Dialect, statement: sa.Select[Any], *, skip_locked: bool = False) -> sa.Select[Any]:
    """Make a select lock its rows; SQLite's write transaction has the whole store already."""
    return statement if dialect == "sqlite" else statement.with_for_update(skip_locked=skip_locked)


@contextlib.contextmanager
def _limited(tx: Tx, limit_s: float) -> Iterator[None]:
    if tx.dialect == "postgresql":  # until the transaction ends
        tx.execute(sa.text(f"SET LOCAL statement_timeout = {round(limit_s * 1000)}"))
        yield
        return
    driver = tx.connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)  # noqa: S101 (what the dialect says)
    deadline = time.monotonic() + limit_s
    driver.set_progress_handler(lambda: time.monotonic() > deadline, SQLITE_STEPS)
    try:
        yield
    finally:
        driver.set_progress_handler(None, 0)


def _was_ended(error: exc.DBAPIError) -> bool:
    if isinstance(error.orig, sqlite3.OperationalError):
        return getattr(error.orig, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT
    return getattr(error.orig, "sqlstate", None) == "57014"  # query_canceled


@dataclass(frozen=True, slots=True)
class Running:
    """A transaction under way: the function's name, and for how many seconds."""

    name: str
    seconds: float


class Store:
    """An open store of record. Made by `storage.db.opening.open_store`."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock_shift: Clock = no_shift,
        deadline_s: float = 30.0,
        patience: postgres.Patience | None = None,
        held: int | None = None,
    ) -> None:
        """Take over the engine, and the lock that says that this process has the store open."""
        self.engine = engine
        self.store_id = ""
        self._clock_shift = clock_shift
        self._deadline_s = deadline_s
        self._patience = patience or postgres.Patience()
        self._threads = DaemonThreads(POOL_SIZE, "store")
        self._running: dict[asyncio.Future[Any], tuple[str, float]] = {}
        self._cut: set[asyncio.Future[Any]] = set()
        self._cutter: asyncio.TimerHandle | None = None
        self.silent = False
        """Whether a transaction was given up because it did not end in time after the process was asked to stop."""
        self._held = held
        self._path = sqlite_files.path_of(engine.url)
        self._file = None if self._path is None else sqlite_file_guard.SameFile(self._path)
        self._writing = asyncio.Lock() if engine.dialect.name == "sqlite" else None

    async def write(self, function: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function` in one transaction and commit.

        Raises:
            StoreUnavailable: the store was busy or away until the deadline, or its disk is full. Nothing was changed,
                unless the connection broke during the commit.
        """
        work = functools.partial(self._write_now, function, *args, **kwargs)
        if self._writing is None:
            return await self._run(_name(function), work)
        async with self._writing:  # one writer at a time: waiting here is fair, SQLite's busy loop is not
            return await self._run(_name(function), work)

    async def read(self, function: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function` over one snapshot; it cannot write.

        Raises:
            StoreUnavailable: the store was away until the deadline.
        """
        return await self._run(_name(function), functools.partial(self._read_now, function, *args, **kwargs))

    @property
    def slowest(self) -> Running | None:
        """The transaction that has been under way for longest, retries and all; None while there is none."""
        if not self._running:
            return None
        name, began_s = min(self._running.values(), key=lambda each: each[1])
        return Running(name, time.monotonic() - began_s)

    def know_file(self, mark: int) -> None:
        """Take the mark of a SQLite store's file, by which another content in its place is noticed."""
        if self._file is not None:
            self._file.know(mark)

    @property
    def hurried(self) -> bool:
        """Whether the process is stopping: nothing waits for a store that is away any longer."""
        return self._patience.hurried_at_s is not None

    def hurry(self) -> None:
        """Bound every transaction from now on, since the process is stopping. May come more than once."""
        if not self.hurried:
            self._patience.hurry(HURRY_S)
            self._cut_late()

    async def close(self) -> None:
        """Close all connections; what still runs in them is given up after `HURRY_S`."""
        self.hurry()
        left = [asyncio.wrap_future(each) for each in self._threads.unfinished]
        if left:
            _, late = await asyncio.wait(left, timeout=HURRY_S)
            if late:
                log.warning("store_given_up", transactions=len(late))
        self._threads.shutdown()
        self.engine.dispose()
        if self._file is not None:
            self._file.close()
        if self._held is not None:
            os.close(self._held)
            self._held = None

    async def _run(self, name: str, work: Callable[[], T]) -> T:
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        self._running[future] = (name, time.monotonic())
        if self.hurried and self._cutter is None:
            self._cut_late()
        try:
            return await future
        except asyncio.CancelledError:
            if future not in self._cut:
                raise
            raise errors.StoreUnavailable(f"the store did not answer, and the process stops: {name} given up") from None
        finally:
            del self._running[future]
            self._cut.discard(future)

    def _cut_late(self) -> None:
        """Give up what takes too long after a stop, whatever its thread is blocked in; look again in a moment."""
        now_s = time.monotonic()
        for future, (name, began_s) in list(self._running.items()):
            if now_s > self._patience.until_s(began_s, HURRY_S) and not future.done():
                log.warning("store_given_up", transaction=name, seconds=round(now_s - began_s, 1))
                self.silent = True
                self._patience.hurried_s = SILENT_S
                self._cut.add(future)
                future.cancel()
        self._cutter = None
        if self._running:
            self._cutter = asyncio.get_running_loop().call_later(SILENT_S / 2, self._cut_late)

    def _write_now(self, function: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._until_deadline(functools.partial(self._once_writing, function, *args, **kwargs))

    def _read_now(self, function: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._until_deadline(functools.partial(self._once_reading, function, *args, **kwargs))

    def _once_writing(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        with self._connected() as connection, connection.begin():
            result = function(Tx(connection, self._clock_shift), *args, **kwargs)
        self._check_files()  # before it is acknowledged: what went into a deleted file is lost
        return result

    def _once_reading(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        with self._connected() as plain:
            connection = plain.execution_options(**_reading(self.engine))
            with connection.begin():
                return function(Tx(connection, self._clock_shift), *args, **kwargs)

    def _connected(self) -> Connection:
        """Return a connection, to be closed by the caller.

        Raises:
            StoreUnavailable: the files that were opened first are not at their paths any more.
        """
        seen = self._file is not None and self._file.seen
        if seen:
            self._check_files()
        connection = self.engine.connect()
        if not seen:
            self._check_files()
        return connection

    def _check_files(self) -> None:
        """Make sure that SQLite's open files are those that the next process will open.

        A WAL that was deleted still has what was acknowledged, as long as this process runs: it is brought into the
        database at once, where the next process finds it.
        """
        if self._file is None:
            return
        try:
            self._file.check()
        except sqlite_file_guard.FilesChanged as error:
            if error.wal_deleted:
                with contextlib.suppress(exc.SQLAlchemyError), self.engine.connect() as connection:
                    connection.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            raise

    def _until_deadline(self, once: Callable[[], T]) -> T:
        began_s = time.monotonic()
        pause_s = RETRY_FIRST_S
        while True:
            try:
                return once()
            except exc.DBAPIError as error:
                if needs_room(error):
                    raise errors.StoreUnavailable(f"the store cannot be written: {error.orig}") from error
                if not is_passing(error):
                    explained = None if self._path is None else sqlite_errors.explained(error, self._path)
                    if explained is not None:
                        raise explained from error
                    raise
                if time.monotonic() + pause_s > self._patience.until_s(began_s, self._deadline_s):
                    raise errors.StoreUnavailable(f"the store did not answer: {error.orig}") from error
                log.info("store_retry", error=str(error.orig))
            time.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 (jitter, no secret)
            pause_s = min(pause_s * 2, RETRY_MAX_S)


def is_passing(error: exc.DBAPIError) -> bool:
    """Say whether the same statement may pass when run again: a lock, a serialization failure, a lost connection."""
    if error.connection_invalidated:
        return True
    original = error.orig
    if isinstance(original, sqlite3.OperationalError):
        return (getattr(original, "sqlite_errorcode", 0) & 0xFF) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
    state = getattr(original, "sqlstate", None)
    if state is None:  # the driver never reached the server
        return isinstance(error, exc.OperationalError)
    # 08 connection, 40 serialization and deadlock, 53 no resources, 25P03 idle in a transaction for too long (this
    # process stood still, or its statement came late), 55P03 lock timeout, 57014 the statement took too long, 57P0x the
    # server stops
    return state[:2] in {"08", "40", "53"} or state in {"25P03", "55P03", "57014", "57P01", "57P02", "57P03"}


def needs_room(error: exc.DBAPIError) -> bool:
    """Say whether SQLite's disk is full or fails: once that is fixed, the same statement passes."""
    original = error.orig
    if not isinstance(original, sqlite3.OperationalError):
        return False
    return (getattr(original, "sqlite_errorcode", 0) & 0xFF) in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}


def is_race(error: Exception) -> bool:
    """Say whether another transaction made the same row first; a new read shows it."""
    return getattr(getattr(error, "orig", None), "sqlstate", None) == "23505"


def is_data_error(error: Exception) -> bool:
    """Say whether the database or its driver refused the values themselves, and would refuse them again.

    Everything else (a full disk, a damaged file, a bug in a statement) blames no row.
    """
    if isinstance(error, UnicodeError | OverflowError):  # the driver could not even encode them
        return True
    if isinstance(error, exc.DataError | exc.IntegrityError):
        return not is_passing(error)
    # 22 data exception, 23 integrity, 54 program limit exceeded (an index entry too long)
    state = getattr(getattr(error, "orig", None), "sqlstate", None) or ""
    return state[:2] in {"22", "23", "54"}


def shown(url: str | sa.URL) -> str:
    """Return a store's URL without its password, wherever in it that stands."""
    return masking.scrubbed(url if isinstance(url, str) else url.render_as_string(hide_password=False))


def make_engine(url: str, patience: postgres.Patience | None = None) -> Engine:
    """Make the engine for a SQLAlchemy URL: `sqlite:///path` or `postgresql+psycopg://…`."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite_engine(parsed)
    return postgres.make_engine(parsed, patience or postgres.Patience(), pool_size=POOL_SIZE)


def _name(function: Callable[..., object]) -> str:
    return getattr(function, "__name__", type(function).__name__).lstrip("_")


def _reading(engine: Engine) -> dict[str, Any]:
    if engine.dialect.name == "sqlite":
        return {"facetline_reading": True}
    return {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}


def _sqlite_engine(url: sa.URL) -> Engine:
    engine = sa.create_engine(
        url,
        pool_size=POOL_SIZE,
        max_overflow=0,
        connect_args={"check_same_thread": False, "timeout": SQLITE_BUSY_MS / 1000},
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # the driver would begin transactions late; `_begin_sqlite` does it
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={SQLITE_BUSY_MS}"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    reading = connection.get_execution_options().get("facetline_reading", False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
