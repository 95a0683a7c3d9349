"""The head of a SQLite database, read beside SQLite: whether the file still has the content that it was opened with.

SQLite does not notice that another file's content was copied over a database that it has open, nor that a `-wal`
belongs to another content than the database beside it; it mixes them. Each store, and each copy that `backup` and
`restore` make, therefore has a mark of its own in the header (`user_version`), and the lock's file names the mark that
was last seen at opening.
"""

import os
import secrets
import threading
from pathlib import Path
from typing import NamedTuple

from facetline.facets import errors
from facetline.storage.db import store_lock

MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
MARK_BITS = 31
WRITES, PAGES, MARK = slice(24, 28), slice(28, 32), slice(60, 64)
"""Where the file has its change counter, its size in pages and `user_version`."""
RECORD_BYTES_MAX = 32


class Header(NamedTuple):
    """How often the first page was written, how many pages there are (neither goes back), and the mark; 0 for none."""

    writes: int
    pages: int
    mark: int


class Reader:
    """Reads a database's header; safe to use from several threads.

    Closing a file gives up the locks that SQLite holds on it in this process. So there is one descriptor a file and
    process, which is closed with its last reader.
    """

    _descriptors: dict[tuple[int, int], list[int]] = {}  # noqa: RUF012 (of all readers: descriptor and their number)
    _lock = threading.Lock()

    def __init__(self, path: Path) -> None:
        """Raise OSError when there is no file, or none that can be read."""
        with self._lock:
            found = path.stat()
            self._key = found.st_dev, found.st_ino
            held = self._descriptors.get(self._key)
            if held is None:
                held = self._descriptors[self._key] = [os.open(path, os.O_RDONLY | os.O_CLOEXEC), 0]
            held[1] += 1
            self._descriptor = held[0]

    def read(self) -> Header | None:
        """Return the header, None where there is none."""
        head = os.pread(self._descriptor, HEADER_BYTES, 0)
        if len(head) < HEADER_BYTES or not head.startswith(MAGIC):
            return None
        return Header(*(int.from_bytes(head[each]) for each in (WRITES, PAGES, MARK)))

    def close(self) -> None:
        """Close the file where this is its last reader; when SQLite has it open no more."""
        with self._lock:
            held = self._descriptors[self._key]
            held[1] -= 1
            if not held[1]:
                os.close(held[0])
                del self._descriptors[self._key]


def new_mark() -> int:
    """Return what distinguishes a new store or copy from others."""
    return 1 + secrets.randbelow(2**MARK_BITS - 1)


def is_successor(old: Header, new: Header | None, mark: int | None) -> bool:
    """Say whether a header can be what became of another by SQLite's own writing; `mark` is the store's, if known."""
    if new is None:
        return False
    if (new.writes, new.pages) < (old.writes, old.pages):
        return False
    return new.mark == old.mark or mark is None or (new.mark == mark and old.mark == 0)


def check_before_opening(path: Path) -> None:
    """Look at a store before SQLite does.

    Raises:
        StoreUnavailable: the file was emptied, or has another content than its `-wal` belongs to.
    """
    noted = _noted(path)
    try:
        reader = Reader(path)
    except OSError:
        return  # SQLite says what is wrong
    try:
        found = reader.read()
        is_empty = path.stat().st_size == 0
    finally:
        reader.close()
    if is_empty and noted is not None:
        raise errors.StoreUnavailable(
            f"{path} is empty and was a store before: put a backup back with 'facetline restore', or delete the file "
            "to begin a new store"
        )
    if found is None:
        return
    wal = Path(f"{path}-wal")
    if noted in {None, found.mark}:
        return
    if wal.exists() and wal.stat().st_size:
        raise errors.StoreUnavailable(
            f"{path} was replaced and {wal.name} belongs to the file from before, which SQLite would mix: put the "
            f"backup back with 'facetline restore', or move {wal.name} and {path.name}-shm away"
        )
    _note(path, "")  # replaced as it should be; from now on there may be a WAL of the new one


def note(path: Path, mark: int) -> None:
    """Note the mark of a store that is open, once the database itself has it: until then it stands in the WAL."""
    reader = Reader(path)
    try:
        found = reader.read()
    finally:
        reader.close()
    if found is not None and found.mark == mark and _noted(path) != mark:
        _note(path, str(mark))


def forget(path: Path) -> None:
    """Note that there is no store: what is made at this path is a new one."""
    if _noted(path) is not None:
        _note(path, "")


def _noted(path: Path) -> int | None:
    try:
        text = store_lock.path_of(path).read_text(encoding="ascii")[:RECORD_BYTES_MAX].strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdecimal() else None


def _note(path: Path, text: str) -> None:
    """Write into the lock's file; another process at the same time writes the same."""
    try:
        descriptor = os.open(store_lock.path_of(path), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # no lock can be had there, either
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
