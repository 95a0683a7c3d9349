"""Who has a SQLite store open: an OS lock beside it, shared by all processes that do, exclusive for a restore.

It stands on a file of its own. Locks on the database itself are SQLite's: closing the file a second time in a process
would give them up.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from facetline.facets import errors, private_files

_HELD = {errno.EWOULDBLOCK, errno.EACCES}


def path_of(path: Path) -> Path:
    """Return the lock's file for a database."""
    return Path(f"{path}.lock")


def share(path: Path) -> int | None:
    """Say that this process has the store open, until the descriptor that is returned is closed.

    None where no lock can be had (a read-only folder, a file system without locks): SQLite says what is wrong there.

    Raises:
        StoreUnavailable: the store is being restored, or the lock's file is a link.
    """
    try:
        return _locked(path, fcntl.LOCK_SH)
    except BlockingIOError as error:
        raise errors.StoreUnavailable(
            f"the store at {path} is being restored by another process; try again when that has ended"
        ) from error


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep every other process of Facetline out while the body runs.

    Raises:
        Conflict: a process has the store open; those that are known are named.
    """
    try:
        descriptor = _locked(path, fcntl.LOCK_EX)
    except BlockingIOError as error:
        found = _holders(path_of(path))
        named = f" (process {', '.join(map(str, found))})" if found else ""
        raise errors.Conflict(f"the store at {path} is open in another process{named}; stop it first") from error
    if descriptor is None:
        raise errors.StoreUnavailable(f"no lock can be had on {path_of(path)}; the folder must be writable")
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(path: Path, kind: int) -> int | None:
    place = path_of(path)
    try:
        descriptor = private_files.open_private(place, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        if error.errno is None:  # a link, a FIFO
            raise errors.StoreUnavailable(f"the store at {path} cannot be opened: {error}") from error
        return None
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in _HELD:
            raise BlockingIOError from error
        return None
    return descriptor


def _holders(place: Path) -> list[int]:
    """Return the processes that hold the lock, as far as the system shows (Linux)."""
    found = set()
    with contextlib.suppress(OSError, ValueError, IndexError):
        inode = place.stat().st_ino
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            _, kind, *_, process, file, _, _ = line.replace("-> ", "").split()
            if kind == "FLOCK" and file.rsplit(":", 1)[-1] == str(inode) and int(process) > 0:
                found.add(int(process))
    return sorted(found)
