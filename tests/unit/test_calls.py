"""One call: whatever an evaluator does becomes a verdict, within the call's limit and lease."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
from claims import CLAIM, DEFINITION
from fake_evaluator import Behaviour, FakeEvaluator, Held

from facetline.evaluators import contract
from facetline.facets.errors import EvaluationFailed, EvaluatorMisconfigured, EvaluatorUnavailable, InvalidAnswer
from facetline.streams.classify import call as calls
from facetline.streams.classify.circuit_breaker import Ticket


def call(evaluator: FakeEvaluator, *, lease_s: float = 60.0, **limits: Any) -> calls.Call:
    """Make a call about a fresh claim."""
    assignment = calls.Assignment(DEFINITION, evaluator, calls.CallLimits(**{"call_s": 5.0, **limits}))
    return calls.Call(CLAIM, assignment, Ticket(0, probe=False), time.monotonic() + lease_s)


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (EvaluatorUnavailable("no", reason="rate_limited", retry_after_s=3.0), "rate_limited"),
        (EvaluatorUnavailable("no", reason="timeout"), "timeout"),
        (EvaluatorUnavailable("no", reason="made up"), "unavailable"),
        (EvaluatorUnavailable("asked in another way now", counted=False), "unavailable"),
        (EvaluatorMisconfigured("401"), "unavailable"),
        (TimeoutError(), "timeout"),
    ],
)
async def test_what_may_pass_is_trouble(raised: Exception, reason: str):
    """Passing failures keep their reason, or the nearest one there is, the provider's wish, and whose account it is."""
    verdict = await calls.ask(call(FakeEvaluator(raised)))

    assert isinstance(verdict, calls.TransientFailure)
    assert verdict.reason == reason
    assert verdict.misconfigured == isinstance(raised, EvaluatorMisconfigured)
    assert verdict.retry_after_s == getattr(raised, "retry_after_s", None)
    assert verdict.counted == getattr(raised, "counted", True)


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (EvaluationFailed("refused", "no"), "refused"),
        (EvaluationFailed("made up", "no"), "evaluator_error"),
        (InvalidAnswer("no"), "invalid_answer"),
        (KeyError("oops"), "evaluator_error"),
        (asyncio.CancelledError(), "evaluator_error"),
    ],
)
async def test_what_will_not_pass_is_a_failure(raised: BaseException, reason: str):
    """Everything else fails the document, with a reason that documents can have."""
    verdict = await calls.ask(call(FakeEvaluator(raised)))

    assert isinstance(verdict, calls.Failure)
    assert verdict.reason == reason


async def test_a_wish_that_is_no_number_is_left_out():
    """An evaluator that hands the header's text on fails its document for a while, and nothing else."""
    wish: Any = "soon"

    verdict = await calls.ask(call(FakeEvaluator(EvaluatorUnavailable("no", retry_after_s=wish))))

    assert isinstance(verdict, calls.TransientFailure)
    assert verdict.retry_after_s is None


async def test_a_call_has_a_wall_clock_limit():
    """An evaluator that never answers is cut off."""
    began_s = time.monotonic()
    verdict = await calls.ask(call(FakeEvaluator(Held()), call_s=0.05))

    assert isinstance(verdict, calls.TransientFailure)
    assert verdict.reason == "timeout"
    assert time.monotonic() - began_s < 3


async def test_a_call_that_could_outlive_its_lease_is_not_made():
    """A claim whose lease has run out, or would before the call's limit, asks nobody."""
    evaluator = FakeEvaluator()
    expired = call(evaluator, lease_s=-1.0)
    nearly = call(evaluator, lease_s=4.9)

    assert await calls.ask(expired) == calls.NotStarted()
    assert await calls.ask(nearly) == calls.NotStarted()
    assert evaluator.history == []
    assert (expired.started_s, nearly.started_s) == (None, None)


async def test_a_body_that_is_too_long_asks_nobody():
    """A body above the evaluator's limit, in bytes, fails as `too_long` without a call."""
    evaluator = FakeEvaluator(body_bytes_max=5)
    fits = call(evaluator)
    too_long = replace(fits, claim=replace(CLAIM, body="wörds"))
    verdict = await calls.ask(too_long)

    assert isinstance(verdict, calls.Failure)
    assert (verdict.reason, too_long.started_s) == ("too_long", None)
    assert isinstance(await calls.ask(fits), calls.Answer)
    assert len(evaluator.history) == 1


async def test_a_cut_off_call_is_cancelled():
    """A cancellation of the call itself is passed on: it is no verdict about the document."""
    task = asyncio.create_task(calls.ask(call(FakeEvaluator(Held()))))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("sent", [True, False])
async def test_a_call_cut_off_before_anything_was_sent_was_none(sent: bool):
    """An evaluator that was still getting ready says so with its cancellation: then nobody was asked."""

    class GettingReady(FakeEvaluator):
        async def evaluate(self, body: str, questions: Any, *, key: str, deadline_s: float) -> Any:
            try:
                return await super().evaluate(body, questions, key=key, deadline_s=deadline_s)
            except asyncio.CancelledError as error:
                if not sent:
                    error.add_note(contract.UNSENT)
                raise

    made = call(GettingReady(Held()))
    task = asyncio.create_task(calls.ask(made))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (made.started_s is not None) == sent
    assert calls.spent_on(made, calls.Cancelled()) == (calls.UNHEARD if sent else None)


@pytest.mark.parametrize("words", ["\0" * 3, "\ud800", "long " * 1000])
async def test_messages_fit_any_database(words: str):
    """What an error says is kept short, without NUL and lone surrogates."""
    behaviour: Behaviour = RuntimeError(words)
    verdict = await calls.ask(call(FakeEvaluator(behaviour)))

    assert isinstance(verdict, calls.Failure)
    assert len(verdict.message) <= calls.MESSAGE_CHARS_MAX
    assert "\0" not in verdict.message
    verdict.message.encode()
