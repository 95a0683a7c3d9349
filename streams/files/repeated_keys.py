"""Notice keys that stand more than once in one file: the last one wins, and each is reported with its lines.

However large the file is, memory is bounded: a hash of 8 bytes and the line of each key are kept in a temporary SQLite
database, of which at most 8 MiB are in memory and the rest is in a file that goes away with the process.
"""

import hashlib
import sqlite3
from collections.abc import Sequence
from typing import Any, Self

LISTED_MAX = 1_000
"""Keys that are listed with their lines; of others the repeats are counted."""
LINES_MAX = 100
"""Lines that are listed of one key."""
CACHE_KIB = 8 * 1024


class RepeatedKeys:
    """The keys of one file, and those among them that came again. Used in a `with`."""

    def __init__(self) -> None:
        self._seen: sqlite3.Connection | None = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._seen.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._seen.execute("CREATE TABLE seen (hash INTEGER PRIMARY KEY, line INTEGER NOT NULL) WITHOUT ROWID")
        self._lines: dict[str, list[int]] = {}
        self.unlisted = 0
        self.complete = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def add(self, keys: Sequence[tuple[str, int]]) -> list[bool]:
        """Take the keys of some rows with their lines, in the order of the file; say which of them are new."""
        new = [True] * len(keys)
        if self._seen is None:
            return new
        try:
            self._seen.execute("BEGIN")
            for place, (key, line) in enumerate(keys):
                hashed = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), signed=True)
                try:
                    self._seen.execute("INSERT INTO seen VALUES (?, ?)", (hashed, line))
                except sqlite3.IntegrityError:
                    (before,) = self._seen.execute("SELECT line FROM seen WHERE hash = ?", (hashed,)).fetchone()
                    new[place] = False
                    self._report(key, before, line)
            self._seen.execute("COMMIT")
        except sqlite3.Error:  # no room for the temporary file: the import is worth more than this report
            self.complete = False
            self._close()
        return new

    def _report(self, key: str, before: int, line: int) -> None:
        if key not in self._lines:
            if len(self._lines) >= LISTED_MAX:
                self.unlisted += 1
                return
            self._lines[key] = [before]
        if len(self._lines[key]) < LINES_MAX:
            self._lines[key].append(line)

    def _close(self) -> None:
        if self._seen is not None:
            self._seen.close()
            self._seen = None

    def listed(self) -> list[dict[str, Any]]:
        """Return the keys that came again as `{"key", "lines"}`, in the order in which they did."""
        return [{"key": key, "lines": lines} for key, lines in self._lines.items()]
