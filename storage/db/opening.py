"""Opening the store: bring its schema up to this version, learn who it is, and say clearly when that cannot be.

Any number of processes may open one store at once, a new one too: the steps run under the store's one write lock
(SQLite) or an advisory lock (PostgreSQL), in one transaction, and a second process finds them done.
"""

import os
import re
import sqlite3
import uuid
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import exc

from facetline.facets import errors
from facetline.storage.db import engine, models, postgres, sqlite_files, sqlite_header, store_lock

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007")
"""Every schema that this version can bring up to date, oldest first; the last one is what it works with.

Kept here so that a command finds an up-to-date store without importing alembic. A test compares it with the files.
"""
MIGRATIONS = Path(__file__).parents[1] / "migrations"
MIGRATION_LOCK = 4_607_182_418
"""Key of PostgreSQL's advisory lock; advisory locks are per database, so any fixed number does."""
POSTGRES_MIN = 15
MIGRATE_S = 3600.0
"""How long one statement of a migration may take, and the wait for another process's migration."""
SQLITE_MIN = (3, 35, 0)
"""The first SQLite with RETURNING."""

_VERSION_TABLE = sa.table("alembic_version", sa.column("version_num", sa.String))
_STORES = models.STORE


async def open_store(
    url: str,
    *,
    clock_shift: engine.Clock = engine.no_shift,
    deadline_s: float = 30.0,
    patience: postgres.Patience | None = None,
) -> engine.Store:
    """Open the store at a SQLAlchemy URL (`sqlite:///path` or `postgresql+psycopg://…`) and bring it up to date.

    The caller closes it. `deadline_s` bounds this call, and the retries of every later transaction of the store;
    `patience` bounds each connection's waits.

    Raises:
        StoreUnavailable: nothing answers there, or the file cannot be opened, is a link, was emptied, or stands beside
            another one's WAL.
        StoreMismatch: it belongs to a newer version, is no store, or its server is too old.
    """
    path = sqlite_files.path_of(url)
    if path is not None:
        sqlite_files.prepare(path)
    patience = patience or postgres.Patience()
    made = engine.make_engine(url, patience)
    held = None
    if path is not None:
        held = store_lock.share(path)
        try:
            sqlite_header.check_before_opening(path)
        except BaseException:
            if held is not None:
                os.close(held)
            raise
    store = engine.Store(made, clock_shift=clock_shift, deadline_s=deadline_s, patience=patience, held=held)
    try:
        current = await store.read(_current_id)
        store.store_id = await store.write(_migrate) if current is None else current
        if path is not None:
            mark = await store.read(_mark)
            store.know_file(mark)
            sqlite_header.note(path, mark)
    except exc.DBAPIError as error:
        await store.close()
        raise _explained(error, store.engine.url) from error
    except BaseException:
        await store.close()
        raise
    return store


def _current_id(tx: engine.Tx) -> str | None:
    _check_server(tx)
    if _revision(tx) != REVISIONS[-1]:
        return None
    return str(tx.execute(sa.select(_STORES.c.store_id)).scalar_one())


def _migrate(tx: engine.Tx) -> str:
    if tx.dialect == "postgresql":
        postgres.take_time(tx.connection, MIGRATE_S)
        tx.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
    revision = _revision(tx)
    if revision is None and _tables(tx):
        raise errors.StoreMismatch(
            f"the database at {engine.shown(tx.connection.engine.url)} holds tables of something else: "
            "give the store one of its own"
        )
    if revision is not None and revision not in REVISIONS:
        raise errors.StoreMismatch(
            f"the store's schema is {revision!r}, this version knows {', '.join(REVISIONS)}: "
            "upgrade facetline, or open another store"
        )
    if revision != REVISIONS[-1]:
        _run_steps(tx)
    if revision is None:
        tx.execute(sa.insert(_STORES), {"id": 1, "store_id": uuid.uuid4().hex})
        if tx.dialect == "sqlite":
            tx.execute(sa.text(f"PRAGMA user_version = {sqlite_header.new_mark()}"))
    return str(tx.execute(sa.select(_STORES.c.store_id)).scalar_one())


def _mark(tx: engine.Tx) -> int:
    return int(tx.execute(sa.text("PRAGMA user_version")).scalar_one())


def _run_steps(tx: engine.Tx) -> None:
    from alembic import command, config

    steps = config.Config(attributes={"connection": tx.connection})
    steps.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    steps.set_main_option("path_separator", "os")
    command.upgrade(steps, REVISIONS[-1])


def _revision(tx: engine.Tx) -> str | None:
    if _VERSION_TABLE.name not in _tables(tx):
        return None
    return tx.execute(sa.select(_VERSION_TABLE.c.version_num)).scalar_one_or_none()


def _tables(tx: engine.Tx) -> list[str]:
    return sa.inspect(tx.connection).get_table_names()


def _check_server(tx: engine.Tx) -> None:
    if tx.dialect == "sqlite":
        if sqlite3.sqlite_version_info < SQLITE_MIN:
            raise errors.StoreMismatch(f"SQLite {sqlite3.sqlite_version} is too old: 3.35 or later is needed")
        return
    version = int(tx.execute(sa.text("SHOW server_version_num")).scalar_one()) // 10_000
    if version < POSTGRES_MIN:
        raise errors.StoreMismatch(f"PostgreSQL {version} is too old: {POSTGRES_MIN} or later is needed")
    encoding = tx.execute(sa.text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":
        raise errors.StoreMismatch(f"the database's encoding is {encoding}: create it with ENCODING 'UTF8'")


def _explained(error: exc.DBAPIError, url: sa.URL) -> errors.PipelineError:
    text = re.sub(r"\s+", " ", str(error.orig)).strip()
    return errors.StoreUnavailable(f"the store at {engine.shown(url)} cannot be opened: {text}")
