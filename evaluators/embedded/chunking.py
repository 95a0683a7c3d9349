"""Long texts in pieces that a model can take, and how much of them was left out. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound=Sequence[Any])


@dataclass(frozen=True, slots=True)
class Windows(Generic[T]):
    """Overlapping pieces in order; `dropped` counts the tokens (or characters) after the last piece."""

    pieces: tuple[T, ...]
    dropped: int


def cut(tokens: T, *, size: int, overlap: int, pieces_max: int) -> Windows[T]:
    """Cut `tokens` into at most `pieces_max` pieces of `size`, each sharing `overlap` tokens with the one before.

    Every token up to the last piece's end is in a piece; a text that fits, even an empty one, is one piece.
    """
    step = size - overlap
    count = max(1, -(-(len(tokens) - overlap) // step))
    kept = min(count, pieces_max)
    pieces: Any = tuple(tokens[index * step : index * step + size] for index in range(kept))  # a slice is of its kind
    return Windows(pieces, max(0, len(tokens) - ((kept - 1) * step + size)))
