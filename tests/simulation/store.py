"""The store as one simulated process has it: the real functions on a real SQLite, with delays, outages and reruns.

All processes share one connection: a transaction runs without interruption, as SQLite's lock would have it. What is
simulated is the time before it and after it, when a process may die or believe that nothing was committed.
"""

import asyncio
import functools
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy import event, pool

from facetline.facets import errors
from facetline.storage.db import engine, opening


class Killed(BaseException):
    """This simulated process is dead."""


class SimTx(engine.Tx):
    """A transaction on simulated time."""

    @functools.cached_property
    def now_ms(self) -> int:
        """The simulated time."""
        return self._clock_shift()


class Host(Protocol):
    """What a store asks of the process that it belongs to."""

    def now_ms(self) -> int:
        """Return the store's time."""

    async def enter(self, name: str, *, writing: bool) -> bool:
        """Wait; raise when dead or cut off; say whether the function is to be rehearsed."""

    async def leave(self, name: str, result: object, *, writing: bool) -> None:
        """Look at what was committed, then wait; raise when dead or cut off."""


class SimStore(engine.Store):
    """One process's store."""

    def __init__(self, shared: sa.Engine, host: Host) -> None:
        super().__init__(shared, clock_shift=host.now_ms)
        self.store_id = "simulated"
        self._host = host

    async def write(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a function in a transaction."""
        name = function.__name__
        if await self._host.enter(name, writing=True):
            self._rehearse(function, *args, **kwargs)
        result = self._once_writing(function, *args, **kwargs)
        await self._host.leave(name, result, writing=True)
        return result

    async def read(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a function over a snapshot."""
        await self._host.enter(function.__name__, writing=False)
        result = self._once_reading(function, *args, **kwargs)
        await self._host.leave(function.__name__, result, writing=False)
        return result

    def _once_writing(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        connection = database().connection
        with connection.begin():
            return function(SimTx(connection, self._clock_shift), *args, **kwargs)

    def _once_reading(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._once_writing(function, *args, **kwargs)

    def _rehearse(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Run a function and undo it: any function may be run twice."""
        connection = database().connection
        transaction = connection.begin()
        try:
            function(SimTx(connection, self._clock_shift), *args, **kwargs)
        finally:
            transaction.rollback()


class Database:
    """One SQLite in memory, brought back to an empty store for each simulation."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_make(f"sqlite:///{Path(folder) / 'empty.sqlite'}"))
            self._empty = sqlite3.connect(":memory:", check_same_thread=False)
            made = sqlite3.connect(Path(folder) / "empty.sqlite")
            made.execute("PRAGMA journal_mode=DELETE")
            made.backup(self._empty)
            made.close()
        self.sqlite = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self.engine = sa.create_engine("sqlite://", creator=lambda: self.sqlite, poolclass=pool.StaticPool)
        event.listen(self.engine, "begin", engine._begin_sqlite)
        self.connection = self.engine.connect()

    def reset(self) -> None:
        """Empty it."""
        self._empty.backup(self.sqlite)

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return what a query finds, past all product code."""
        cursor = self.sqlite.execute(query)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


async def _make(url: str) -> None:
    store = await opening.open_store(url)
    await store.close()


@functools.cache
def database() -> Database:
    """Return this process's database."""
    return Database()


def away() -> errors.StoreUnavailable:
    """Return what a store says that does not answer."""
    return errors.StoreUnavailable("simulated: the store is away")
