"""Histograms of scores: intervals of one width from the lowest score to the highest, each `gte` to below `lt`.

As a filter an interval reads `severity >= 1.0 AND severity < 1.25`; it finds just what was counted.
"""

from collections.abc import Mapping
from typing import Any

from facetline.facets.questions import Score

INTERVALS_MAX = 20
"""As many as can be distinguished in a column of a page."""
_FINEST = 0.25


def width(question: Score) -> float:
    """Return the width of an interval, a power of two: the least with which there are at most `INTERVALS_MAX`."""
    found = _FINEST
    while _last(question, found) >= INTERVALS_MAX:
        found *= 2
    return found


def histogram(question: Score, counts: Mapping[int, int]) -> list[dict[str, Any]]:
    """Return all intervals, zeros too; `counts` are by number, interval n beginning at n widths.

    The last one begins at the highest level or below it. An answer to an older question, with more levels, may lie
    beyond: then there are more.
    """
    step = width(question)
    last = max([_last(question, step), *(number for number, count in counts.items() if count)])
    return [
        {"gte": number * step, "lt": (number + 1) * step, "count": counts.get(number, 0)} for number in range(last + 1)
    ]


def _last(question: Score, step: float) -> int:
    return int((len(question.levels) - 1) // step)
