"""Generations: a number and a random mark that say which state of something a process has read, after a restore, too.

The number grows by one with each change, and the mark is drawn again with it, in the same row and statement. A store
that was restored comes to a number once more that stood for something else before, but not with the same mark.
A process that keeps what it has read compares both, and reads again on any difference.
"""

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

MARK_BYTES = 8


class Generation(NamedTuple):
    """A state: how many changes it has had, and what was drawn with the last one ('' before the first)."""

    number: int
    mark: str

    @classmethod
    def of(cls, row: Sequence[Any]) -> "Generation":
        """Return what a row of both columns says."""
        number, mark = row
        return cls(number, mark)

    def next(self) -> "Generation":
        """Return what the next change makes of it."""
        return Generation(self.number + 1, secrets.token_hex(MARK_BYTES))
