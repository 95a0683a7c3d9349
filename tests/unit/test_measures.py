"""Figures about answers: each against numbers worked out by hand or taken from the literature."""

import pytest

from facetline.evaluators.quality import measures
from facetline.evaluators.quality.measures import Judged
from facetline.facets.answers import BooleanAnswer, ChoiceAnswer, ScoreAnswer
from facetline.facets.questions import boolean, choice, score

TOPIC = choice(ask="About?", options={"billing": "Money", "outage": "Down", "other": "Else"})
URGENT = boolean(ask="Today?")
SEVERITY = score(ask="How bad?", levels=["low", "middle", "high"])


def chosen(label: str, predicted: str, confidence: float | None = None) -> Judged:
    """A judged choice."""
    return Judged(label, ChoiceAnswer(choice=predicted, confidence=confidence))


CHOICES = [
    chosen("billing", "billing", 0.95),
    chosen("billing", "billing", 0.85),
    chosen("billing", "outage", 0.45),
    chosen("outage", "outage", 0.95),
]


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_the_published_intervals(right: int, n: int, low: float, high: float):
    """The figures of Newcombe (1998), table 1, method 3; the ends are exact where all or none are right."""
    assert measures.wilson(right, n) == pytest.approx((low, high), abs=6e-5)


def test_wilson_of_nothing_is_nothing():
    """Without texts there is no interval."""
    assert measures.wilson(0, 0) is None


def test_a_choice_is_counted_by_option():
    """Accuracy, recall, precision and F1 by option, and who was taken for whom."""
    found = measures.measure(TOPIC, CHOICES)

    assert (found.n, found.right, found.accuracy) == (4, 3, 0.75)
    billing, outage = found.options["billing"], found.options["outage"]
    assert (billing.n, billing.predicted, billing.precision, billing.recall) == (3, 2, 1.0, pytest.approx(2 / 3))
    assert billing.f1 == pytest.approx(0.8)
    assert (outage.precision, outage.recall) == (0.5, 1.0)
    assert found.options["other"] == measures.OptionMeasure(0, 0, None, None, None)
    assert found.confusion == {"billing": {"billing": 2, "outage": 1}, "outage": {"outage": 1}}


def test_calibration_error_is_the_mean_gap():
    """Four answers in three bins: (2·|0.95-1| + 1·|0.85-1| + 1·|0.45-0|) / 4."""
    assert measures.measure(TOPIC, CHOICES).ece == pytest.approx((2 * 0.05 + 0.15 + 0.45) / 4)


def test_a_threshold_trades_coverage_for_accuracy():
    """Each threshold leaves what is at least so sure, the bound included; the smallest that reaches 95 % is told."""
    found = measures.measure(TOPIC, CHOICES)
    by_threshold = {each.min_confidence: (each.n, each.coverage, each.accuracy) for each in found.coverage}

    assert by_threshold[0.0] == (4, 1.0, 0.75)
    assert by_threshold[0.5] == (3, 0.75, 1.0)
    assert by_threshold[0.95] == (2, 0.5, 1.0)
    assert by_threshold[0.99] == (0, 0.0, None)
    assert found.suggested is not None
    assert (found.suggested.min_confidence, found.suggested.n) == (0.46, 3)


def test_answers_without_a_confidence_pass_no_threshold():
    """As in a search: they are part of the whole, and never of what a threshold leaves."""
    found = measures.measure(TOPIC, [*CHOICES[:3], chosen("outage", "outage")])

    assert (found.coverage[0].n, found.coverage[0].coverage) == (3, 0.75)


def test_without_any_confidence_nothing_is_said_of_it():
    """No calibration error, no table of coverage, no suggestion."""
    found = measures.measure(TOPIC, [chosen("billing", "billing"), chosen("outage", "other")])

    assert (found.ece, found.reliability, found.coverage, found.suggested) == (None, (), (), None)
    assert found.accuracy == 0.5


def test_no_threshold_is_suggested_where_none_is_good_enough():
    """When the surest answers are wrong too, there is nothing to suggest."""
    assert measures.measure(TOPIC, [chosen("billing", "outage", 1.0)]).suggested is None


def test_booleans_are_judged_at_one_half_and_by_brier():
    """0.5 is yes; the Brier score is the mean square of what was missing."""
    judged = [
        Judged(label=True, answer=BooleanAnswer(probability=0.5)),
        Judged(label=False, answer=BooleanAnswer(probability=0.2)),
        Judged(label=True, answer=BooleanAnswer(probability=0.4)),
    ]
    found = measures.measure(URGENT, judged)

    assert (found.right, found.confusion) == (2, {"true": {"true": 1, "false": 1}, "false": {"false": 1}})
    assert found.brier == pytest.approx((0.25 + 0.04 + 0.36) / 3)
    assert found.ece == pytest.approx((abs(0.5 - 1) + abs(0.2 - 0) + abs(0.4 - 1)) / 3)


def test_scores_are_judged_by_level_and_by_distance():
    """The nearest level counts, the lower one on a tie; the error is counted in levels."""
    judged = [Judged(1, ScoreAnswer(score=1.4)), Judged(0, ScoreAnswer(score=0.5)), Judged(2, ScoreAnswer(score=0.0))]
    found = measures.measure(SEVERITY, judged)

    assert found.right == 2
    assert found.mean_absolute_error == pytest.approx((0.4 + 0.5 + 2.0) / 3)
    assert found.confusion == {"low": {"low": 1}, "middle": {"middle": 1}, "high": {"low": 1}}


def test_nothing_judged_gives_no_figures():
    """A question without an answered text has no accuracy, not one of zero."""
    found = measures.measure(TOPIC, [])

    assert (found.n, found.accuracy, found.interval, found.ece) == (0, None, None, None)


def test_a_paired_difference_has_its_interval():
    """53 texts with 16 that only the first and 9 that only the second got: worked out by Agresti and Min's formula."""
    pairs = [(True, True)] * 20 + [(True, False)] * 16 + [(False, True)] * 9 + [(False, False)] * 8
    found = measures.difference(pairs)

    assert (found.n, found.difference) == (53, pytest.approx(7 / 53))
    assert found.interval == pytest.approx((-0.05129, 0.30584), abs=1e-5)


def test_equal_evaluators_differ_by_nothing():
    """Zero lies in the middle of the interval."""
    found = measures.difference([(True, True)] * 5 + [(False, False)] * 5)

    assert found.difference == 0
    assert found.interval is not None
    assert found.interval[0] == -found.interval[1]


@pytest.mark.parametrize(("share", "value"), [(0.5, 2.0), (0.95, 4.0), (0.0, 1.0), (1.0, 4.0)])
def test_a_quantile_is_one_of_the_values(share: float, value: float):
    """The nearest rank, so that no latency is told that never was."""
    assert measures.quantile([4.0, 1.0, 2.0, 3.0], share) == value
