"""Long texts in pieces that a model can take, and how much of them was left out. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Windows:
    """Overlapping pieces in order; `dropped` counts the tokens after the last piece."""

    pieces: tuple[Sequence[int], ...]
    dropped: int


def cut(tokens: Sequence[int], *, size: int, overlap: int, pieces_max: int) -> Windows:
    """Cut `tokens` into at most `pieces_max` pieces of `size`, each sharing `overlap` tokens with the one before.

    Every token up to the last piece's end is in a piece; a text that fits, even an empty one, is one piece.
    """
    step = size - overlap
    count = max(1, -(-(len(tokens) - overlap) // step))
    kept = min(count, pieces_max)
    pieces = tuple(tokens[index * step : index * step + size] for index in range(kept))
    return Windows(pieces, max(0, len(tokens) - ((kept - 1) * step + size)))
