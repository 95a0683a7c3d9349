"""What answers are worth against labels: how often right, how sure, and what a threshold would leave. Pure.

Sources of the methods: interval of a share, Wilson (1927), as recommended by Brown, Cai and DasGupta (2001); expected
calibration error over ten equal bins, Naeini et al. (2015), Guo et al. (2017); Brier (1950); interval of the
difference of two shares of the same texts, Agresti and Min (2005), the Wald interval after half a text is added to each
of the four cells, which keeps its promise for small samples too. All intervals are of 95 %.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from facetline.evaluators.embedded import calibration
from facetline.evaluators.embedded.calibration import Bin
from facetline.facets.answers import Answer, BooleanAnswer, ChoiceAnswer, ScoreAnswer, confidence_of, nearest_level
from facetline.facets.questions import Boolean, Choice, Question, Score

Z = 1.959964
"""The normal quantile of a two-sided interval of 95 %."""
TARGET = 0.95
"""The share of right answers for which a threshold is suggested."""
THRESHOLDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""The rows of the table of coverage."""
STEPS = 100
"""A threshold is suggested in hundredths."""

Label = str | bool | int
"""What is right: an option key, yes or no, or the index of a level."""
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer and what would have been right."""

    label: Label
    answer: Answer


@dataclass(frozen=True, slots=True)
class OptionMeasure:
    """One option: `n` labels, `predicted` answers; of the labels found (recall), of the answers right (precision)."""

    n: int
    predicted: int
    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True, slots=True)
class Coverage:
    """What `min_confidence` leaves: `n` answers, their share of all, and how many of them are right."""

    min_confidence: float
    n: int
    coverage: float
    accuracy: float | None
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Measured:
    """One question's figures over `n` answered texts. `ece` is None without confidences (or, of a boolean, never).

    `confusion`: label → answer → how many. `suggested`: the smallest threshold whose answers are right in `TARGET` of
    the cases. `brier` is of booleans, `mean_absolute_error` (in levels) of scores.
    """

    n: int
    right: int
    accuracy: float | None
    interval: Interval | None
    ece: float | None
    reliability: tuple[Bin, ...]
    options: dict[str, OptionMeasure]
    confusion: dict[str, dict[str, int]]
    coverage: tuple[Coverage, ...]
    suggested: Coverage | None
    brier: float | None = None
    mean_absolute_error: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """How much oftener one is right than the other, over the `n` texts that both answered."""

    n: int
    difference: float | None
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class _Pair:
    label: str
    predicted: str
    confidence: float | None

    @property
    def right(self) -> bool:
        return self.label == self.predicted


def measure(question: Question, judged: Sequence[Judged]) -> Measured:
    """Return a question's figures."""
    pairs = [_pair(question, each) for each in judged]
    right = sum(pair.right for pair in pairs)
    confident = [(pair.confidence, pair.right) for pair in pairs if pair.confidence is not None]
    if isinstance(question, Boolean):  # P(yes) is the answer: it is calibrated when yes comes as often as it says
        confident_yes = [(_probability(each.answer), each.label is True) for each in judged]
        bins = _bins(confident_yes)
    else:
        bins = _bins(confident)
    return Measured(
        n=len(pairs),
        right=right,
        accuracy=_share(right, len(pairs)),
        interval=wilson(right, len(pairs)),
        ece=calibration.expected_error(bins) if bins else None,
        reliability=bins,
        options={name: _option(name, pairs) for name in names(question)},
        confusion=_confusion(question, pairs),
        coverage=tuple(_covered(confident, at, len(pairs)) for at in THRESHOLDS) if confident else (),
        suggested=_suggested(confident, len(pairs)),
        brier=_brier(judged) if isinstance(question, Boolean) else None,
        mean_absolute_error=_mean_absolute_error(judged) if isinstance(question, Score) else None,
    )


def names(question: Question) -> tuple[str, ...]:
    """Return what a question can be answered with, as text."""
    if isinstance(question, Choice):
        return tuple(question.options)
    return question.levels if isinstance(question, Score) else ("true", "false")


def is_right(question: Question, judged: Judged) -> bool:
    """Say whether an answer is what the label says: the option, yes or no at 0.5, the nearest level."""
    return _pair(question, judged).right


def wilson(right: int, n: int) -> Interval | None:
    """Return the interval of the share `right` of `n`; None of nothing."""
    if n == 0:
        return None
    share, z2 = right / n, Z * Z
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    low = 0.0 if right == 0 else middle - half  # rounding leaves 1e-17 where the formula says 0
    high = 1.0 if right == n else middle + half
    return (low, high)


def difference(pairs: Sequence[tuple[bool, bool]]) -> Difference:
    """Compare two evaluators over the same texts; each pair says whether the one and the other were right."""
    n = len(pairs)
    if n == 0:
        return Difference(0, None, None)
    only_one = sum(one and not other for one, other in pairs)
    only_other = sum(other and not one for one, other in pairs)
    first, second, total = only_one + 0.5, only_other + 0.5, n + 2
    middle = (first - second) / total
    half = Z * math.sqrt((first + second) - (first - second) ** 2 / total) / total
    return Difference(n, (only_one - only_other) / n, (max(-1.0, middle - half), min(1.0, middle + half)))


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least `share` of the values do not exceed; None of nothing."""
    listed = sorted(values)
    return listed[max(0, math.ceil(share * len(listed)) - 1)] if listed else None


def _pair(question: Question, judged: Judged) -> _Pair:
    answer = judged.answer
    match question, answer:
        case Choice(), ChoiceAnswer():
            return _Pair(str(judged.label), answer.choice, answer.confidence)
        case Boolean(), BooleanAnswer():
            return _Pair(_yes_no(judged.label is True), _yes_no(answer.yes), confidence_of(answer))
        case Score(), ScoreAnswer():
            level = nearest_level(answer.score, question.levels)
            return _Pair(question.levels[int(judged.label)], level, answer.confidence)
        case _:
            raise ValueError(f"a {question.type} question was answered with {answer.type}")


def _yes_no(value: bool) -> str:
    return "true" if value else "false"


def _probability(answer: Answer) -> float:
    """Return the probability of yes; without one, that of a certain answer."""
    if not isinstance(answer, BooleanAnswer):
        return 0.0
    return float(answer.yes) if answer.probability is None else answer.probability


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _bins(confident: Sequence[tuple[float, bool]]) -> tuple[Bin, ...]:
    return tuple(calibration.reliability([value for value, _ in confident], [right for _, right in confident]))


def _option(name: str, pairs: Sequence[_Pair]) -> OptionMeasure:
    labelled = sum(pair.label == name for pair in pairs)
    found = sum(pair.predicted == name for pair in pairs)
    both = sum(pair.label == name == pair.predicted for pair in pairs)
    f1 = 2 * both / (labelled + found) if labelled + found else None
    return OptionMeasure(labelled, found, _share(both, found), _share(both, labelled), f1)


def _confusion(question: Question, pairs: Sequence[_Pair]) -> dict[str, dict[str, int]]:
    counts = Counter((pair.label, pair.predicted) for pair in pairs)
    known = names(question)
    rows = {label: {given: counts[label, given] for given in known if counts[label, given]} for label in known}
    return {label: row for label, row in rows.items() if row}


def _covered(confident: Sequence[tuple[float, bool]], threshold: float, n: int) -> Coverage:
    left = [right for confidence, right in confident if confidence >= threshold]
    right = sum(left)
    return Coverage(threshold, len(left), len(left) / n, _share(right, len(left)), wilson(right, len(left)))


def _suggested(confident: Sequence[tuple[float, bool]], n: int) -> Coverage | None:
    for step in range(STEPS + 1):
        found = _covered(confident, step / STEPS, n) if confident else None
        if found is not None and found.accuracy is not None and found.accuracy >= TARGET:
            return found
    return None


def _brier(judged: Sequence[Judged]) -> float | None:
    squares = [(_probability(each.answer) - (each.label is True)) ** 2 for each in judged]
    return math.fsum(squares) / len(squares) if squares else None


def _mean_absolute_error(judged: Sequence[Judged]) -> float | None:
    gaps = [abs(each.answer.score - int(each.label)) for each in judged if isinstance(each.answer, ScoreAnswer)]
    return math.fsum(gaps) / len(gaps) if gaps else None
