"""Whether the paths of a SQLite store still lead to the files that are open, and the database has its own content.

SQLite goes on with a file that was moved or deleted: what it acknowledged would be lost, and connections that are made
later would open another file, or none. It also goes on with one that another's content was copied into.
"""

import os
import threading
from pathlib import Path

from facetline.facets import errors
from facetline.storage.db import sqlite_header


class FilesChanged(errors.StoreUnavailable):
    """A file of the store was moved, deleted or replaced while it was in use; `wal_deleted`: the WAL alone, deleted."""

    def __init__(self, message: str, *, wal_deleted: bool = False) -> None:
        super().__init__(message)
        self.wal_deleted = wal_deleted


class SameFile:
    """The files that the paths led to at the first look; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wal = Path(f"{path}-wal")
        self._paths = (path, self._wal, Path(f"{path}-shm"))
        self._first: dict[Path, tuple[int, int]] = {}
        self._looking = threading.Lock()
        self._mark: int | None = None
        self._reader: sqlite_header.Reader | None = None
        self._header: sqlite_header.Header | None = None
        self._written: tuple[int, int] | None = None

    def know(self, mark: int) -> None:
        """Take the store's mark, as SQLite reads it."""
        self._mark = mark

    def close(self) -> None:
        """Close what is read beside SQLite; when SQLite has closed the database."""
        with self._looking:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def check(self) -> None:
        """Look again; the first look at each file finds what all later ones are compared with.

        Raises:
            FilesChanged: a path leads to another file now, or to none, which passes when the first one is back; or
                the database has another content.
        """
        for path in self._paths:  # the database first: when it is gone, that is what to say
            try:
                found = os.stat(path)  # noqa: PTH116 (several in each transaction: without a Path's detours)
                now = (found.st_dev, found.st_ino)
            except FileNotFoundError:
                now = None
            except OSError as error:
                raise self.gone(path) from error
            with self._looking:
                first = self._first.get(path)
                if first is None and now is not None:
                    self._first[path] = now
            if now is None and (first is not None or path is self._path):
                raise self.gone(path)
            if first is not None and now != first:
                raise FilesChanged(
                    f"{path} is another file than the one that was opened; stop this process and start it again"
                )
            if path is self._path:
                self._check_content((found.st_mtime_ns, found.st_size))

    def _check_content(self, written: tuple[int, int]) -> None:
        """Look at the header again where the file was written to since the last look."""
        if written == self._written:
            return
        with self._looking:
            if self._reader is None:
                self._reader = sqlite_header.Reader(self._path)
            for _ in range(2):  # a page that is just being written may be seen half
                found = self._reader.read()
                if self._header is None or sqlite_header.is_successor(self._header, found, self._mark):
                    self._header = found
                    self._written = written
                    return
        raise FilesChanged(
            f"the content of {self._path} was replaced while it was in use; stop every process that uses it, and put "
            "a backup back with 'facetline restore'"
        )

    @property
    def seen(self) -> bool:
        """Whether there was a database at the first look."""
        return self._path in self._first

    def gone(self, path: Path | None = None) -> FilesChanged:
        """Return what to say when there is no file any more."""
        path = path or self._path
        return FilesChanged(
            f"{path} was moved or deleted while it was in use; put it back, or start again without it",
            wal_deleted=path == self._wal,
        )
