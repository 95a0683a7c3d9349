"""A sentence as a search: which questions are asked about it, and what of the answers is taken."""

from collections.abc import Mapping
from typing import Any

import builders
import pytest
from fake_evaluator import FakeEvaluator

from facetline.evaluators.contract import Evaluated
from facetline.facets import errors
from facetline.facets.answers import ChoiceAnswer
from facetline.facets.questions import Choice, boolean, choice
from facetline.streams.classify import query_understanding
from facetline.streams.classify.call import CallLimits
from facetline.streams.classify.query_understanding import Taken, Understood

TOPIC = choice(ask="About?", options={"billing": "Money", "outage": "Down"})
STATUS = choice(ask="Open?", options={"open": "Not solved", "closed": "Solved"})
DEFINITION = builders.definition(questions={"topic": TOPIC, "status": STATUS, "urgent": boolean(ask="Today?")})


def answers(**chosen: tuple[str, float | None]) -> Evaluated:
    """A model's answers to the questions about a sentence."""
    found = {name: ChoiceAnswer(choice=value, confidence=confidence) for name, (value, confidence) in chosen.items()}
    confident = any(confidence is not None for _, confidence in chosen.values())
    return Evaluated(found, "fake-1", "test" if confident else None, None, 0.002)


async def understood(evaluator: FakeEvaluator, sentence: str = "open invoices") -> Understood:
    """What a sentence is taken for."""
    return await query_understanding.understand(sentence, DEFINITION, evaluator, CallLimits(call_s=1.0))


class Listening(FakeEvaluator):
    """Keeps the questions that it is asked."""

    asked: Mapping[str, Any] = {}

    async def evaluate(self, body: str, questions: Mapping[str, Any], *, key: str, deadline_s: float) -> Evaluated:
        """Note the questions, and answer."""
        self.asked = questions
        return await super().evaluate(body, questions, key=key, deadline_s=deadline_s)


async def test_the_choices_are_asked_in_one_call_with_an_option_for_silence():
    """Every choice question, no other, with its own options and one more; the sentence is the text."""
    evaluator = Listening(answers(topic=("billing", None), status=("open", None)))
    await understood(evaluator)

    assert evaluator.bodies == ["open invoices"]
    assert sorted(evaluator.asked) == ["status", "topic"]
    assert list(evaluator.asked["topic"].options) == ["billing", "outage", "__any__"]
    assert "search request" in evaluator.asked["topic"].ask
    assert "About?" in evaluator.asked["topic"].ask


async def test_what_was_chosen_is_taken_and_silence_is_not():
    """A question that the sentence says nothing about restricts nothing; without confidences all choices count."""
    found = await understood(FakeEvaluator(answers(topic=("billing", None), status=("__any__", None))))

    assert found.taken == {"topic": Taken("billing", None)}
    assert (found.unsure, found.cost_usd, found.model) == ({}, 0.002, "fake-1")


async def test_what_the_model_is_unsure_of_is_left_out_and_told():
    """Below 0.5 an answer does not restrict the search; at 0.5 it does."""
    found = await understood(FakeEvaluator(answers(topic=("billing", 0.49), status=("open", 0.5))))

    assert found.taken == {"status": Taken("open", 0.5)}
    assert found.unsure == {"topic": Taken("billing", 0.49)}


async def test_nothing_but_declared_options_comes_out():
    """An answer outside of the question's options is refused as any model's would be."""
    with pytest.raises(errors.InvalidAnswer, match="none of its options"):
        await understood(FakeEvaluator(answers(topic=("sales", None), status=("open", None))))


async def test_an_evaluator_that_fails_is_not_asked_again():
    """Its error is the caller's, after one call."""
    for wrong, kind in (
        (errors.EvaluatorUnavailable("away"), errors.EvaluatorUnavailable),
        (errors.EvaluatorMisconfigured("key"), errors.EvaluatorMisconfigured),
        (ValueError("broken"), errors.EvaluationFailed),
        (60.0, errors.EvaluatorUnavailable),
    ):
        evaluator = FakeEvaluator(wrong)
        with pytest.raises(kind):
            await query_understanding.understand("x", DEFINITION, evaluator, CallLimits(call_s=0.05))
        assert len(evaluator.history) == 1


def test_a_question_with_as_many_options_as_can_be_is_not_asked():
    """There is no room for one more; the others are asked, and it is told."""
    area = choice(ask="Which?", options={str(number): "" for number in range(3)})
    definition = builders.definition(questions={"topic": TOPIC, "area": area})
    asked, unasked = query_understanding.questions_of(definition, 3)

    assert (list(asked), unasked) == (["topic"], ("area",))


def test_a_collection_without_choices_cannot_be_asked():
    """The error says what to use instead."""
    definition = builders.definition(questions={"urgent": boolean(ask="Today?")})

    with pytest.raises(errors.InvalidQuery, match="--filter"):
        query_understanding.questions_of(definition, 255)


@pytest.mark.parametrize("taken", [["__any__"], ["__ANY__"], ["__any__", "___any___"]])
def test_the_added_option_is_like_no_other(taken: list[str]):
    """A question's own options keep their meaning, whatever they are called."""
    question = Choice(ask="?", options={**dict.fromkeys(taken, "x"), "other": "y"})
    name = query_understanding.unmentioned(question)

    assert name.casefold() not in {option.casefold() for option in question.options}


@pytest.mark.parametrize("sentence", ["", " \n", "a" * 4097, "a\0b", "\ud800"])
async def test_what_is_no_sentence_costs_nothing(sentence: str):
    """It is refused before the call."""
    evaluator = FakeEvaluator()

    with pytest.raises(errors.InvalidQuery):
        await understood(evaluator, sentence)
    assert evaluator.history == []
