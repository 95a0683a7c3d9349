"""PostgreSQL behind a network that falls silent: every wait has a bound, and what was under way happens once.

Method: a real server behind a proxy that takes bytes and delivers none, without ending any connection.
"""

import asyncio
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cutting_proxy
import postgres_server
import psycopg
import pytest
import sqlalchemy as sa
from polling import eventually

from facetline.facets import errors
from facetline.storage.db import engine, opening, postgres
from facetline.storage.db.daemon_threads import DaemonThreads

pytestmark = pytest.mark.postgres
LIMIT_S = 1.0
QUICK_S = 1.5
"""The margin of a client's bound over the server's, in these tests."""
BUSY_S = 8.0
"""What a loaded machine may add."""


@contextmanager
def proxied(url: str) -> Iterator[tuple[cutting_proxy.Proxy, str]]:
    """A proxy before the database of a URL, and the URL by way of it."""
    parsed = sa.make_url(url)
    folder = parsed.query["host"]
    assert isinstance(folder, str)
    with cutting_proxy.before(Path(folder) / ".s.PGSQL.5432") as proxy:
        yield proxy, f"postgresql+psycopg://postgres@127.0.0.1:{proxy.port}/{parsed.database}?sslmode=disable"


async def opened(url: str, deadline_s: float = 20.0) -> engine.Store:
    """Open a store with short bounds."""
    return await opening.open_store(url, deadline_s=deadline_s, patience=postgres.Patience(LIMIT_S, LIMIT_S, QUICK_S))


def table(tx: engine.Tx) -> None:
    """Make a table with one row."""
    tx.execute(sa.text("CREATE TABLE counted (n int)"))
    tx.execute(sa.text("INSERT INTO counted VALUES (0)"))


def one(tx: engine.Tx) -> int:
    """Ask for nothing."""
    return int(tx.execute(sa.text("SELECT 1")).scalar_one())


def set_one(tx: engine.Tx) -> int:
    """Make the count one: safe to run twice, as everything that is given to a store."""
    return int(tx.execute(sa.text("UPDATE counted SET n = 1 RETURNING n")).scalar_one())


@pytest.mark.parametrize("what", ["both", "requests", "answers", "commit", "committed"])
async def test_a_connection_that_falls_silent_is_replaced(postgres_url: str, what: cutting_proxy.Silence):
    """Whatever is swallowed, the transaction is run again on another connection within its bound."""
    with proxied(postgres_url) as (proxy, url):
        store = await opened(url)
        await store.write(table)
        await asyncio.gather(*(store.read(one) for _ in range(4)))  # several are pooled
        proxy.fall_silent(what, 1)
        began = time.monotonic()
        found = await store.write(set_one)
        took_s = time.monotonic() - began

        assert found == 1
        assert proxy.swallowed == 1
        assert took_s < LIMIT_S + QUICK_S + BUSY_S
        await store.close()


async def test_a_server_that_falls_silent_wholly_is_unavailable_in_time(postgres_url: str):
    """Connections that are made while nothing answers end too: the store is unavailable, and back when it is back."""
    with proxied(postgres_url) as (proxy, url):
        store = await opened(url, deadline_s=3.0)
        proxy.fall_silent("both")
        began = time.monotonic()
        with pytest.raises(errors.StoreUnavailable):
            await store.read(one)
        took_s = time.monotonic() - began
        proxy.speak()

        assert took_s < 3.0 + 2 * (LIMIT_S + QUICK_S) + BUSY_S
        assert await store.read(one) == 1
        await store.close()


async def test_opening_a_silent_store_ends(postgres_url: str):
    """A server that accepts and never says a word is unavailable within the deadline."""
    with proxied(postgres_url) as (proxy, url):
        proxy.fall_silent("both")
        began = time.monotonic()
        with pytest.raises(errors.StoreUnavailable):
            await opened(url, deadline_s=2.0)

        assert time.monotonic() - began < 2.0 + LIMIT_S + QUICK_S + BUSY_S


async def test_a_wait_for_a_lock_is_bounded(postgres_url: str):
    """A row that somebody holds for too long makes the store unavailable for that call; the server ends the wait."""
    store = await opened(postgres_url, deadline_s=0.5)
    await store.write(table)
    with psycopg.connect(postgres_server.libpq(postgres_url)) as other:
        other.execute("UPDATE counted SET n = 5")
        with pytest.raises(errors.StoreUnavailable, match="statement timeout"):
            await store.write(set_one)
    assert await store.write(set_one) == 1
    await store.close()


async def test_progress_is_seen_while_a_transaction_waits(postgres_url: str):
    """The store names the transaction that has been under way for longest, and none when nothing is."""
    with proxied(postgres_url) as (proxy, url):
        store = await opened(url)
        await store.write(table)
        assert store.slowest is None
        proxy.fall_silent("both", 1)
        working = asyncio.create_task(store.write(set_one))
        found = await eventually(
            lambda: [each for each in [store.slowest] if each is not None and each.seconds > LIMIT_S / 2],
            deadline_s=BUSY_S,
            what="the transaction is seen to wait",
        )
        await working

        assert found[0].name == "set_one"
        assert store.slowest is None
        await store.close()


@pytest.mark.parametrize(
    ("options", "expected_ms"),
    [("", 1_000), ("&options=-c%20statement_timeout%3D7000", 7_000), ("&options=-c%20statement_timeout%3D400", 400)],
)
async def test_the_users_own_parameters_win(postgres_url: str, options: str, expected_ms: int):
    """A statement limit in the URL is kept, higher or lower, and the client waits longer than the server."""
    store = await opened(postgres_url + ("&" if "?" in postgres_url else "?") + "connect_timeout=3" + options)
    limit = "SELECT setting::int FROM pg_settings WHERE name = 'statement_timeout'"

    def look(tx: engine.Tx) -> tuple[int, float, str]:
        driver = tx.connection.connection.driver_connection
        assert isinstance(driver, postgres.BoundedConnection)
        given = driver.info.get_parameters()
        return tx.execute(sa.text(limit)).scalar_one(), driver.limit_s, given["connect_timeout"]

    server_ms, client_s, connect = await store.read(look)
    assert (server_ms, connect) == (expected_ms, "3")
    assert client_s == expected_ms / 1000 + QUICK_S
    await store.close()


async def test_tcp_ends_connections_of_a_machine_that_is_gone(postgres_url: str):
    """Keepalives and the limit for unacknowledged bytes are set, and the URL's own values win."""
    with proxied(postgres_url) as (_, url):
        found = []
        for more in ("", "&tcp_user_timeout=7000&keepalives_idle=3"):
            store = await opened(url + more)

            def look(tx: engine.Tx) -> tuple[str | None, str | None]:
                driver = tx.connection.connection.driver_connection
                assert isinstance(driver, postgres.BoundedConnection)
                given = driver.info.get_parameters()
                return given.get("tcp_user_timeout"), given.get("keepalives_idle")

            found.append(await store.read(look))
            await store.close()
    assert found == [("20000", "10"), ("7000", "3")]


async def test_a_stop_waits_for_no_silent_connection(postgres_url: str):
    """Told to stop, what is under way is given up after a moment, and closing waits for nothing."""
    with proxied(postgres_url) as (proxy, url):
        store = await opening.open_store(url, patience=postgres.Patience(60.0, 60.0))
        proxy.fall_silent("both")
        working = asyncio.create_task(store.read(one))
        await eventually(lambda: proxy.swallowed > 0, deadline_s=BUSY_S, what="it waits")
        began = time.monotonic()
        store.hurry()
        with pytest.raises(errors.StoreUnavailable):
            await working
        await store.close()

        assert time.monotonic() - began < 2 * engine.HURRY_S + BUSY_S


def test_a_blocked_thread_does_not_hold_the_interpreter():
    """A process ends although one of the store's threads is blocked in a socket."""
    script = """
        import socket, threading
        from facetline.storage.db.daemon_threads import DaemonThreads
        ours, theirs = socket.socketpair()
        started = threading.Event()
        def block():
            started.set()
            ours.recv(1)
        threads = DaemonThreads(2, "store")
        threads.submit(block)
        started.wait()
        threads.shutdown()
        print("ends", flush=True)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == "ends\n"


def test_threads_run_everything_and_pass_errors_on():
    """Work beyond the number of threads waits for one; an error is raised where the result is asked for."""
    threads = DaemonThreads(2, "some")
    gate = threading.Event()
    waiting = [threads.submit(gate.wait, BUSY_S) for _ in range(3)]
    failing = threads.submit(int, "x")
    assert len(threads.unfinished) == 4
    gate.set()
    assert all(each.result(BUSY_S) for each in waiting)
    with pytest.raises(ValueError, match="invalid literal"):
        failing.result(BUSY_S)
    threads.shutdown()
    with pytest.raises(RuntimeError):
        threads.submit(int)
