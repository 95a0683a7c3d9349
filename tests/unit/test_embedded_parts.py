"""The pure parts of the embedded evaluator: windows, option texts, similarities, calibration, fit."""

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from facetline.evaluators.embedded import calibration, chunking, similarity
from facetline.evaluators.quality import fit
from facetline.evaluators.quality.fit import Fit, Likened
from facetline.facets import questions


@given(st.integers(0, 400), st.integers(2, 40), st.integers(0, 10), st.integers(1, 9))
def test_windows_cover_a_text_up_to_where_they_say(length: int, size: int, overlap: int, pieces_max: int):
    """Pieces in order, glued together without their overlaps, are the text up to its dropped end; none is empty."""
    overlap = min(overlap, size - 1)
    tokens = list(range(length))

    cut = chunking.cut(tokens, size=size, overlap=overlap, pieces_max=pieces_max)
    glued = [*cut.pieces[0], *(token for piece in cut.pieces[1:] for token in piece[overlap:])]
    assert glued == tokens[: length - cut.dropped]
    assert len(cut.pieces) <= pieces_max
    assert all(len(piece) <= size for piece in cut.pieces)
    assert all(len(piece) > overlap for piece in cut.pieces[1:])
    assert not cut.dropped or len(cut.pieces) == pieces_max


def test_an_option_stands_for_its_key_and_clauses():
    """Key and description whole, each clause alone, and each clause behind the key; punctuation is no clause."""
    texts = similarity.texts_of("card_payment", "A fee, charged twice; a refund. ")

    assert texts.whole == "card payment: A fee, charged twice; a refund. "
    assert texts.clauses == ("A fee", "charged twice", "a refund")
    assert texts.keyed == ("card payment: A fee", "card payment: charged twice", "card payment: a refund")


def test_an_option_without_a_description_is_its_key_and_a_level_has_no_key():
    """What is missing is left away."""
    assert similarity.texts_of("top-up", " . ") == similarity.Texts("top up", ("top up",), ("top up",))
    assert similarity.texts_of("", "calm, polite") == similarity.Texts(
        "calm, polite", ("calm", "polite"), ("calm", "polite")
    )


def test_clauses_are_bounded():
    """A description of a thousand clauses makes 32 texts, and loses none of its words."""
    description = ", ".join(str(number) for number in range(1000))

    clauses = similarity.texts_of("k", description).clauses
    assert len(clauses) == 32
    assert ", ".join(clauses) == description


def test_similarity_is_the_mean_of_whole_and_nearest_clauses_in_the_nearest_window():
    """Worked out by hand for two options, three clauses and two windows."""
    vectors = {
        "a: x, y": [1, 0], "x": [0, 1], "y": [1, 0], "a: x": [0, 1], "a: y": [0, 1],
        "b: z": [0, 1], "z": [0, -1],
    }  # fmt: skip
    options = similarity.embed(
        [similarity.texts_of("a", "x, y"), similarity.texts_of("b", "z")], lambda text: np.float32(vectors[text])
    )

    first, second = np.float32([1, 0]), np.float32([0, 1])
    assert similarity.similarities(options, [first]) == pytest.approx([2 / 3, 0])
    assert similarity.similarities(options, [second]) == pytest.approx([2 / 3, 1 / 3])
    assert similarity.similarities(options, [first, second]) == pytest.approx([2 / 3, 1 / 3])
    assert similarity.similarities(options, [-second]) == pytest.approx([-1 / 3, -1 / 3])


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=20), st.floats(0.001, 10))
def test_softmax_is_a_distribution_in_the_same_order(values: list[float], temperature: float):
    """Probabilities add up to 1 and are ordered as the similarities are, at any temperature."""
    shares = calibration.softmax(values, temperature)

    assert math.fsum(shares) == pytest.approx(1, abs=1e-9)
    order = sorted(range(len(values)), key=values.__getitem__)
    assert all(shares[low] <= shares[high] for low, high in itertools.pairwise(order))


@pytest.mark.parametrize("true_temperature", [0.01, 0.05, 0.3])
def test_the_fit_finds_the_temperature_that_made_the_labels(true_temperature: float):
    """Labels drawn from a softmax give back its temperature, and at it confidence is what it says."""
    rnd = random.Random(7)  # noqa: S311 (a seed, no secret)
    cases = [[rnd.uniform(0, 0.3) for _ in range(5)] for _ in range(1500)]
    labels = [rnd.choices(range(5), calibration.softmax(case, true_temperature))[0] for case in cases]

    found = calibration.fit(cases, labels)
    assert found == pytest.approx(true_temperature, rel=0.25)
    shares = [calibration.softmax(case, found) for case in cases]
    right = [share.index(max(share)) == label for share, label in zip(shares, labels, strict=True)]
    assert calibration.expected_error(calibration.reliability([max(share) for share in shares], right)) < 0.03


def test_the_calibration_error_is_the_weighted_gap():
    """Three answers around 0.95 of which two are right and one at 0.55 that is wrong: (3·0.283 + 1·0.55) / 4."""
    bins = calibration.reliability([0.95, 1.0, 0.9, 0.55], [True, True, False, False])

    assert [(each.at_least, each.answers, each.right) for each in bins] == [(0.5, 1, 0.0), (0.9, 3, 0.667)]
    assert calibration.expected_error(bins) == pytest.approx((3 * (0.95 - 0.667) + 0.55) / 4)


def test_a_fit_needs_labels():
    """No labels, or fewer than texts, is an error instead of a temperature out of nothing."""
    with pytest.raises(ValueError, match="at least one"):
        calibration.fit([], [])
    with pytest.raises(ValueError, match="2 texts and 1 labels"):
        calibration.fit([[0.1, 0.2], [0.1, 0.2]], [0])


def test_the_shipped_calibration_is_whole():
    """It says what it was fitted and measured on, how well it does, and by which command it was made."""
    known = calibration.stored()

    assert known.source == "Banking77"
    assert known.fitted_on + known.measured_on == 10_003
    assert sum(each.answers for each in known.reliability) == known.measured_on
    assert calibration.expected_error(known.reliability) == pytest.approx(known.ece, abs=1e-4)
    assert known.ece < 0.03
    assert known.command.startswith("facetline evaluate")


TOPIC = questions.choice(ask="?", options={"a": "A", "b": "B"})


def likened(near_a: float, near_b: float, label: str) -> list[Likened]:
    """A text with one label."""
    return [Likened("topic", {"b": near_b, "a": near_a}, label)]


def fitted(*texts: list[Likened]) -> Fit:
    """A fit of the one question."""
    return fit.fit(texts, {"topic": TOPIC}, source="some", date="2026-01-02", command="facetline evaluate")


def test_a_fit_measures_what_it_was_not_fitted_on():
    """Every other text is fitted on; the figures are of the others, right or wrong."""
    found = fitted(
        likened(0.9, 0.1, "a"),
        likened(0.1, 0.9, "a"),
        likened(0.2, 0.8, "b"),
        likened(0.9, 0.1, "a"),
        likened(0, 1, "b"),
    )

    known = found.calibration
    assert (known.fitted_on, known.measured_on, known.accuracy) == (3, 2, 0.5)
    assert found.measured["topic"].confusion == {"a": {"a": 1, "b": 1}}
    assert (known.source, known.options, known.date) == ("some", 2, "2026-01-02")


def test_texts_that_are_hard_to_tell_make_a_softer_temperature():
    """Where the nearest option is often wrong, confidences must be lower: the temperature is higher."""
    right = [likened(0.6, 0.5, "a"), likened(0.5, 0.6, "b")] * 10
    wrong = [likened(0.6, 0.5, "b"), likened(0.5, 0.6, "a")] * 5

    assert fitted(*right, *wrong).calibration.temperature > fitted(*right).calibration.temperature


def test_a_fit_needs_two_texts():
    """One to fit on and one to measure on."""
    with pytest.raises(ValueError, match="takes 2 at least"):
        fitted(likened(0.9, 0.1, "a"))
