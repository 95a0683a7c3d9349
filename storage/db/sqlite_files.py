"""The files of a SQLite store: the database and what SQLite keeps beside it, readable by their owner alone."""

import contextlib
import os
from pathlib import Path

import sqlalchemy as sa
import structlog

from facetline.facets import errors, private_files
from facetline.storage.db import sqlite_header

BESIDE = ("-wal", "-shm", "-journal")
"""What SQLite appends to the database's name; it gives these files the database's mode."""

log = structlog.get_logger(__name__)


def path_of(url: str | sa.URL) -> Path | None:
    """Return the file of a SQLite store; None for another database, or one in memory."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "sqlite" or parsed.database in {None, "", ":memory:"}:
        return None
    return Path(str(parsed.database))


def beside(path: Path) -> list[Path]:
    """Return the database's file and those that may stand beside it."""
    return [path, *(path.with_name(path.name + end) for end in BESIDE)]


def prepare(path: Path) -> None:
    """Make the file if absent, for its owner alone, and take other users' rights from what is there.

    What is there is never opened: closing it would give up the locks that this process's own connections hold.

    Raises:
        StoreUnavailable: one of the files is a link, or no regular file.
    """
    try:
        fixed = [each for each in beside(path) if private_files.check_plain(each) and private_files.restrict(each)]
        if not path.exists():
            sqlite_header.forget(path)
        with contextlib.suppress(FileExistsError, FileNotFoundError):  # another process; the folder, reported by SQLite
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, private_files.FILE_MODE))
    except OSError as error:
        raise errors.StoreUnavailable(f"the store at {path} cannot be opened: {error}") from error
    if fixed:
        log.warning("store_made_private", files=[str(each) for each in fixed])
