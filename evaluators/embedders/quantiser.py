"""Vectors as they are stored and compared: of length 1, one byte a number and one scale a vector. Pure.

The largest number of a vector becomes 127 or -127, and its scale is what one step is worth. Halves are rounded to the
even neighbour. The same numbers come out on every machine: lengths are computed in double precision, and each step
after that is one IEEE operation.
"""

from typing import TYPE_CHECKING

from facetline.evaluators.embedders.contract import Vectors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Codes = NDArray[np.int8]

STEPS = 127


class NoDirection(ValueError):
    """A vector has a number that is not finite, or nothing but zeros; `row` is its place."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


def normalised(matrix: "Floats") -> "Floats":
    """Return the rows with length 1.

    Raises:
        NoDirection: a row has none.
    """
    import numpy as np

    wide = matrix.astype(np.float64)
    finite = np.isfinite(wide).all(axis=1)
    if not finite.all():
        raise NoDirection(int(np.argmin(finite)), "has a number that is not finite (NaN or infinity)")
    lengths = np.sqrt((wide * wide).sum(axis=1, keepdims=True))  # no square is infinite or zero in double precision
    if not lengths.all():
        raise NoDirection(int(np.argmin(lengths[:, 0] > 0)), "is all zeros")
    rows: Floats = (wide / lengths).astype(np.float32)
    return rows


def quantise(matrix: "Floats") -> "tuple[Codes, Floats]":
    """Return each row's numbers as int8 and its scale: the row is about `codes * scale`.

    Raises:
        NoDirection: a row has none.
    """
    import numpy as np

    rows = normalised(matrix)
    scales = (np.abs(rows).max(axis=1) / np.float32(STEPS)).astype(np.float32)
    codes = np.rint(rows / scales[:, None]).astype(np.int8)
    return codes, scales


def vectors_of(matrix: "Floats") -> Vectors:
    """Return the rows, one text's windows, as they are stored.

    Raises:
        NoDirection: a row has none.
    """
    codes, scales = quantise(matrix)
    return Vectors(codes.shape[1], codes.shape[0], codes.tobytes(), scales.astype("<f4").tobytes())
