"""Transactions of PostgreSQL that stand still: the server ends them after a while, and their work is done again.

Method: the database's own limit, lower than ours, makes the while a short one.
"""

import asyncio
import threading

import postgres_server
import psycopg
import pytest
import sqlalchemy as sa
import stored

from facetline.storage.db import engine, postgres

pytestmark = pytest.mark.postgres
LIMIT_MS = 500
STANDS_S = 15.0
"""How long a transaction waits for somebody who waits for its lock."""


def table(tx: engine.Tx) -> None:
    """Make a table with one row."""
    tx.execute(sa.text("CREATE TABLE counted (n int)"))
    tx.execute(sa.text("INSERT INTO counted VALUES (0)"))


def count(tx: engine.Tx) -> int:
    """Add one."""
    return int(tx.execute(sa.text("UPDATE counted SET n = n + 1 RETURNING n")).scalar_one())


def in_force(tx: engine.Tx) -> int:
    """Return this connection's limit, in milliseconds."""
    query = "SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'"
    return int(tx.execute(sa.text(query)).scalar_one())


async def test_a_transaction_that_stands_still_loses_its_locks_and_is_done_again(postgres_url: str):
    """Whoever waits for its rows goes on; it has changed nothing, and takes place once when it goes on itself."""
    postgres_server.limit_idling(postgres_url, LIMIT_MS)
    stands, others_done = threading.Event(), threading.Event()

    def stand(tx: engine.Tx) -> int:
        counted = count(tx)
        stands.set()
        others_done.wait(STANDS_S)
        return counted

    async with stored.opened(postgres_url) as store:
        await store.write(table)
        standing = asyncio.create_task(store.write(stand))
        await asyncio.to_thread(stands.wait, STANDS_S)
        first = await store.write(count)
        others_done.set()
        second = await standing

    assert (first, second) == (1, 2)


async def test_every_connection_has_a_limit(postgres_url: str):
    """Where the server sets none, or a higher one, transactions have ours; a lower one of the server's is kept."""
    found = []
    for limit_ms in (0, postgres.IDLE_MAX_MS + 1, LIMIT_MS):
        postgres_server.limit_idling(postgres_url, limit_ms)
        async with stored.opened(postgres_url) as store:
            found.append(await store.read(in_force))
            await store.write(in_force)

    assert found == [postgres.IDLE_MAX_MS, postgres.IDLE_MAX_MS, LIMIT_MS]


def test_what_the_server_says_then_is_passing():
    """PostgreSQL's word for it is known, also where the driver does not yet know that the connection is gone."""
    told = psycopg.errors.IdleInTransactionSessionTimeout("terminating connection")

    assert told.sqlstate == "25P03"
    assert engine.is_passing(sa.exc.DBAPIError("SELECT", {}, told))
