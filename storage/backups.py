"""Backups of a SQLite store: one whole file while others write; restored when no process has the store open.

Both copy with SQLite's own backup, to a file beside the target that no one reads yet; it is checked, and one rename
makes it the target. A backup is in journal mode DELETE, so that it is one file and can be read from anywhere.
"""

import asyncio
import contextlib
import os
import sqlite3
import threading
import urllib.parse
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from facetline.facets import errors, private_files
from facetline.storage import credentials
from facetline.storage.db import engine, models, opening, sqlite_errors, sqlite_files, sqlite_header, store_lock

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Hears pages done and pages in all, in another thread."""
PAGES = 2_000
"""Copied between two looks at whether to stop: 8 MB."""
STEPS = 100_000
BUSY_S = 1.0

_STORES = models.STORE


@dataclass(frozen=True, slots=True)
class Content:
    """What a backup holds: whose it is, its schema, its documents, and the tokens that are in force in it."""

    store_id: str
    revision: str
    documents: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored, where the store from before is kept (if there was one), and how many tokens were revoked."""

    content: Content
    kept: Path | None
    revoked: int


async def back_up(path: Path, target: Path, *, force: bool = False, at: Progress = lambda _done, _all: None) -> Content:
    """Write a backup of the store at `path`; other processes go on reading and writing.

    Raises:
        NotFound: there is no store, or no folder for the target.
        Conflict: the target exists (and `force` is not given), is the store itself, or is being written by another.
        StoreUnavailable, StoreMismatch: the store is damaged or none, or the target cannot be written.
    """
    _check_target(path, target, force=force)
    held = store_lock.share(path)
    try:
        sqlite_header.check_before_opening(path)
        return await _stoppable(lambda stop: _write(path, target, at, stop))
    finally:
        if held is not None:
            os.close(held)


async def restore(
    backup: Path,
    path: Path,
    *,
    revoke_tokens: bool = False,
    force: bool = False,
    at: Progress = lambda _done, _all: None,
) -> Restored:
    """Put a backup in the place of the store at `path`, which is kept beside it under a dated name.

    Raises:
        Conflict: a process has the store open, or (without `force`) the backup is of another store.
        StoreUnavailable, StoreMismatch, NotFound: the backup is damaged, no store, or not there.
    """
    _check_source(backup, path)
    with store_lock.alone(path):
        own = _make_idle(path)
        draft = path.with_name(f".{path.name}.restoring")
        leftovers = [*sqlite_files.beside(draft), store_lock.path_of(draft)]
        for each in leftovers:  # of one that was killed
            each.unlink(missing_ok=True)
        try:
            await _stoppable(lambda stop: _copy(backup, draft, at, stop))
            content, revoked = await _opened(draft, revoke_tokens=revoke_tokens)
            if own not in {None, content.store_id} and not force:
                raise errors.Conflict(
                    f"{backup} is of another store than {path}; give another --folder, or replace it with --force"
                )
            return Restored(content, _swap(draft, path), revoked)
        finally:
            for each in leftovers:
                each.unlink(missing_ok=True)


def _check_target(path: Path, target: Path, *, force: bool) -> None:
    if not path.exists():
        raise errors.NotFound(f"there is no store at {path}")
    if target.resolve() in {each.resolve() for each in (*sqlite_files.beside(path), store_lock.path_of(path))}:
        raise errors.Conflict(f"{target} is the store itself; name another file")
    if target.exists() and not force:
        raise errors.Conflict(f"{target} exists already; name another file, or replace it with --force")
    if not target.parent.is_dir():
        raise errors.NotFound(f"there is no folder {target.parent}; make it first")


def _check_source(backup: Path, path: Path) -> None:
    try:
        private_files.open_regular(backup).close()
    except OSError as error:
        raise errors.NotFound(f"{backup} cannot be read: {error.strerror}") from error
    if path.exists() and backup.samefile(path):
        raise errors.Conflict(f"{backup} is the store itself; name a backup of it")


async def _stoppable(work: Callable[[threading.Event], T]) -> T:
    """Run work in a thread; a cancellation stops it at its next look and waits until it has cleaned up."""
    stop = threading.Event()
    running = asyncio.create_task(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait({running})
        raise


def _write(path: Path, target: Path, at: Progress, stop: threading.Event) -> Content:
    draft = target.with_name(f".{target.name}.part")
    try:
        with store_lock.alone(draft):
            try:
                draft.unlink(missing_ok=True)
                content = _copy(path, draft, at, stop)
                draft.replace(target)
                _sync(target.parent)
            finally:
                for each in (*sqlite_files.beside(draft), store_lock.path_of(draft)):
                    each.unlink(missing_ok=True)
    except errors.Conflict as error:
        raise errors.Conflict(f"another backup to {target} is being written; wait for it") from error
    except OSError as error:
        raise errors.StoreUnavailable(f"{target} cannot be written: {error.strerror or error}") from error
    return content


def _copy(source: Path, draft: Path, at: Progress, stop: threading.Event) -> Content:
    """Copy a store into a new file, check it whole, and return what it holds."""
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, private_files.FILE_MODE))

    def progress(_status: int, left: int, pages: int) -> None:
        if stop.is_set():
            raise _Stopped
        at(pages - left, pages)

    with _reading(source) as old, _connected(draft) as new:
        old.backup(new, pages=PAGES, progress=progress)
    with _explained(source), _connected(draft) as new:
        new.set_progress_handler(stop.is_set, STEPS)
        new.execute("PRAGMA journal_mode=DELETE")
        new.execute(
            f"PRAGMA user_version={sqlite_header.new_mark()}"
        )  # distinguishes it from the store that it is a copy of
        found = [str(row[0]) for row in new.execute("PRAGMA integrity_check(3)")]
        if found != ["ok"]:
            raise errors.StoreUnavailable(f"{source} is damaged: {'; '.join(found)[:500]}")
        content = _content(new, source)
    _sync(draft)
    return content


class _Stopped(Exception):
    """The copy was cancelled."""


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a store to read, over one snapshot: without it each write of another process would begin the copy again."""
    wal = Path(f"{path}-wal")
    # Without a WAL nothing else can have it open: then it may lie where nothing can be written beside it.
    how = "mode=ro" if wal.exists() or store_lock.path_of(path).exists() else "mode=ro&immutable=1"
    address = f"file:{urllib.parse.quote(str(path.absolute()))}?{how}"
    with _explained(path), contextlib.closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        yield connection


@contextlib.contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)) as connection:
        yield connection


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say what is wrong with a store in one line."""
    try:
        yield
    except sqlite3.Error as error:
        found = sqlite_errors.explained(error, path)
        raise found or errors.StoreUnavailable(f"{path} cannot be copied: {error}") from error


def _content(connection: sqlite3.Connection, source: Path) -> Content:
    """Return what a copy holds; a store of an earlier schema has no tokens."""
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"store", "alembic_version", "documents"} <= names:
        raise errors.StoreMismatch(f"{source} is not a store of Facetline")
    [(store_id,)] = connection.execute("SELECT store_id FROM store").fetchall()
    [(revision,)] = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    if revision not in opening.REVISIONS:
        raise errors.StoreMismatch(f"the schema of {source} is {revision!r}, of a newer version: upgrade facetline")
    [(documents,)] = connection.execute("SELECT count(*) FROM documents WHERE status != 'deleted'").fetchall()
    tokens = 0
    if "credentials" in names:
        [(tokens,)] = connection.execute("SELECT count(*) FROM credentials WHERE revoked_ms IS NULL").fetchall()
    return Content(store_id, revision, documents, tokens)


async def _opened(draft: Path, *, revoke_tokens: bool) -> tuple[Content, int]:
    """Open the copy as a store, which brings its schema up to date; return what it holds and how many were revoked."""
    async with _store(draft) as store:
        revoked = await store.write(credentials.revoke_all) if revoke_tokens else 0
    with _explained(draft), _connected(draft) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        content = _content(connection, draft)
    _sync(draft)
    return content, revoked


@contextlib.asynccontextmanager
async def _store(path: Path) -> AsyncIterator[engine.Store]:
    store = await opening.open_store(f"sqlite:///{path}")
    try:
        yield store
    finally:
        await store.close()


def _make_idle(path: Path) -> str | None:
    """Bring what stands in the WAL into the database, which SQLite does only when no other process has it open.

    Returns the store's id; None where there is no store, or one that cannot be read, which stays as it is.

    Raises:
        Conflict: another program has it open.
    """
    if not path.exists():
        return None
    try:
        with _reading(path) as connection:  # not to write: SQLite deletes the WAL of what is no database
            found = str(connection.execute("SELECT store_id FROM store").fetchone()[0])
    except (errors.PipelineError, TypeError):
        return None
    try:
        with _connected(path) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.DatabaseError as error:
        if (getattr(error, "sqlite_errorcode", 0) & 0xFF) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            raise errors.Conflict(f"another program has {path} open; stop it first") from error
    return found


def _swap(draft: Path, path: Path) -> Path | None:
    """Keep the store at `path` under a dated name, and give its place to the draft; there is one at every moment."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    kept = path.with_name(f"{path.name}.replaced-{stamp}")
    for each in sqlite_files.beside(path)[1:]:  # of a damaged one, or without a database
        with contextlib.suppress(FileNotFoundError):
            each.replace(Path(f"{kept}{each.name.removeprefix(path.name)}"))
    found = path.exists()
    if found:
        kept.unlink(missing_ok=True)
        try:
            kept.hardlink_to(path)
        except OSError:  # a file system without links: for a moment there is no store
            path.replace(kept)
    draft.replace(path)
    _sync(path.parent)
    return kept if found else None


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
