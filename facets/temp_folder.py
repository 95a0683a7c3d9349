"""A temporary folder that is removed when it is closed, or by the next one after a crash."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from facetline.facets import private_files

_PREFIX = "view-"
_LOCK = "lock"


class Scratch:
    """A private folder inside `parent`, held by an operating system lock as long as its owner lives."""

    def __init__(self, parent: Path) -> None:
        parent.mkdir(private_files.FOLDER_MODE, parents=True, exist_ok=True)
        _sweep(parent)
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        self._lock: int | None = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Remove the folder; safe to call twice."""
        if self._lock is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def _sweep(parent: Path) -> None:
    """Remove what owners that are gone left behind."""
    for folder in parent.glob(f"{_PREFIX}*"):
        # One without a lock file is just being made by someone else.
        with contextlib.suppress(OSError):
            lock = private_files.open_private(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
