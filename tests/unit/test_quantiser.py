"""Quantised vectors: every number is what plain Python makes of it, and what has no direction is refused."""

import math
import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from facetline.evaluators.embedders import quantiser
from facetline.evaluators.embedders.contract import Vectors

FLOAT_MAX, FLOAT_MIN = 3.4028234663852886e38, 1.401298464324817e-45
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
rows = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(finite, min_size=width, max_size=width).filter(any), min_size=1, max_size=4)
)


def float32(value: float) -> float:
    """Round to the nearest number of single precision."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def plain(row: Sequence[float]) -> tuple[list[int], float]:
    """Quantise a row of length 1 in plain Python: `round` goes to the even neighbour."""
    scale = float32(max(map(abs, row)) / 127)
    return [round(float32(value / scale)) for value in row], scale


@given(rows)
def test_codes_and_scales_are_those_of_plain_python(values: list[list[float]]):
    """Each number and each scale, whatever stands in the other rows."""
    matrix = np.array(values, dtype=np.float32)
    codes, scales = quantiser.quantise(matrix)

    unit = quantiser.normalised(matrix).tolist()
    assert [(row, scale) for row, scale in zip(codes.tolist(), scales.tolist(), strict=True)] == [
        plain(row) for row in unit
    ]


@given(rows)
def test_rows_have_length_1_and_their_direction(values: list[list[float]]):
    """Also those of the largest and smallest numbers that there are; the largest of each row becomes 127 or -127."""
    matrix = np.array(values, dtype=np.float32)

    for row, unit in zip(values, quantiser.normalised(matrix).tolist(), strict=True):
        largest = max(map(abs, row))
        scaled = [value / largest for value in row]
        length = math.sqrt(math.fsum(value * value for value in scaled))
        assert unit == pytest.approx([value / length for value in scaled], rel=1e-6, abs=1e-7)
    assert set(np.abs(quantiser.quantise(matrix)[0]).max(axis=1).tolist()) == {127}


def test_halves_go_to_the_even_neighbour():
    """0.5 steps become 0 and 1.5 steps 2, not 1 and 1, nor 1 and 2."""
    row = np.array([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5]], dtype=np.float32)
    row_of_length_1 = quantiser.normalised(row)
    codes, scales = quantiser.quantise(row)

    steps = (row_of_length_1 / scales[:, None]).tolist()[0]
    assert steps[1:3] == pytest.approx([0.5, 1.5], abs=1e-6)
    assert codes.tolist() == [[round(step) for step in steps]]


def test_a_cosine_changes_little():
    """The cosine of two quantised vectors is that of the exact ones to a third of a hundredth."""
    random = np.random.default_rng(7)
    matrix = random.normal(size=(200, 384)).astype(np.float32)
    codes, scales = quantiser.quantise(matrix)
    unit = quantiser.normalised(matrix)

    exact = unit @ unit.T
    about = (codes.astype(np.int32) @ codes.astype(np.int32).T) * scales[:, None] * scales[None, :]
    assert float(np.abs(exact - about).max()) < 0.0033


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([0.0, -0.0, 0.0], "all zeros"),
        ([1.0, math.nan, 0.0], "not finite"),
        ([1.0, math.inf, 0.0], "not finite"),
        ([-math.inf, 1.0, 0.0], "not finite"),
    ],
)
def test_a_row_without_a_direction_is_named(row: list[float], words: str):
    """Nothing is compared with what has no length; the row is the second one."""
    with pytest.raises(quantiser.NoDirection, match=words) as caught:
        quantiser.quantise(np.array([[1.0, 0.0, 0.0], row], dtype=np.float32))

    assert caught.value.row == 1


@pytest.mark.parametrize("row", [[FLOAT_MAX] * 3, [FLOAT_MIN, 0.0, -FLOAT_MIN]])
def test_extreme_numbers_have_a_direction(row: list[float]):
    """Squares of them would be infinite or zero."""
    codes, _ = quantiser.quantise(np.array([row], dtype=np.float32))

    assert codes.tolist() == [[127 if value > 0 else -127 if value < 0 else 0 for value in row]]


def test_what_is_stored_is_bytes_in_order():
    """Numbers row by row, scales as little-endian single precision; the first window stands alone."""
    vectors = quantiser.vectors_of(np.array([[3.0, 4.0], [-1.0, 0.0]], dtype=np.float32))

    assert np.frombuffer(vectors.data, np.int8).tolist() == [95, 127, -127, 0]
    assert struct.unpack("<2f", vectors.scales) == (float32(float32(0.8) / 127), float32(1 / 127))
    assert vectors.first() == Vectors(2, 1, vectors.data[:2], vectors.scales[:4])


@pytest.mark.parametrize(
    ("dimensions", "windows", "data", "scales"),
    [(2, 1, b"ab", b"abc"), (2, 1, b"abc", b"abcd"), (2, 9, b"ab" * 9, b"abcd" * 9), (0, 1, b"", b"abcd")],
)
def test_parts_that_do_not_fit_are_refused(dimensions: int, windows: int, data: bytes, scales: bytes):
    """A damaged row of the store, or 9 windows, is seen where it is read."""
    with pytest.raises(ValueError, match="windows"):
        Vectors(dimensions, windows, data, scales)
