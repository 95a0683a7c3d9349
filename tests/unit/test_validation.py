"""The validator's tolerances and messages, by example."""

import math
from typing import Any

import pytest

from facetline.evaluators import validation
from facetline.evaluators.contract import Evaluated
from facetline.facets import answers, questions
from facetline.facets.errors import InvalidAnswer

TOPIC = questions.choice(ask="?", options={"a": "", "b": "", "c": ""})
LEVEL = questions.score(ask="?", levels=["low", "mid", "high"])
CHOSEN = answers.ChoiceAnswer(choice="a")


def said(choice: str, *probabilities: float) -> dict[str, Any]:
    """Return an answer to TOPIC."""
    return {"q": answers.ChoiceAnswer(choice=choice, probabilities=dict(zip("abc", probabilities, strict=True)))}


def scored(score: float, *probabilities: float) -> dict[str, Any]:
    """Return an answer to LEVEL."""
    return {"q": answers.ScoreAnswer(score=score, probabilities=dict(zip("012", probabilities, strict=True)))}


def test_two_decimals_may_miss_one():
    """Values of two decimals are taken as rounded: 0.99 passes, and so does a choice that rounding put behind."""
    validation.check({"q": TOPIC}, said("a", 0.33, 0.33, 0.33))
    validation.check({"q": TOPIC}, said("b", 0.34, 0.33, 0.33))


def test_finer_values_may_miss_one_by_their_own_rounding_only():
    """Four decimals excuse a gap of four decimals: 0.9999 passes, 0.9998 does not."""
    validation.check({"q": TOPIC}, said("a", 0.3333, 0.3333, 0.3333))

    with pytest.raises(InvalidAnswer, match=r"add up to 0\.9998"):
        validation.check({"q": TOPIC}, said("a", 0.3333, 0.3333, 0.3332))


def test_one_decimal_excuses_no_more_than_two():
    """0.5 and 0.4 are no distribution that somebody rounded to one decimal."""
    with pytest.raises(InvalidAnswer, match=r"add up to 0\.9 "):
        validation.check({"q": TOPIC}, said("a", 0.5, 0.4, 0))


def test_declared_decimals_replace_the_assumption():
    """A model that declares four decimals gets their tolerance, and a coarser gap is refused although it is 0.01."""
    validation.check({"q": TOPIC}, said("a", 0.3333, 0.3333, 0.3333), decimals=4)

    with pytest.raises(InvalidAnswer, match="add up"):
        validation.check({"q": TOPIC}, said("a", 0.33, 0.33, 0.33), decimals=4)


def test_a_rounded_gap_beyond_its_tolerance_is_refused():
    """Three options rounded to two decimals can miss 1 by 0.015, never by 0.02."""
    with pytest.raises(InvalidAnswer, match=r"add up to 1\.02"):
        validation.check({"q": TOPIC}, said("a", 0.34, 0.34, 0.34))


def test_the_likeliest_option_must_be_the_choice():
    """Another option may be ahead by rounding (0.01), not by more."""
    with pytest.raises(InvalidAnswer, match=r"chose 'b' at 0\.33, but another option has 0\.35"):
        validation.check({"q": TOPIC}, said("b", 0.35, 0.33, 0.32))


def test_a_score_is_the_mean_of_its_distribution():
    """A score beside the mean of its own probabilities is refused; rounded ones may move the mean by their part."""
    validation.check({"q": LEVEL}, scored(1.03, 0.33, 0.33, 0.34))
    validation.check({"q": LEVEL}, scored(1.25, 0.25, 0.25, 0.5))

    with pytest.raises(InvalidAnswer, match=r"not the mean of its probabilities, 1\.25"):
        validation.check({"q": LEVEL}, scored(1.75, 0.25, 0.25, 0.5))


@pytest.mark.parametrize("score", [True, "1", math.inf])
def test_a_score_is_a_number(score: Any):
    """True is no 1 and neither is text, although both would compare as one."""
    with pytest.raises(InvalidAnswer, match="the score must be a finite number from 0 to 2"):
        validation.check({"q": LEVEL}, {"q": answers.ScoreAnswer.model_construct(score=score)})


def test_the_message_names_the_question_and_the_options():
    """Who reads the reason learns which question it was and what would have been right."""
    with pytest.raises(InvalidAnswer) as caught:
        validation.check({"topic": TOPIC}, {"topic": answers.ChoiceAnswer(choice="d")})

    assert caught.value.message == "Question 'topic': 'd' is none of its options: 'a', 'b', 'c'."
    assert caught.value.reason == "invalid_answer"


def test_the_message_quotes_little_of_what_the_model_said():
    """A model that answers with the document's text does not get it into a reason at length, nor control characters."""
    with pytest.raises(InvalidAnswer) as caught:
        validation.check({"q": TOPIC}, {"q": CHOSEN.model_copy(update={"choice": "\0\ud800" + "x" * 5000})})

    assert len(caught.value.message) < 200
    assert caught.value.message.isprintable()


def test_ids_that_are_special_elsewhere_are_plain_names():
    """Question ids and option keys such as __proto__ are looked up, never interpreted."""
    topic = questions.choice(ask="?", options={"__proto__": "", "constructor": ""})

    validation.check({"__class__": topic}, {"__class__": answers.ChoiceAnswer(choice="__proto__")})
    with pytest.raises(InvalidAnswer, match="is none of its options"):
        validation.check({"__class__": topic}, {"__class__": answers.ChoiceAnswer(choice="__class__")})


def nested(levels: int) -> Any:
    """Return an object with so many levels."""
    found: Any = 1
    for _ in range(levels):
        found = {"deeper": found}
    return found


def test_a_whole_result_passes():
    """A result with answers, usage, notes and a cost passes."""
    confident = {"q": CHOSEN.model_copy(update={"confidence": 0.5})}

    validation.check_evaluated(
        {"q": TOPIC},
        Evaluated(
            confident,
            "m@1",
            "softmax",
            {"input_tokens": 3},
            0.001,
            {"truncated": True, "path": "C:\\u0000", "deep": nested(7)},
        ),
    )


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("model", ""),
        ("model", "m\0"),
        ("confidence_source", None),
        ("usage", {"tokens": math.nan}),
        ("usage", {"tokens": {1, 2}}),
        ("notes", {"text": "\ud800"}),
        ("notes", {"text": "a\0b"}),
        ("model", 5),
        ("confidence_source", 5),
        ("usage", {1: 2}),
        ("usage", [["tokens", 3]]),
        ("usage", "tokens"),
        ("notes", {"tokens": 10**5_000}),
        ("notes", {"text": "x" * validation.PART_CHARS_MAX}),
        ("notes", nested(validation.DEPTH_MAX + 1)),
        ("notes", nested(5_000)),
        ("cost_usd", -1.0),
        ("cost_usd", math.inf),
        ("cost_usd", 10**400),
    ],
)
def test_a_result_that_cannot_be_stored_is_refused(part: str, value: Any):
    """What JSON or a text column cannot hold is an invalid answer, not a crash of the store."""
    whole = {
        "answers": {"q": CHOSEN.model_copy(update={"confidence": 0.5})},
        "model": "m",
        "confidence_source": "softmax",
        part: value,
    }

    with pytest.raises(InvalidAnswer):
        validation.check_evaluated({"q": TOPIC}, Evaluated(**whole))
