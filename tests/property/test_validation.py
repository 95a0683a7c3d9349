"""Goal: valid answers pass unchanged and no damaged one does.

Method: draw question sets with fitting answers, exact or rounded to two decimals, then damage one answer in one way.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from facetline.evaluators import validation
from facetline.facets import answers, questions
from facetline.facets.errors import InvalidAnswer

SOURCE = "softmax"
CHOSEN = answers.ChoiceAnswer(choice="a")
YES = answers.BooleanAnswer(probability=0.5)
HALF_WAY = answers.ScoreAnswer(score=0.5)

names = st.text("abcdefghij_", min_size=1, max_size=5)
texts = st.text(max_size=10)
fractions = st.floats(0, 1)


def choices():
    """Draw a choice question with 2 to 5 options."""
    return st.dictionaries(names, texts, min_size=2, max_size=5).map(
        lambda found: questions.choice(ask="?", options=found)
    )


def scores():
    """Draw a score question with 2 to 5 levels."""
    return st.lists(texts, min_size=2, max_size=5).map(lambda found: questions.score(ask="?", levels=found))


any_question = st.one_of(choices(), scores(), st.just(questions.boolean(ask="?")))


@st.composite
def distributions(draw: st.DrawFn, keys: list[str]) -> dict[str, float]:
    """Draw probabilities over `keys` that add up to 1, exact or rounded to two decimals."""
    weights = draw(st.lists(st.integers(0, 1000), min_size=len(keys), max_size=len(keys)).filter(any))
    exact = {key: weight / sum(weights) for key, weight in zip(keys, weights, strict=True)}
    return {key: round(value, 2) for key, value in exact.items()} if draw(st.booleans()) else exact


@st.composite
def fitting(draw: st.DrawFn, question: questions.Question, *, spread: bool) -> answers.Answer:
    """Draw a valid answer to `question`; with `spread` it has a distribution."""
    confidence = draw(st.none() | fractions)
    if isinstance(question, questions.Boolean):
        return answers.BooleanAnswer(probability=draw(fractions), confidence=confidence)
    if isinstance(question, questions.Choice):
        found = draw(distributions(list(question.options))) if spread else None
        chosen = max(found, key=found.__getitem__) if found else draw(st.sampled_from(list(question.options)))
        return answers.ChoiceAnswer(choice=chosen, probabilities=found, confidence=confidence)
    top = len(question.levels) - 1
    found = draw(distributions([str(level) for level in range(top + 1)])) if spread else None
    mean = sum(int(level) * value for level, value in found.items()) if found else draw(st.floats(0, top))
    return answers.ScoreAnswer(score=min(mean, top), probabilities=found, confidence=confidence)


@st.composite
def answered(draw: st.DrawFn, first: st.SearchStrategy[questions.Question], *, spread: bool = True) -> tuple[Any, Any]:
    """Draw a question set that has a question `first` with id "first", and fitting answers."""
    asked = {**draw(st.dictionaries(names, any_question, max_size=2)), "first": draw(first)}
    return asked, {name: draw(fitting(question, spread=spread)) for name, question in asked.items()}


@given(st.booleans().flatmap(lambda spread: answered(any_question, spread=spread)))
def test_every_valid_set_passes_unchanged(case: tuple[Any, Any]):
    """A full set of fitting answers, exact or rounded, passes and is not touched."""
    asked, given_answers = case
    before = {name: answer.model_dump_json() for name, answer in given_answers.items()}

    validation.check(asked, given_answers, confidence_source=SOURCE)
    assert {name: answer.model_dump_json() for name, answer in given_answers.items()} == before


@given(answered(any_question), st.data())
def test_no_incomplete_or_overfull_set_passes(case: tuple[Any, Any], data: st.DataObject):
    """A set with an answer too few or too many is refused whole."""
    asked, given_answers = case
    name = data.draw(st.sampled_from(sorted(given_answers)))
    fewer = {other: answer for other, answer in given_answers.items() if other != name}
    more = {**given_answers, f"{name}_": given_answers[name]}

    for damaged in (fewer, more):
        with pytest.raises(InvalidAnswer, match=name):
            validation.check(asked, damaged, confidence_source=SOURCE)


class Case(NamedTuple):
    """One answer to be damaged, and a value that is no fraction to do it with."""

    question: Any
    answer: Any
    bad: Any

    def spread_with(self, key: str, probability: Any) -> dict[str, Any]:
        """Return the answer's distribution with one value set."""
        return {"probabilities": {**self.answer.probabilities, key: probability}}


bad_fractions = st.sampled_from([math.nan, math.inf, -math.inf, -0.01, 1.01, 9.2e124, True, "0.5", {}])
choice, score, boolean = choices(), scores(), st.just(questions.boolean(ask="?"))
damages: dict[str, tuple[Any, Callable[[Case], dict[str, Any]]]] = {
    "option unknown": (choice, lambda c: {"choice": "".join(c.question.options) + "!"}),
    "option in other letters": (choice, lambda c: {"choice": c.answer.choice.upper() + " "}),
    "option not text": (choice, lambda _: {"choice": ["a"]}),
    "probabilities not a map": (choice, lambda _: {"probabilities": [1.0, 0.0]}),
    "probability no fraction": (choice, lambda c: c.spread_with(max(c.answer.probabilities), c.bad)),
    "level's probability no fraction": (score, lambda c: c.spread_with(max(c.answer.probabilities), c.bad)),
    "probability of an unknown option": (choice, lambda c: c.spread_with("no such", 0.0)),
    "probability of an unknown level": (score, lambda c: c.spread_with(str(len(c.question.levels)), 0.0)),
    "option without a probability": (choice, lambda c: {"probabilities": {c.answer.choice: 1.0}}),
    "probabilities too large": (choice, lambda c: {"probabilities": dict.fromkeys(c.question.options, 1.0)}),
    "probabilities all zero": (choice, lambda c: {"probabilities": dict.fromkeys(c.question.options, 0.0)}),
    "choice not the likeliest": (
        choice,
        lambda c: {
            "choice": min(c.question.options),
            "probabilities": {**dict.fromkeys(c.question.options, 0.0), max(c.question.options): 1.0},
        },
    ),
    "score below the scale": (score, lambda _: {"score": -0.1, "probabilities": None}),
    "score above the scale": (score, lambda c: {"score": len(c.question.levels) - 0.9, "probabilities": None}),
    "score no number": (score, lambda _: {"score": math.nan, "probabilities": None}),
    "score far from its mean": (
        score,
        lambda c: {"score": 1.0, "probabilities": {str(i): float(i == 0) for i in range(len(c.question.levels))}},
    ),
    "yes no fraction": (boolean, lambda c: {"probability": c.bad}),
    "confidence no fraction": (any_question, lambda c: {"confidence": c.bad}),
}


@pytest.mark.parametrize("damage", damages)
@settings(max_examples=25)
@given(data=st.data())
def test_no_damaged_answer_passes(damage: str, data: st.DataObject):
    """Whatever is wrong with one answer, the whole set is refused and the question named."""
    first, spoil = damages[damage]
    asked, given_answers = data.draw(answered(first))
    case = Case(asked["first"], given_answers["first"], data.draw(bad_fractions))
    given_answers["first"] = case.answer.model_copy(update=spoil(case))

    with pytest.raises(InvalidAnswer, match="Question 'first'"):
        validation.check(asked, given_answers, confidence_source=SOURCE)


@given(answered(any_question), st.sampled_from([CHOSEN, YES, HALF_WAY]))
def test_no_answer_of_another_type_passes(case: tuple[Any, Any], other: answers.Answer):
    """A question takes answers of its own type only."""
    asked, given_answers = case
    assume(other.type != asked["first"].type)
    given_answers["first"] = other

    with pytest.raises(InvalidAnswer, match=f"was answered with '{other.type}'"):
        validation.check(asked, given_answers, confidence_source=SOURCE)


@given(answered(any_question), fractions)
def test_no_confidence_passes_without_a_source(case: tuple[Any, Any], confidence: float):
    """A confidence that nobody vouches for is refused, even one of 0."""
    asked, given_answers = case
    given_answers["first"] = given_answers["first"].model_copy(update={"confidence": confidence})

    with pytest.raises(InvalidAnswer, match="which statistic"):
        validation.check(asked, given_answers)
