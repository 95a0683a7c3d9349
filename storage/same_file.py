"""Whether the path of a SQLite store still leads to the file that is open.

SQLite goes on with a file that was moved or deleted: what it acknowledged would be found by nobody, and connections
that are made later would open another file, or none.
"""

import os
import threading
from pathlib import Path

from facets import errors


class SameFile:
    """The file that a path led to at the first look; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first: tuple[int, int] | None = None
        self._looking = threading.Lock()

    def check(self) -> None:
        """Look again; the first look finds what all later ones are compared with.

        Raises:
            StoreUnavailable: the path leads to another file now, or to none; it passes when the first one is back.
        """
        try:
            found = os.stat(self._path)  # noqa: PTH116 (once in each transaction: without a Path's detours)
        except OSError as error:
            raise self.gone() from error
        with self._looking:
            if self._first is None:
                self._first = (found.st_dev, found.st_ino)
            if self._first != (found.st_dev, found.st_ino):
                raise errors.StoreUnavailable(
                    f"{self._path} is another file than the one that was opened; stop this process and start it again"
                )

    @property
    def seen(self) -> bool:
        """Whether there was a file at the first look."""
        return self._first is not None

    def gone(self) -> errors.StoreUnavailable:
        """Return what to say when there is no file any more."""
        return errors.StoreUnavailable(
            f"{self._path} was moved or deleted while it was in use; put it back, or start again without it"
        )
