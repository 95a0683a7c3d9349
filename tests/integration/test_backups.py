"""Backups of a SQLite store: whole while others write, and restored only where nobody has the store open."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stored
from alembic import command
from alembic.config import Config

from facetline.facets import errors
from facetline.storage import backups, counters, credentials
from facetline.storage.db import engine, opening, sqlite_files

HOLDING = """
import asyncio, sys
from facetline.storage.db import opening
from facetline.storage import counters as tallies
async def main():
    store = await opening.open_store(sys.argv[1])
    await store.write(tallies.add, "n", 100)
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await store.close()
asyncio.run(main())
"""


@pytest.fixture
def path(new_sqlite_url: str) -> Path:
    """Where a store is to be."""
    found = sqlite_files.path_of(new_sqlite_url)
    assert found is not None
    return found


async def count(path: Path, *, add: int = 0) -> int:
    """Add to a number in the store and return it."""
    async with stored.opened(f"sqlite:///{path}") as store:
        if add:
            await store.write(counters.add, "n", add)
        return (await store.read(counters.all)).get("n", 0)


@contextlib.contextmanager
def process(path: Path) -> Iterator[Any]:
    """Another process that has added 100 and has the store open."""
    words = [sys.executable, "-c", HOLDING, f"sqlite:///{path}"]
    root = Path(__file__).parents[2]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, cwd=root, text=True, **pipes) as started:
        assert started.stdout.readline() == "open\n"
        try:
            yield started
        finally:
            started.kill()


def beside(path: Path) -> Path:
    """Return where a store's WAL is."""
    return Path(f"{path}-wal")


def wal(path: Path) -> bytes:
    """Return what is in a store's WAL."""
    return beside(path).read_bytes()


def names(folder: Path) -> set[str]:
    """Return what is in a folder, without what SQLite makes and takes away by itself."""
    return {each.name for each in folder.iterdir() if not each.name.endswith(("-wal", "-shm"))}


async def test_a_store_is_restored_as_it_was(path: Path, tmp_path: Path):
    """A restore brings back what the backup had; the store from before is kept whole, and can be gone back to."""
    target = tmp_path / "copy.db"
    await count(path, add=1)
    written = await backups.back_up(path, target)
    await count(path, add=10)

    done = await backups.restore(target, path)
    restored = await count(path)
    assert done.kept is not None
    await backups.restore(done.kept, path)

    assert (restored, await count(path)) == (1, 11)
    assert (written.revision, done.content.store_id) == (opening.REVISIONS[-1], written.store_id)
    assert target.stat().st_mode & 0o777 == 0o600
    assert {each for each in names(path.parent) if "restoring" in each or "part" in each} == set()


async def test_a_backup_is_one_moment_while_others_write(path: Path, tmp_path: Path):
    """Writes that go on all the while neither stop a backup nor get into it by halves."""
    done = asyncio.Event()
    async with stored.opened(f"sqlite:///{path}") as store:
        await store.write(lambda tx: tx.connection.exec_driver_sql("CREATE TABLE filled (a BLOB)"))
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6000)"
        fill = f"{numbers} INSERT INTO filled SELECT randomblob(4000) FROM n"
        await store.write(lambda tx: tx.connection.exec_driver_sql(fill))

        def both(tx: engine.Tx) -> None:
            counters.add(tx, "a", 1)
            counters.add(tx, "b", 1)

        async def writing() -> int:
            written = 0
            while not done.is_set():
                await store.write(both)
                written += 1
            return written

        others = asyncio.create_task(writing())
        seen: list[tuple[int, int]] = []
        await backups.back_up(path, tmp_path / "copy.db", at=lambda *at: seen.append(at))
        done.set()
        written = await others

    async with stored.opened(f"sqlite:///{tmp_path / 'copy.db'}") as copy:
        found = await copy.read(counters.all)
    assert written > 0
    assert found.get("a", 0) == found.get("b", 0) <= written
    assert [done for done, _ in seen] == sorted({done for done, _ in seen}), "it began again"
    assert seen[-1][0] == seen[-1][1]


async def test_a_store_in_use_is_not_restored(path: Path, tmp_path: Path):
    """While a process has the store open a restore is refused and names it; and so is one beside another program."""
    await count(path, add=1)
    await backups.back_up(path, tmp_path / "copy.db")

    with process(path) as holding, pytest.raises(errors.Conflict, match=rf"open in another process .*{holding.pid}"):
        await backups.restore(tmp_path / "copy.db", path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("SELECT * FROM store").fetchall()
        with pytest.raises(errors.Conflict, match="another program"):
            await backups.restore(tmp_path / "copy.db", path)

    assert await count(path) == 101


async def test_a_store_that_is_being_restored_is_not_opened(path: Path):
    """A process that comes during a restore is refused with the reason."""
    await count(path, add=1)
    with backups.store_lock.alone(path), pytest.raises(errors.StoreUnavailable, match="being restored"):
        await count(path)

    assert await count(path) == 1


async def test_an_old_wal_never_mixes_with_a_backup(path: Path, tmp_path: Path):
    """After a process was killed its WAL is still there: a restore has nothing of it, and what was kept has all."""
    await count(path, add=1)
    await backups.back_up(path, tmp_path / "copy.db")
    with process(path) as holding:
        holding.kill()
        holding.wait()
    assert wal(path)

    done = await backups.restore(tmp_path / "copy.db", path)

    assert await count(path) == 1
    assert done.kept is not None
    assert await count(done.kept) == 101


async def test_a_damaged_store_is_replaced_and_kept(path: Path, tmp_path: Path):
    """What cannot be read any more is moved aside as it is, with its WAL, and the backup takes its place."""
    await count(path, add=1)
    await backups.back_up(path, tmp_path / "copy.db")
    damage(path)
    beside(path).write_bytes(b"old")

    done = await backups.restore(tmp_path / "copy.db", path)

    assert await count(path) == 1
    assert done.kept is not None
    assert wal(done.kept) == b"old"


def damage(path: Path, offset: int = 0) -> None:
    """Overwrite pages, from the second one on, or from the header on."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * 12_000)


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("cut off", errors.StoreUnavailable, "damaged"),
        ("damaged inside", errors.StoreUnavailable, "damaged"),
        ("text", errors.StoreMismatch, "not a store"),
        ("empty", errors.StoreMismatch, "not a store"),
        ("another database", errors.StoreMismatch, "not a store"),
        ("newer", errors.StoreMismatch, "upgrade facetline"),
        ("another store", errors.Conflict, "another store"),
        ("missing", errors.NotFound, "cannot be read"),
        ("fifo", errors.NotFound, "a FIFO"),
        ("the store itself", errors.Conflict, "the store itself"),
    ],
)
async def test_what_is_no_backup_changes_nothing(
    path: Path, tmp_path: Path, kind: str, error: type[Exception], message: str
):
    """A backup that cannot be relied on is refused with the reason, and the store stays as it was."""
    copy = tmp_path / "copy.db"
    await count(path, add=1)
    if kind not in {"fifo", "missing"}:
        await backups.back_up(path, copy)
    match kind:
        case "cut off":
            os.truncate(copy, 20_000)
        case "damaged inside":
            damage(copy, 8_192)
        case "text" | "empty":
            copy.write_text("notes" * 1000 if kind == "text" else "")
        case "another database":
            copy.unlink()
            with contextlib.closing(sqlite3.connect(copy)) as other:
                other.execute("CREATE TABLE customers (id INTEGER)")
        case "newer" | "another store":
            change = "alembic_version SET version_num = '9999'" if kind == "newer" else "store SET store_id = 'x'"
            with contextlib.closing(sqlite3.connect(copy)) as other:
                other.execute(f"UPDATE {change}")
                other.commit()
        case "fifo":
            os.mkfifo(copy)
        case "the store itself":
            copy = path
    before = names(path.parent)

    with pytest.raises(error, match=message):
        await backups.restore(copy, path)

    assert await count(path) == 1
    assert names(path.parent) - before <= {f"{path.name}.lock"}


async def test_another_store_is_replaced_only_when_that_is_asked_for(path: Path, tmp_path: Path):
    """With `force` a backup of another store takes its place."""
    await count(tmp_path / "other.db", add=5)
    await backups.back_up(tmp_path / "other.db", tmp_path / "copy.db")
    await count(path, add=1)

    await backups.restore(tmp_path / "copy.db", path, force=True)

    assert await count(path) == 5


async def test_tokens_of_a_backup_are_revoked_before_anyone_can_use_them(path: Path, tmp_path: Path):
    """A restore counts the tokens that are in force again, and revokes them all where that is asked for."""
    async with stored.opened(f"sqlite:///{path}") as store:
        await store.write(credentials.create, "c1", "t1", name="", rights=("read",), scope=None)
    await backups.back_up(path, tmp_path / "copy.db")
    async with stored.opened(f"sqlite:///{path}") as store:
        await store.write(credentials.revoke, "c1")

    plain = await backups.restore(tmp_path / "copy.db", path)
    revoking = await backups.restore(tmp_path / "copy.db", path, revoke_tokens=True)

    assert (plain.content.tokens, plain.revoked) == (1, 0)
    assert (revoking.content.tokens, revoking.revoked) == (0, 1)
    async with stored.opened(f"sqlite:///{path}") as store:
        assert await store.read(credentials.in_force) == ([], True)


async def test_a_backup_of_an_earlier_version_is_brought_up_to_date(path: Path, tmp_path: Path):
    """A backup that was made before an upgrade can be made without one, and is upgraded when it is restored."""
    old = engine.make_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with old.begin() as connection:
        steps = Config(attributes={"connection": connection})
        steps.set_main_option("script_location", str(opening.MIGRATIONS))
        steps.set_main_option("path_separator", "os")
        command.upgrade(steps, opening.REVISIONS[0])
        connection.exec_driver_sql("INSERT INTO store (id, store_id) VALUES (1, 'old')")
    old.dispose()

    written = await backups.back_up(tmp_path / "old.db", tmp_path / "copy.db")
    done = await backups.restore(tmp_path / "copy.db", path)

    assert (written.revision, done.content.revision) == (opening.REVISIONS[0], opening.REVISIONS[-1])
    async with stored.opened(f"sqlite:///{path}") as store:
        assert store.store_id == "old"


@pytest.mark.parametrize("what", ["backup", "restore"])
async def test_an_interrupted_copy_leaves_nothing(path: Path, tmp_path: Path, what: str):
    """Ctrl-C in the middle of a copy leaves store and target as they were, and no file behind."""
    await count(path, add=1)
    copy = tmp_path / "backups" / "copy.db"
    copy.parent.mkdir()
    await backups.back_up(path, copy)
    before = (names(copy.parent), names(path.parent))
    loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[object]]()

    def cancel(_done: int, _all: int) -> None:
        loop.call_soon_threadsafe(tasks[0].cancel)
        while not tasks[0].cancelling():
            pass

    if what == "backup":
        tasks.append(asyncio.create_task(backups.back_up(path, copy, force=True, at=cancel)))
    else:
        tasks.append(asyncio.create_task(backups.restore(copy, path, at=cancel)))
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]

    assert (names(copy.parent), names(path.parent)) == before
    assert await count(path) == await count(copy) == 1


@pytest.mark.parametrize("end", ["", "-wal", "-shm", ".lock"])
async def test_a_backup_never_takes_the_stores_own_place(path: Path, end: str):
    """The store's own files are no target, and an existing one only with `force`."""
    await count(path, add=1)
    with pytest.raises(errors.Conflict, match="the store itself"):
        await backups.back_up(path, Path(f"{path}{end}"), force=True)

    assert await count(path) == 1


async def test_an_existing_backup_is_replaced_only_with_force(path: Path, tmp_path: Path):
    """A file that is there is kept unless it is said; then the new one takes its place."""
    (tmp_path / "copy.db").write_text("precious")
    await count(path, add=1)

    with pytest.raises(errors.Conflict, match="--force"):
        await backups.back_up(path, tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "precious"
    await backups.back_up(path, tmp_path / "copy.db", force=True)

    assert await count(tmp_path / "copy.db") == 1
