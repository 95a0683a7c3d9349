"""Answers and the facet values that people see of them."""

from typing import Any

import pytest
from pydantic import ValidationError

from facetline.evaluators import facet_values, validation
from facetline.facets import answers
from facetline.facets.answers import BooleanAnswer
from facetline.facets.errors import InvalidAnswer
from facetline.facets.questions import boolean

URGENT = boolean(ask="Does it need an answer today?")


@pytest.mark.parametrize(
    ("probability", "sure"),
    [(0.83, 0.83), (0.07, 0.93), (0.5, 0.5), (0.0, 1.0), (1.0, 1.0), (0.3, 0.7), (1 / 3, 0.666666666667)],
)
def test_a_boolean_is_as_sure_as_its_more_likely_value(probability: float, sure: float):
    """A boolean's confidence is max(p, 1 - p), without the noise of the subtraction."""
    value = answers.facet_value(URGENT, BooleanAnswer(probability=probability))

    assert value == {"type": "boolean", "value": probability >= 0.5, "probability": probability, "confidence": sure}


def test_a_boolean_keeps_a_confidence_of_its_own():
    """What the evaluator says of its confidence comes before what follows from the probability."""
    value = answers.facet_value(URGENT, BooleanAnswer(probability=0.9, confidence=0.4))

    assert value["confidence"] == 0.4
    assert facet_values.answer_of(value) == BooleanAnswer(probability=0.9, confidence=0.4)


def test_a_boolean_without_a_probability_has_no_confidence():
    """A plain yes is an answer; how sure it is, is unknown."""
    value = answers.facet_value(URGENT, BooleanAnswer(value=True))

    assert value == {"type": "boolean", "value": True, "probability": None, "confidence": None}
    assert facet_values.answer_of(value) == BooleanAnswer(value=True)


@pytest.mark.parametrize("given", [{}, {"probability": 0.9, "value": True}])
def test_a_boolean_has_either_a_probability_or_a_value(given: dict[str, Any]):
    """Two answers in one could contradict each other, and none is no answer."""
    with pytest.raises(ValidationError, match="give the probability of yes, or value"):
        BooleanAnswer(**given)


def test_what_follows_from_a_probability_is_not_taken_for_a_confidence():
    """A facet value read back is the answer that it was made of, so that no source of a confidence is missed."""
    answer = BooleanAnswer(probability=0.07)

    found = facet_values.answer_of(answers.facet_value(URGENT, answer))

    assert found == answer
    validation.check({"urgent": URGENT}, {"urgent": found}, confidence_source=None)


@pytest.mark.parametrize("value", [1, "yes", 0.5])
def test_a_value_is_yes_or_no(value: Any):
    """An evaluator that builds its answers past the model's checks is checked all the same."""
    answer = BooleanAnswer.model_construct(value=value)

    with pytest.raises(InvalidAnswer):
        validation.check({"urgent": URGENT}, {"urgent": answer})
