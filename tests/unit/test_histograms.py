"""Histograms: few intervals, of a width that divides exactly, that hold every score."""

import pytest

from facetline.facets.questions import score
from facetline.facets.search import histograms


@pytest.mark.parametrize(
    ("levels", "width", "intervals"), [(2, 0.25, 5), (3, 0.25, 9), (5, 0.25, 17), (6, 0.5, 11), (100, 8, 13)]
)
def test_intervals_are_few(levels: int, width: float, intervals: int) -> None:
    """The width is the finest power of two that gives at most twenty intervals; the highest score is in the last."""
    question = score(ask="?", levels=[f"l{n}" for n in range(levels)])

    found = histograms.histogram(question, {1: 3})

    assert histograms.width(question) == width
    assert len(found) == intervals <= histograms.INTERVALS_MAX
    assert found[-1]["gte"] <= levels - 1 < found[-1]["lt"]
    assert [each["count"] for each in found] == [0, 3, *[0] * (intervals - 2)]


def test_scores_beyond_the_levels_are_shown() -> None:
    """Answers to an older question with more levels lengthen the histogram instead of being left out."""
    found = histograms.histogram(score(ask="?", levels=["low", "high"]), {0: 1, 7: 2, 9: 0})

    assert [each["count"] for each in found] == [1, 0, 0, 0, 0, 0, 0, 2]
