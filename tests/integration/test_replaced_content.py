"""A database whose content was replaced by hand is missed: under a process before it acknowledges, and at opening.

Method: files are overwritten as `cp` does it, into the same inode.
"""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import stored

from facetline.facets import errors
from facetline.storage import backups, counters
from facetline.storage.db import engine, opening, store_lock

ROOT = Path(__file__).parents[2]
REPLACED = "content .* was replaced .*facetline restore"
ROWS = 200
ROW = "x" * 20_000
"""So many of these are several checkpoints of SQLite's."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is to be."""
    return tmp_path / "store.sqlite"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[engine.Store]:
    """The store in use, with a number in it."""
    async with stored.opened(f"sqlite:///{path}") as made:
        await made.write(counters.add, "n", 1)
        yield made


async def number(path: Path) -> int:
    """Open the store and return its number."""
    async with stored.opened(f"sqlite:///{path}") as found:
        return (await found.read(counters.all)).get("n", 0)


def checkpointed(path: Path) -> None:
    """Bring what is in the WAL into the database, as SQLite does by itself every thousand pages."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def grow(tx: engine.Tx) -> None:
    """Add pages."""
    driver = tx.connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    driver.execute("CREATE TABLE IF NOT EXISTS filling (text)")
    driver.execute("INSERT INTO filling VALUES (?)", (ROW,))


def put(path: Path, what: str) -> None:
    """Copy something over the database, into the same file."""
    before = path.stat().st_ino
    if what == "nothing":
        os.truncate(path, 0)
    elif what == "another kind":
        path.write_text("these are notes, not a database; " * 1000)
    else:
        shutil.copyfile(path.with_name(what), path)
    assert path.stat().st_ino == before


@pytest.mark.parametrize("what", ["backup", "copy", "nothing", "another kind", "another store"])
async def test_content_that_is_replaced_under_a_process_takes_no_write(store: engine.Store, path: Path, what: str):
    """A backup, an older copy of the file, another file or nothing, copied over it: no write is acknowledged."""
    checkpointed(path)
    shutil.copyfile(path, path.with_name("copy"))
    await backups.back_up(path, path.with_name("backup"))
    for _ in range(ROWS // 10):
        await store.write(grow)
    checkpointed(path)
    await store.write(counters.add, "n", 1)
    await number(path.with_name("another store"))
    put(path, what)

    for ask in (store.write(counters.add, "n", 1), store.read(counters.all), store.write(counters.add, "n", 1)):
        with pytest.raises(errors.StoreUnavailable, match=REPLACED):
            await ask


async def test_content_that_is_replaced_during_a_write_takes_it_not(store: engine.Store, path: Path):
    """A write that was committed beside another content is not acknowledged."""
    await backups.back_up(path, path.with_name("backup"))

    def write(tx: engine.Tx) -> None:
        counters.add(tx, "n", 1)
        shutil.copyfile(path.with_name("backup"), path)

    with pytest.raises(errors.StoreUnavailable, match=REPLACED):
        await store.write(write)


FILLING = """
import asyncio, sys
sys.path.insert(0, "tests/integration")
import test_replaced_content as tests
asyncio.run(tests.fill(sys.argv[1]))
"""


async def fill(url: str) -> None:
    """Add many rows, and take some away now and then."""
    store = await opening.open_store(url)
    for turn in range(ROWS):
        await store.write(grow)
        if turn % 50 == 49:
            await store.write(lambda tx: tx.connection.exec_driver_sql("DELETE FROM filling WHERE rowid % 3 = 0"))
    await store.close()


def filler(path: Path) -> "subprocess.Popen[bytes]":
    """Start a process that does so."""
    words = [sys.executable, "-c", FILLING, f"sqlite:///{path}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests/helpers")))}
    return subprocess.Popen(words, cwd=ROOT, env=environment, stderr=subprocess.PIPE)


async def test_what_sqlite_writes_by_itself_is_no_replacement(store: engine.Store, path: Path):
    """Processes that grow and empty tables beside each other, with SQLite's checkpoints in between, go on."""
    others = [filler(path) for _ in range(2)]
    added = 0
    while any(each.poll() is None for each in others):
        await store.write(counters.add, "n", 1)
        added += 1
    said = [each.communicate()[1].decode() for each in others]

    assert [each.returncode for each in others] == [0, 0], said
    assert (await store.read(counters.all))["n"] == added + 1


async def test_a_store_that_closes_leaves_the_locks_of_another_in_the_same_process(store: engine.Store, path: Path):
    """The header is read through a descriptor of its own; closing that early would let other programs change the file
    under SQLite.
    """
    await number(path)
    take = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('PRAGMA journal_mode=DELETE')"
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", take, path], capture_output=True, text=True, check=False
    )

    assert "database is locked" in done.stderr
    await store.write(counters.add, "n", 1)


def content(path: Path) -> bytes:
    """Return what is in a file."""
    return path.read_bytes()


def delete(*paths: Path) -> None:
    """Take files away."""
    for path in paths:
        path.unlink()


async def killed_with_a_wal(path: Path) -> None:
    """Leave a store as a killed process does: its last writes stand in the WAL."""
    await number(path)
    work = (
        "import asyncio, os, sys\n"
        "from facetline.storage import counters\n"
        "from facetline.storage.db import opening\n"
        "async def main():\n"
        "    store = await opening.open_store(sys.argv[1])\n"
        "    await store.write(counters.add, 'n', 7)\n"
        "    os._exit(0)\n"
        "asyncio.run(main())\n"
    )
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", work, f"sqlite:///{path}"], cwd=ROOT, check=True)
    assert content(Path(f"{path}-wal"))


async def test_a_backup_beside_an_old_wal_is_not_opened(path: Path):
    """A backup that was copied over the file of a store that was killed: nothing is mixed, and the restore works."""
    await number(path)
    backup = path.with_name("backup")
    await backups.back_up(path, backup)
    await killed_with_a_wal(path)
    shutil.copyfile(backup, path)
    before = content(path)

    for _ in range(2):
        with pytest.raises(errors.StoreUnavailable, match=r"-wal belongs to the file from before.*facetline restore"):
            await number(path)
    with pytest.raises(errors.StoreUnavailable, match="-wal belongs to the file from before"):
        await backups.back_up(path, path.with_name("another"))
    assert content(path) == before
    await backups.restore(backup, path)
    assert await number(path) == 0


async def test_without_the_old_wal_a_backup_that_was_copied_is_opened(path: Path):
    """It is the store from then on, and its own WAL is read after a kill."""
    await number(path)
    await backups.back_up(path, path.with_name("backup"))
    await killed_with_a_wal(path)
    shutil.copyfile(path.with_name("backup"), path)
    delete(*(Path(f"{path}{end}") for end in ("-wal", "-shm")))

    assert await number(path) == 0
    await killed_with_a_wal(path)
    assert await number(path) == 7


async def test_a_new_store_that_was_killed_before_its_first_checkpoint_is_opened(path: Path):
    """Its mark stands in the WAL alone, and that is no other store's."""
    work = (
        "import asyncio, os, sys\n"
        "from facetline.storage.db import opening\n"
        "async def main():\n"
        "    await opening.open_store(sys.argv[1])\n"
        "    os._exit(0)\n"
        "asyncio.run(main())\n"
    )
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", work, f"sqlite:///{path}"], cwd=ROOT, check=True)
    async with stored.opened(f"sqlite:///{path}") as second:
        for _ in range(ROWS):
            await second.write(grow)
        assert await number(path) == 0
    await killed_with_a_wal(path)

    assert await number(path) == 7


async def test_a_store_that_was_emptied_is_not_begun_again(path: Path):
    """An empty file in the place of a store is refused; without it a new store is made."""
    await number(path)
    await number(path)
    os.truncate(path, 0)
    for _ in range(2):
        with pytest.raises(errors.StoreUnavailable, match=r"is empty .*facetline restore.* delete"):
            await number(path)
    assert content(path) == b""
    delete(path)

    assert await number(path) == 0


async def test_an_empty_file_that_never_was_a_store_becomes_one(path: Path):
    """Another process may be making one just now."""
    os.mknod(path)

    assert await number(path) == 0


async def test_a_store_of_an_earlier_version_has_no_mark_and_opens(path: Path):
    """It is noticed all the same when a backup that this version made is copied beside its WAL."""
    await number(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=0")
    connection.close()
    store_lock.path_of(path).write_text("")
    await number(path)
    await backups.back_up(path, path.with_name("backup"))
    await killed_with_a_wal(path)
    assert await number(path) == 7
    await killed_with_a_wal(path)
    shutil.copyfile(path.with_name("backup"), path)

    with pytest.raises(errors.StoreUnavailable, match="-wal belongs to the file from before"):
        await number(path)
