"""Decision models through the real litellm against a server on loopback: every shape of answer, one call each.

Method: the server's replies are scripted, and it counts; answers go through the validator, as they do in the pipeline.
"""

import asyncio
import gzip
import json
import math
from types import SimpleNamespace
from typing import Any

import model_replies
import model_server
import pytest
from model_replies import Reply
from model_server import KEY, VARIABLE
from polling import eventually

from facetline.evaluators import validation
from facetline.evaluators.contract import Evaluated
from facetline.evaluators.decisions.evaluator import Decisions
from facetline.evaluators.litellm_adapter import client
from facetline.evaluators.litellm_adapter.client import Connection
from facetline.facets import errors, questions

pytestmark = pytest.mark.usefixtures("model_clients_closed")

MODEL = {"systemone": "typesafe/jev-1.14.0", "openai": "openai/decide-1"}
LEVELS = ("calm", "annoyed", "furious")
ASKED: dict[str, questions.Question] = {
    "mood": questions.score(ask="How angry is it?", levels=LEVELS),
    "topic": questions.choice(ask="About what?", options={"outage": "Down", "billing": "Money", "other": "Rest"}),
    "urgent": questions.boolean(ask="Is it urgent?"),
}
BODY = "The outage goes on. doc:tickets/t1#3"
PATIENCE_S = 60.0
"""The first call loads litellm, on a machine that may be busy."""


def decisions(server: model_server.Server, form: str = "systemone", **more: Any) -> Decisions:
    """An evaluator in front of the server."""
    return Decisions(Connection(MODEL[form], server.url, VARIABLE), **more)


async def ask(evaluator: Decisions, body: str = BODY, deadline_s: float = PATIENCE_S) -> Evaluated:
    """Ask as the pipeline does: what comes back has passed the validator."""
    said = await evaluator.evaluate(body, ASKED, key="tickets/t1", deadline_s=deadline_s)
    validation.check_evaluated(ASKED, said)
    return said


async def reason(evaluator: Decisions, deadline_s: float = PATIENCE_S) -> str:
    """Return why there is no answer."""
    with pytest.raises(errors.PipelineError) as caught:
        await ask(evaluator, deadline_s=deadline_s)
    assert KEY not in str(caught.value)
    return str(getattr(caught.value, "reason", type(caught.value).__name__))


@pytest.mark.parametrize("form", MODEL)
async def test_answers_are_kept_as_given(server: model_server.Server, form: str):
    """One call for all questions; distributions, confidences, tokens and the answering model as the provider said."""
    said = await ask(decisions(server, form))

    assert server.counts == {"tickets/t1#3": 1}
    assert said.answers["topic"].model_dump() == {
        "type": "choice",
        "choice": "outage",
        "probabilities": {"billing": 0.1, "other": 0.1, "outage": 0.8},
        "confidence": model_replies.CONFIDENCE,
    }
    assert said.answers["urgent"].model_dump() == {
        "type": "boolean",
        "probability": 0.75,
        "confidence": None,
        "value": None,
    }
    assert said.answers["mood"].model_dump() == {
        "type": "score",
        "score": 0.3,
        "probabilities": {"0": 0.8, "1": 0.1, "2": 0.1},
        "confidence": model_replies.CONFIDENCE,
    }
    assert said.model == model_replies.MODEL
    assert said.confidence_source == f"{MODEL[form].partition('/')[0]} confidence"
    assert said.usage == {"input_tokens": 120, "output_tokens": 7}
    assert said.notes is None


async def test_the_request_is_the_protocols(server: model_server.Server):
    """The body as it is, questions in the order of their ids, options sorted, no id of ours and no key in the text."""
    await ask(decisions(server))

    (request,) = server.requests
    assert request.path == "/v1/systemone"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert json.dumps(request.body) == json.dumps(
        {
            "model": "jev-1.14.0",
            "state": BODY,
            "questions": {
                "mood": {"type": "score", "instructions": "How angry is it?", "criteria": list(LEVELS)},
                "topic": {
                    "type": "choice",
                    "instructions": "About what?",
                    "criteria": {"billing": "Money", "other": "Rest", "outage": "Down"},
                },
                "urgent": {"type": "noul", "instructions": "Is it urgent?"},
            },
        }
    )


async def test_openais_request_is_openais(server: model_server.Server):
    """OpenAI's models are asked in OpenAI's form, which says what was refused."""
    await ask(decisions(server, "openai"))

    (request,) = server.requests
    assert request.path == "/v1/decisions"
    assert [question["name"] for question in request.body["questions"]] == sorted(ASKED)
    assert request.body["input"] == BODY
    assert request.body["questions"][1]["choices"][0] == {"value": "billing", "description": "Money"}


async def test_a_price_is_litellms_or_unknown(server: model_server.Server):
    """Jev's tokens have a listed price; a model that nobody lists is not free."""
    listed, unlisted = await ask(decisions(server)), await ask(decisions(server, "openai"))

    assert listed.cost_usd == pytest.approx(120 * 0.042e-6)
    assert unlisted.cost_usd is None


@pytest.mark.parametrize(
    ("model", "told", "cost"),
    [
        ("openai/nobody-lists-me", 0.0, None),
        ("typesafe/jev-1.14.0", 0.0, 0.0),
        ("openai/nobody-lists-me", 0.25, 0.25),
        ("typesafe/jev-1.14.0", math.nan, None),
        ("typesafe/jev-1.14.0", -1.0, None),
        ("typesafe/jev-1.14.0", None, None),
    ],
)
async def test_a_price_of_nothing_needs_a_list(model: str, told: float | None, cost: float | None):
    """Nought is believed of a model that has a price; what is no amount is unknown."""
    await client.load()

    response = SimpleNamespace(hidden_params={"response_cost": told})
    assert client.cost_of(response, Connection(model)) == cost


async def test_a_confidence_is_found_in_any_namespace(server: model_server.Server):
    """A boolean's confidence may stand beside it, or in the reply's metadata under whoever computed it."""
    server.plan = Reply(answers={"urgent": {"type": "noul", "noul": 0.75, "confidence": 0.6}})
    beside = await ask(decisions(server))
    server.plan = Reply(extra={"provider_metadata": {"google": {"confidence": {"urgent": 0.4}}}})
    apart = await ask(decisions(server))

    assert beside.answers["urgent"].confidence == 0.6
    assert beside.confidence_source == "typesafe confidence"
    assert apart.answers["urgent"].confidence == 0.4
    assert apart.confidence_source == "google, typesafe confidence"


def _choice(**changes: Any) -> dict[str, Any]:
    shares = {"billing": 0.1, "other": 0.1, "outage": 0.8}
    return {"topic": {"type": "choice", "choice": "outage", "probabilities": shares, "confidence": 0.8, **changes}}


def _score(**changes: Any) -> dict[str, Any]:
    legend = {str(index): level for index, level in enumerate(LEVELS)}
    shares = {"0": 0.8, "1": 0.1, "2": 0.1}
    answer = {"type": "score", "score": 0.3, "legend": legend, "probabilities": shares, "confidence": 0.8}
    return {"mood": {**answer, **changes}}


JUNK: dict[str, dict[str, Any]] = {
    "row 1: an option that is not there": _choice(choice="refund"),
    "row 1: an option that is not there, in the distribution": _choice(
        probabilities={"billing": 0.1, "refund": 0.1, "outage": 0.8}
    ),
    "row 2: an option in other letters": _choice(choice="Outage"),
    "row 2: an option with a space": _choice(choice="outage "),
    "row 12: no answer to a question": {"topic": None},
    "row 12: an answer of another type": {"topic": {"type": "noul", "noul": 0.5}},
    "row 14: a score beyond the scale": _score(score=9.2e124),
    "row 14: a score as words": _score(score="7/10"),
    "row 14: a score below the scale": _score(score=-1),
    "row 17: a score that is no number": _score(score=math.nan),
    "row 17: a probability that is no number": _choice(
        probabilities={"billing": math.nan, "other": 0.1, "outage": 0.8}
    ),
    "row 17: an infinite probability": {"urgent": {"type": "noul", "noul": math.inf}},
    "row 17: a confidence above one": _choice(confidence=1.7),
    "row 17: a confidence below zero": _choice(confidence=-0.1),
    "row 17: a probability of yes above one": {"urgent": {"type": "noul", "noul": 1.2}},
    "row 18: probabilities that add up to 2.7": _choice(probabilities={"billing": 0.9, "other": 0.9, "outage": 0.9}),
    "row 18: probabilities that add up to 0.9": _choice(probabilities={"billing": 0.1, "other": 0.1, "outage": 0.7}),
    "row 19: not the likeliest option": _choice(choice="billing"),
    "row 19: half a distribution": _choice(probabilities={"outage": 1.0}),
    "row 19: a score that is not its mean": _score(score=1.9),
    "row 20: levels in another order": _score(legend={"0": "furious", "1": "annoyed", "2": "calm"}),
    "row 20: other levels": _score(legend=["calm", "cross", "furious"]),
}


@pytest.mark.parametrize("answers", JUNK.values(), ids=JUNK)
async def test_junk_is_refused_whole(server: model_server.Server, answers: dict[str, Any]):
    """Nothing outside the questions' domain passes, and no part of an answer set is kept: invalid_answer, one call."""
    server.plan = Reply(answers=answers)

    assert await reason(decisions(server)) == "invalid_answer"
    assert len(server.requests) == 1


FINE: dict[str, dict[str, Any]] = {
    "row 11: an answer to a question of somebody else's": {"__proto__": {"type": "noul", "noul": 0.1}},
    "row 11: an answer with parts we do not know": _choice(why="because"),
    "row 14: a number in quotes": {"urgent": {"type": "noul", "noul": "0.75"}},
    "row 18: rounded probabilities": _choice(probabilities={"billing": 0.33, "other": 0.33, "outage": 0.33}),
    "row 20: our levels as a list": _score(legend=list(LEVELS)),
}


@pytest.mark.parametrize("answers", FINE.values(), ids=FINE)
async def test_what_is_harmless_passes(server: model_server.Server, answers: dict[str, Any]):
    """Answers to unknown ids are left out; a rounded distribution is kept as it is, not mended."""
    server.plan = Reply(answers=answers)

    said = await ask(decisions(server))
    assert set(said.answers) == set(ASKED)
    if "topic" in answers:
        assert said.answers["topic"].probabilities == answers["topic"]["probabilities"]


async def test_a_call_that_was_paid_for_says_so(server: model_server.Server):
    """An answer that cannot be kept still has its tokens, its price and its model."""
    server.plan = Reply(answers={"topic": None})

    with pytest.raises(errors.InvalidAnswer, match="no answer to 'topic'") as caught:
        await ask(decisions(server))
    spent = caught.value.spent
    assert spent is not None
    assert spent.usage == {"input_tokens": 120, "output_tokens": 7}
    assert spent.model == model_replies.MODEL
    assert spent.cost_usd


async def test_a_refusal_is_called_one(server: model_server.Server):
    """A refusal of one question fails the whole call as refused, in both forms of the protocol."""
    server.plan = Reply(answers={"topic": {"type": "refusal", "name": "topic"}})

    assert await reason(decisions(server, "openai")) == "refused"
    assert await reason(decisions(server)) == "refused"


async def test_a_model_without_confidence_is_not_asked_again(server: model_server.Server):
    """A provider that must give a confidence and does not is a matter of the configuration, not of the document."""
    server.plan = Reply(answers=_choice(confidence=None))

    assert await reason(decisions(server)) == "EvaluatorMisconfigured"


FAILURES: dict[str, tuple[Reply, str]] = {
    "row 28: too long": (model_replies.too_long(), "too_long"),
    "row 28: 413": (model_replies.error(413), "too_long"),
    "row 10: filtered": (model_replies.filtered(), "content_filter"),
    "row 31: 429": (model_replies.too_many(retry_after="7"), "rate_limited"),
    "row 32: quota": (model_replies.quota(), "EvaluatorMisconfigured"),
    "row 35: 500": (model_replies.error(500), "unavailable"),
    "row 35: 503": (model_replies.error(503), "unavailable"),
    "row 35: 529": (model_replies.error(529), "unavailable"),
    "row 35: a page": (model_replies.html(), "unavailable"),
    "row 35: half a JSON": (model_replies.cut_json(), "unavailable"),
    "row 35: half a body": (model_replies.truncated(), "unavailable"),
    "row 35: closed": (model_replies.closed(), "unavailable"),
    "row 35: an error with 200": (Reply(body={"error": {"message": "busy"}}), "unavailable"),
    "row 36: 401": (model_replies.unauthorized(KEY), "EvaluatorMisconfigured"),
    "row 36: 402": (model_replies.error(402), "EvaluatorMisconfigured"),
    "row 36: 403": (model_replies.error(403), "EvaluatorMisconfigured"),
    "row 36: 404": (model_replies.error(404), "EvaluatorMisconfigured"),
    "row 37: 400": (model_replies.error(400), "evaluator_error"),
}


@pytest.mark.parametrize(("reply", "expected"), FAILURES.values(), ids=FAILURES)
async def test_a_failure_has_its_meaning_and_one_call(server: model_server.Server, reply: Reply, expected: str):
    """Whatever goes wrong, litellm's exception becomes ours, and nobody below us tries again."""
    server.plan = reply

    assert await reason(decisions(server)) == expected
    assert len(server.requests) == 1


ODD: dict[str, tuple[Reply, str]] = {
    "a refusal in another field": (Reply(400, {"error": "the prompt is too long"}), "too_long"),
    "a refusal in a list": (Reply(422, {"detail": [{"loc": ["state"], "msg": "prompt is too long"}]}), "too_long"),
    "no such model, as text": (Reply(400, "The model `x` does not exist"), "EvaluatorMisconfigured"),
    "a redirect": (Reply(307, "", {"location": "/elsewhere"}), "EvaluatorMisconfigured"),
    "a list": (Reply(200, [1]), "invalid_answer"),
    "null": (Reply(200, "null"), "invalid_answer"),
    "no text": (Reply(200, b'{"answers": "\xff"}'), "invalid_answer"),
    "a rate limit with 200": (Reply(200, {"error": {"message": "slow", "code": 429}}), "rate_limited"),
    "too much": (Reply(flood_bytes=16 * 1024 * 1024), "invalid_answer"),
    "too much of an error": (Reply(500, {"error": "x"}, flood_bytes=16 * 1024 * 1024), "invalid_answer"),
    "a bomb": (
        Reply(body=gzip.compress(b" " * 16 * 1024 * 1024), headers={"content-encoding": "gzip"}),
        "invalid_answer",
    ),
}


@pytest.mark.parametrize("form", MODEL)
@pytest.mark.parametrize(("reply", "expected"), ODD.values(), ids=ODD)
async def test_the_raw_reply_is_judged(server: model_server.Server, reply: Reply, expected: str, form: str):
    """Words wherever they stand, bytes up to a bound, no redirect followed; one request each."""
    server.plan = reply

    assert await reason(decisions(server, form)) == expected
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("reply", "seconds"),
    [
        (model_replies.too_many(retry_after="7"), 7.0),
        (model_replies.too_many(retry_after_ms="1500", retry_after="9"), 1.5),
        (model_replies.error(503, retry_after="2"), 2.0),
        (model_replies.too_many(), None),
    ],
)
async def test_the_wish_to_be_left_alone_arrives(server: model_server.Server, reply: Reply, seconds: float | None):
    """Retry-After passes through litellm to whoever waits."""
    server.plan = reply

    with pytest.raises(errors.EvaluatorUnavailable) as caught:
        await ask(decisions(server))
    assert caught.value.retry_after_s == seconds


@pytest.mark.parametrize("silence", [model_replies.hang(), model_replies.drip(0.05)], ids=["hang", "drip"])
async def test_a_silent_model_is_left_at_the_deadline(server: model_server.Server, silence: Reply):
    """No byte, or one now and then: the call ends by our clock, and leaves no task and no connection behind."""
    before = len(asyncio.all_tasks())
    await ask(decisions(server))
    server.plan = silence

    reasons = await asyncio.gather(*(reason(decisions(server), deadline_s=0.4) for _ in range(3)))
    await client.close()
    assert reasons == ["timeout"] * 3
    assert server.counts["tickets/t1#3"] == 4
    await eventually(lambda: server.connections == 0 and server.running == 0)
    await eventually(lambda: len(asyncio.all_tasks()) == before)


async def test_the_key_is_read_at_every_call(server: model_server.Server, monkeypatch: pytest.MonkeyPatch):
    """A key that was mended counts from the next call on; one that is gone stops the evaluator by name."""
    evaluator = decisions(server)
    await ask(evaluator)
    monkeypatch.setenv(VARIABLE, "sk-mended-0123456789")
    await ask(evaluator)
    monkeypatch.delenv(VARIABLE)

    assert await reason(evaluator) == "EvaluatorMisconfigured"
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == [f"Bearer {KEY}", "Bearer sk-mended-0123456789"]


async def test_a_long_body_fails_before_it_costs(server: model_server.Server):
    """Beyond the context no call is made, and the message says what to set."""
    body = "word " * 5000

    with pytest.raises(errors.EvaluationFailed, match="long_body = 'head_tail'") as caught:
        await ask(decisions(server, context_tokens=1000), body)
    assert caught.value.reason == "too_long"
    assert server.requests == []


async def test_a_long_body_keeps_its_head_and_its_tail(server: model_server.Server):
    """Cut at words, within the room, and the answer says so."""
    body = "An outage. " + "word " * 5000 + "Yours truly"

    said = await ask(decisions(server, long_body="head_tail", context_tokens=1000), body)
    state = server.requests[0].body["state"]
    assert said.notes is not None
    assert said.notes["truncated"] is True
    assert said.notes["bytes_kept"] + said.notes["bytes_dropped"] == len(body)
    assert state.startswith("An outage. word word ")
    assert state.endswith(" word Yours truly")
    assert "word\n[…]\nword" in state
    assert 3000 < len(state.encode()) < 4000


async def test_questions_that_fill_the_context_stop_the_evaluator(server: model_server.Server):
    """No body is to blame when the questions alone are too long."""
    asked = {"topic": questions.choice(ask="?", options={"a": "x" * 9000, "b": "y"})}

    with pytest.raises(errors.EvaluatorMisconfigured, match="questions alone"):
        await decisions(server, context_tokens=2000).evaluate("body", asked, key="k", deadline_s=5)
    assert server.requests == []


async def test_what_is_no_text_fails_alone(server: model_server.Server):
    """A lone surrogate cannot be sent; NUL and quotes can, and arrive as they are."""
    assert (await ask(decisions(server), 'a\x00b "c" </state> outage')).answers
    assert server.requests[0].body["state"] == 'a\x00b "c" </state> outage'

    with pytest.raises(errors.EvaluationFailed, match="lone surrogate"):
        await ask(decisions(server), "a\ud800b")
    assert len(server.requests) == 1
