"""Stores that are there already: making a schema takes longer than most tests that need one.

One template of each database is made by the product itself; a copy of it gets an id of its own, as a new store has.
"""

import asyncio
import shutil
import sqlite3
import uuid
from pathlib import Path

import postgres_server
import psycopg

from facetline.storage.db import opening

_NEW_ID = "UPDATE store SET store_id = "


def make(url: str) -> None:
    """Make a store, as the first process does that opens one."""

    async def opened() -> None:
        store = await opening.open_store(url)
        await store.close()

    asyncio.run(opened())


def sqlite_template(path: Path) -> Path:
    """Make a store in one file, to be copied."""
    make(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path


def sqlite_copy(template: Path, path: Path) -> str:
    """Copy a template; return the copy's SQLAlchemy URL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(template, path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"{_NEW_ID}?", [uuid.uuid4().hex])
    connection.close()
    return f"sqlite:///{path}"


def postgres_copy(admin_url: str, template: str, name: str) -> str:
    """Copy a template within its server; return the copy's SQLAlchemy URL."""
    url = postgres_server.create_database(admin_url, name, template)
    with psycopg.connect(postgres_server.libpq(url)) as connection:
        connection.execute(f"{_NEW_ID}%s", [uuid.uuid4().hex])  # type: ignore[arg-type]
    return url
