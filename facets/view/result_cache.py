"""What searches found, remembered as long as nothing changes: many readers ask the same of one moment.

An entry is good for one state of the view, which every batch and every definition moves on; a search of another state
never sees it. Bounded in bytes and in entries; the oldest goes first.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from facetline.facets.view.text_page import TextPage

ENTRIES_MAX = 1_000
BYTES_MAX = 16 * 1024 * 1024
"""Of all entries together, about."""
SHARE = 16
"""No entry takes more than this part of `BYTES_MAX`."""
_ROW_BYTES = 500


@dataclass(frozen=True, slots=True)
class Found:
    """What the statements of one search gave: rows of the page, rows of the numbers, and the token."""

    page: Sequence[tuple[Any, ...]]
    numbers: Sequence[tuple[Any, ...]]
    token: str
    texts: TextPage | None = None

    @property
    def size(self) -> int:
        """How many bytes it takes, about."""
        texts = sum(len(cell) for row in self.page for cell in row if isinstance(cell, str))
        texts += 0 if self.texts is None else self.texts.size
        return 2 * texts + _ROW_BYTES * (len(self.page) + len(self.numbers))


class Sized(Protocol):
    """Says about how many bytes it takes."""

    @property
    def size(self) -> int:
        """How many bytes, about."""
        ...


Kept = TypeVar("Kept", bound=Sized)


class Remembered(Generic[Kept]):
    """What was found in one state of the view. Safe to use from any thread."""

    def __init__(self, *, bytes_max: int = BYTES_MAX, share: int = SHARE) -> None:
        """`share`: no entry takes more than one of so many parts of all."""
        self._bytes_max = bytes_max
        self._entry_max = BYTES_MAX // SHARE if share == SHARE else bytes_max // share
        self._lock = threading.Lock()
        self._state = 0
        self._entries: OrderedDict[Hashable, Kept] = OrderedDict()
        self._bytes = 0

    def find(self, state: int, asked: Hashable) -> Kept | None:
        """Return what was found in this state, None where it is not known."""
        with self._lock:
            return self._entries.get(asked) if state == self._state else None

    def keep(self, state: int, asked: Hashable, found: Kept) -> None:
        """Remember what was found; not what belongs to an older state, nor what is too large."""
        size = found.size
        with self._lock:
            if state < self._state or size > min(self._entry_max, self._bytes_max) or asked in self._entries:
                return
            if state > self._state:
                self._entries.clear()
                self._state, self._bytes = state, 0
            self._entries[asked] = found
            self._bytes += size
            while self._bytes > self._bytes_max or len(self._entries) > ENTRIES_MAX:
                self._bytes -= self._entries.popitem(last=False)[1].size
