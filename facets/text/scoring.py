"""BM25 in whole numbers: the same scores on every machine, from 0 to 1 in every mode.

`K(d) = sum over the words w of round(10^6 * idf_w * (k1 + 1) / bound * tf / (tf + k1 * (1 - b + b * len / avg)))`;
`bound` is the sum of `idf_w * (k1 + 1)`: the score of a text that holds each word without end. BM25 is Robertson and
Walker's; the fields are weighted in `tf` and `len` (BM25F). `idf = ln((N - df + 0.5) / (df + 0.5) + 1)`, rounded to
millionths, since logarithms may differ in their last digit.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

ONE = 1_000_000
"""A keyword score or a similarity of 1."""
THOUSANDTHS = 1_000
"""Weights are whole thousandths, so a score is a whole number of `ONE * THOUSANDTHS`."""
WHOLE = ONE * THOUSANDTHS
TENTHS = 10
STEM_TENTHS = 8
"""What an occurrence of another word with the same stem counts, in tenths of one of the word itself."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of the texts that a reader can find: how many, their words in all (weighted), and those with each query word."""

    texts: int
    words: int
    with_word: tuple[int, ...]

    @property
    def mean(self) -> float:
        """The mean length of a text, weighted."""
        return max(self.words, 1) / max(self.texts, 1)

    def idf(self, number: int) -> float:
        """Return the inverse document frequency of a query's word."""
        having = min(self.with_word[number], self.texts)
        return round(ONE * math.log((self.texts - having + 0.5) / (having + 0.5) + 1)) / ONE

    def bound(self, k1: float) -> float:
        """Return the highest score that the words can have together, before it is made 1."""
        return math.fsum(self.idf(number) for number in range(len(self.with_word))) * (k1 + 1)


def keyword(
    tenths: "NDArray[np.int64]", length: "NDArray[np.int64]", number: int, statistics: Statistics, k1: float, b: float
) -> "NDArray[np.int64]":
    """Return the part of each text's score that one word gives, in millionths.

    `tenths` are the word's weighted occurrences in tenths, `length` the texts' weighted lengths.
    """
    import numpy as np

    bound = statistics.bound(k1)
    if not bound:
        return np.zeros(len(tenths), np.int64)
    often = tenths / TENTHS
    saturated = often / (often + k1 * (1 - b + b * length / statistics.mean))
    return np.rint(ONE * statistics.idf(number) * (k1 + 1) / bound * saturated).astype(np.int64)


def combined(words: Any, similarity: Any, vector_thousandths: int) -> Any:
    """Return scores of `WHOLE`: keyword scores and similarities, both in millionths, by the vectors' weight."""
    return (THOUSANDTHS - vector_thousandths) * words + vector_thousandths * similarity


def shown(score: int) -> float:
    """Return a score of `WHOLE` as people see it, from 0 to 1."""
    return round(score / WHOLE, 6)


def least(shown_score: float) -> int:
    """Return the least whole score that a `min_score` lets pass."""
    return math.ceil(round(shown_score * WHOLE, 3))


def raw(score: int, statistics: Statistics, k1: float) -> float:
    """Return a keyword score in millionths as the plain sum of BM25."""
    return round(score / ONE * statistics.bound(k1), 6)


RANK_CONSTANT = 60
"""Of reciprocal rank fusion (Cormack, Clarke and Buettcher, 2009)."""


def by_rank(scores: "Sequence[NDArray[np.int64]]") -> "NDArray[np.int64]":
    """Return the sum of 1 / (60 + rank) over the rankings, of `WHOLE`; where a score is 0, the text is not ranked."""
    import numpy as np

    total = np.zeros(len(scores[0]), np.int64)
    for each in scores:
        order = np.argsort(-each, kind="stable")
        rank = np.empty(len(each), np.int64)
        rank[order] = np.arange(1, len(each) + 1)
        total += np.where(each > 0, np.rint(WHOLE / (RANK_CONSTANT + rank)).astype(np.int64), 0)
    return total
