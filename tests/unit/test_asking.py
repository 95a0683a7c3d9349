"""Asking outside of the pipeline: calls that only found something out are made up for, and nothing else is."""

import pytest
import stored
from fake_evaluator import FakeEvaluator

from facetline.evaluators import asking
from facetline.facets.errors import EvaluatorUnavailable, Spent

FOUND_OUT = EvaluatorUnavailable("asked in another way from now on", counted=False)
AWAY = EvaluatorUnavailable("503")


async def ask(evaluator: FakeEvaluator) -> str:
    """Return who answered."""
    return (await asking.ask(evaluator, "body", stored.QUESTIONS, key="k", deadline_s=1.0)).model


async def test_what_was_only_found_out_is_asked_again():
    """The answer comes after as many calls as there were things to find out."""
    evaluator = FakeEvaluator()
    evaluator.script("k", FOUND_OUT, FOUND_OUT)

    assert await ask(evaluator) == "fake-1"
    assert evaluator.calls == {"k": 3}


async def test_every_other_trouble_is_the_callers():
    """Nothing that counts is tried again here."""
    evaluator = FakeEvaluator()
    evaluator.script("k", FOUND_OUT, AWAY)

    with pytest.raises(EvaluatorUnavailable, match="503"):
        await ask(evaluator)
    assert evaluator.calls == {"k": 2}


async def test_an_evaluator_that_never_finishes_is_left():
    """An evaluator that finds something out for ever is left."""
    evaluator = FakeEvaluator(FOUND_OUT)

    with pytest.raises(EvaluatorUnavailable, match="another way"):
        await ask(evaluator)
    assert evaluator.calls == {"k": asking.FINDINGS_MAX + 1}


async def test_what_finding_out_has_cost_is_told():
    """A call that found something out and was paid for is in the account of the answer, or of the error, after it."""
    paid = EvaluatorUnavailable("cut off", counted=False, spent=Spent("m", {"input_tokens": 5}, 0.25))
    late = EvaluatorUnavailable("late", spent=Spent("m", None, None))
    evaluator = FakeEvaluator()
    evaluator.script("k", paid, FOUND_OUT)
    evaluator.script("late", paid, late)
    free = await asking.ask(FakeEvaluator(), "body", stored.QUESTIONS, key="k", deadline_s=1.0)
    found = await asking.ask(evaluator, "body", stored.QUESTIONS, key="k", deadline_s=1.0)
    with pytest.raises(EvaluatorUnavailable, match="late") as unpriced:
        await asking.ask(evaluator, "body", stored.QUESTIONS, key="late", deadline_s=1.0)

    assert found.cost_usd == (free.cost_usd or 0.0) + 0.25
    assert (found.usage or {})["input_tokens"] == (free.usage or {}).get("input_tokens", 0) + 5
    assert unpriced.value.spent == Spent("m", {"input_tokens": 5}, None)
