"""Replies of chat servers as people meet them: what is read, what is asked otherwise, and what is refused.

Method: a server on loopback that says what vLLM, llama.cpp, LM Studio, Ollama, TGI, Azure, OpenRouter, Groq and proxies
in between were seen to say; answers go through the validator, as they do in the pipeline.
"""

import asyncio
import gzip
import json
import os
import resource
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import model_replies
import model_server
import pytest
from model_replies import Reply
from model_server import KEY, VARIABLE
from polling import eventually

from facetline.evaluators import validation
from facetline.evaluators.chat.evaluator import Chat
from facetline.evaluators.chat.settings import Settings
from facetline.evaluators.contract import Evaluated
from facetline.evaluators.litellm_adapter.client import Connection
from facetline.facets import errors, questions

pytestmark = pytest.mark.usefixtures("model_clients_closed")

ASKED: dict[str, questions.Question] = {
    "topic": questions.choice(ask="About what?", options={"billing": "", "other": "", "outage": ""}),
    "urgent": questions.boolean(ask="Is it urgent?"),
}
GOOD = {"q0": "C", "q1": 0.75}
TEXT = json.dumps(GOOD)
BODY = "The outage goes on. doc:tickets/t1#3"
PATIENCE_S = 60.0
ROOT = str(Path(__file__).resolve().parents[2])


def chat(server: model_server.Server, model: str = "openai/my-deployment", **settings: Any) -> Chat:
    """An evaluator in front of the server; without token probabilities unless they are asked for."""
    bytes_max = settings.pop("reply_bytes_max", 64 * 1024)
    settings.setdefault("logprobs", "off")
    return Chat(Connection(model, server.chat_url, VARIABLE, bytes_max), Settings(**settings))


async def ask(evaluator: Chat) -> Evaluated:
    """Ask as the pipeline does."""
    said = await evaluator.evaluate(BODY, ASKED, key="tickets/t1", deadline_s=PATIENCE_S)
    validation.check_evaluated(ASKED, said)
    assert said.answers["topic"].model_dump()["choice"] == "outage"
    return said


async def refused(evaluator: Chat) -> Any:
    """Return the error of an evaluation that gives no answer; no message has a key, a path or lines of code."""
    with pytest.raises(errors.PipelineError) as caught:
        await ask(evaluator)
    message = str(caught.value)
    for leak in (KEY, "Traceback", 'File "', ".py", "site-packages"):
        assert leak not in message
    return caught.value


def refusing(part: str, reply: Reply, good: Reply | None = None) -> model_server.Plan:
    """A server that refuses requests with `part` in them, and answers others."""

    def plan(request: model_server.Request) -> Reply:
        return reply if part in json.dumps(request.body) else good or model_replies.said(TEXT)

    return plan


# --- parameters by other names, or none

USE_OTHER = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."


@pytest.mark.parametrize(
    "refusal",
    [
        model_replies.error(400, USE_OTHER, code="unsupported_parameter"),
        Reply(400, {"error": USE_OTHER}),
        Reply(422, {"detail": [{"loc": ["body", "max_tokens"], "msg": "Extra inputs are not permitted"}]}),
        Reply(400, "Unrecognized request argument supplied: max_tokens"),
        Reply(400, {"message": "max_tokens is deprecated, use max_completion_tokens"}),
    ],
)
async def test_a_limit_has_another_name(server: model_server.Server, refusal: Reply):
    """A model that refuses max_tokens by name is asked with max_completion_tokens from then on."""
    server.plan = refusing('"max_tokens"', refusal)
    evaluator = chat(server)
    error = await refused(evaluator)
    await ask(evaluator)
    await ask(evaluator)

    assert (error.counted, len(server.requests)) == (False, 3)
    limits = [request.body.get("max_completion_tokens") for request in server.requests]
    assert limits == [None, server.requests[0].body["max_tokens"], server.requests[0].body["max_tokens"]]


async def test_a_limit_can_go(server: model_server.Server):
    """A model that takes neither name is asked without a limit; one that the table sets stops the evaluator."""

    def plan(request: model_server.Request) -> Reply:
        for name in ("max_tokens", "max_completion_tokens"):
            if name in request.body:
                return model_replies.error(400, f"Unrecognized request argument supplied: {name}")
        return model_replies.said(TEXT)

    server.plan = plan
    evaluator, limited = chat(server), chat(server, max_output_tokens=500)
    found = [await refused(evaluator), await refused(evaluator)]
    await ask(evaluator)
    told = [await refused(limited), await refused(limited)]

    assert [error.counted for error in found] == [False, False]
    assert isinstance(told[1], errors.EvaluatorMisconfigured)
    assert "max_output_tokens" in str(told[1])


@pytest.mark.parametrize(
    "reply",
    [
        model_replies.error(400, "Conversation roles must alternate user/assistant/user/assistant/..."),
        Reply(
            422, {"error": "Template error: invalid operation: Conversation roles must alternate", "error_type": "x"}
        ),
        Reply(500, {"error": {"code": 500, "message": "Jinja Exception: Conversation roles must alternate"}}),
        Reply(
            400, {"error": 'Error rendering prompt with jinja template: "Only user and assistant roles are supported"'}
        ),
        Reply(400, {"detail": "Unexpected role 'system'"}),
    ],
)
async def test_instructions_go_into_the_users_message(server: model_server.Server, reply: Reply):
    """A template that knows no system role gets one message of the user's, from the next call on."""
    server.plan = refusing('"system"', reply)
    evaluator = chat(server)
    error = await refused(evaluator)
    await ask(evaluator)

    assert (error.counted, len(server.requests)) == (False, 2)
    assert [message["role"] for message in server.requests[1].body["messages"]] == ["user"]


@pytest.mark.parametrize(
    "reply",
    [
        model_replies.error(403, "You are not allowed to request logprobs from this model"),
        Reply(403, {"message": "logprobs are not available on your plan"}),
        Reply(400, {"error": "logprobs is not supported by this backend"}),
        Reply(422, {"detail": [{"loc": ["body", "top_logprobs"], "msg": "Input should be less than 5", "input": 9}]}),
        Reply(200, {"error": "Logprobs are not supported"}),
        Reply(400, "logprobs are not implemented"),
    ],
)
async def test_probabilities_are_given_up(server: model_server.Server, reply: Reply):
    """Wherever the refusal stands, and with a 403 too: the key is good, and the rest is asked for without them."""
    server.plan = refusing("logprobs", reply)
    evaluator = chat(server, logprobs="auto")
    error = await refused(evaluator)
    await ask(evaluator)

    assert (error.counted, len(server.requests)) == (False, 2)


# --- the words of a refusal, wherever they stand

PLACES = {
    "error.message": lambda words: {"error": {"message": words, "code": None}},
    "error": lambda words: {"error": words},
    "detail": lambda words: {"detail": words},
    "detail list": lambda words: {"detail": [{"loc": ["body", "messages"], "msg": words, "type": "value_error"}]},
    "message": lambda words: {"object": "error", "message": words, "code": 400},
    "text": lambda words: words,
    "errors": lambda words: {"errors": [{"message": words}]},
    "wrapped": lambda words: {
        "error": {"message": "Provider returned error", "metadata": {"raw": json.dumps({"error": words})}}
    },
    "list": lambda words: [{"error": {"message": words, "status": "INVALID_ARGUMENT"}}],
    "inner JSON": lambda words: {"error": {"message": json.dumps({"message": words})}},
}
WORDS = {
    "the prompt is too long: 9000 tokens > 8192 maximum": "too_long",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096": "too_long",
    "the request exceeds the available context size, try increasing it": "too_long",
    "The model `llama-9` does not exist": "EvaluatorMisconfigured",
    "You have used up your quota": "EvaluatorMisconfigured",
    "Stopped by the content policy": "content_filter",
    "I do not like this": "evaluator_error",
}


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("place", PLACES)
async def test_words_mean_the_same_everywhere(server: model_server.Server, place: str, words: str):
    """A refusal is judged by its words, and shows them, in whatever field or form it comes."""
    server.plan = Reply(400, PLACES[place](words))
    error = await refused(chat(server))

    assert getattr(error, "reason", type(error).__name__) == WORDS[words]
    assert words in str(error)
    assert len(server.requests) == 1


async def test_a_page_is_shown_by_its_words(server: model_server.Server):
    """A proxy's page gives its title, and no markup."""
    page = "<html><head><title>502 Bad Gateway</title></head><body><h1>nginx</h1></body></html>"
    server.plan = Reply(502, page, {"content-type": "text/html"})
    error = await refused(chat(server))

    assert error.reason == "unavailable"
    assert str(error).endswith("(HTTP 502): 502 Bad Gateway")


# --- replies that answer, in odd forms


@pytest.mark.parametrize(
    "text",
    [
        f"The user is angry.\n</think>\n\n{TEXT}",
        f"<think>\nIt says {{}}.\n</think>\n{TEXT}",
        f"<thinking>so</thinking>{TEXT}",
        f"<thought>so</thought>\n```json\n{TEXT}\n```",
        f"[THINK]so[/THINK]{TEXT}",
        f"◁think▷so◁/think▷{TEXT}",
        f"<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>final<|message|>{TEXT}",
        f"<seed:think>so</seed:think>{TEXT}",
        f"<reasoning>so</reasoning>{TEXT}",
        f"\n\n</think>{TEXT}",
    ],
)
async def test_thoughts_are_taken_off(server: model_server.Server, text: str):
    """Thoughts before the answer do no harm in any of the known wrappings, with or without their opening mark."""
    server.plan = model_replies.said(text)
    await ask(chat(server))

    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "text", "text": TEXT}],
        [{"type": "thinking", "thinking": [{"type": "text", "text": "so"}]}, {"type": "text", "text": TEXT}],
        [{"type": "text", "text": TEXT[:5]}, {"type": "text", "text": TEXT[5:]}],
        [{"type": "output_text", "text": TEXT}],
        [TEXT],
    ],
)
async def test_content_in_parts_is_read(server: model_server.Server, content: list[Any]):
    """The text of all parts together is the reply."""
    server.plan = Reply(choice={"message": {"role": "assistant", "content": content}})

    await ask(chat(server))


@pytest.mark.parametrize(
    "usage",
    [
        None,
        "many",
        [],
        {"prompt_tokens": "120", "completion_tokens": 7},
        {"prompt_tokens": -1, "completion_tokens": None},
        {"prompt_tokens": 120, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": None}},
        {"prompt_tokens": 120, "completion_tokens": 7, "completion_tokens_details": "none"},
    ],
)
async def test_odd_counts_of_tokens_cost_no_answer(server: model_server.Server, usage: Any):
    """Counts that are none are left out, and the answer stands."""
    good = model_replies.chat({}, TEXT, {})
    server.plan = Reply(body={**good, "usage": usage})
    said = await ask(chat(server))

    counted = isinstance(usage, dict) and usage.get("prompt_tokens") == 120
    assert (said.usage or {}).get("input_tokens") == (120 if counted else None)


@pytest.mark.parametrize("logprobs", ["none", {"content": [{"token": None}]}, {"content": "x"}, [], 3])
async def test_odd_probabilities_cost_no_answer(server: model_server.Server, logprobs: Any):
    """Token probabilities that cannot be read give no confidence, and the answer stands."""
    server.plan = model_replies.said('{"q0": "C", "q1": 0.75}', logprobs=logprobs)
    said = await ask(chat(server))

    assert said.confidence_source is None


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_an_answer_among_the_thoughts_is_asked_for_otherwise(server: model_server.Server, name: str):
    """Content null, the JSON among the thoughts: the next form is tried, and the one that helps is kept."""

    def plan(request: model_server.Request) -> Reply:
        if "response_format" in request.body:
            return Reply(choice={"message": {"role": "assistant", "content": None, name: TEXT}})
        return model_replies.tool_call(TEXT)

    server.plan = plan
    evaluator = chat(server)
    error = await refused(evaluator)
    await ask(evaluator)

    assert (error.counted, error.spent.usage) == (False, {"input_tokens": 120, "output_tokens": 7})
    assert len(server.requests) == 2


@pytest.mark.parametrize("content", [None, "", " \n"])
async def test_words_in_the_wrong_place_are_named(server: model_server.Server, content: str | None):
    """Where no form helps, the message says where the words were and what to do."""
    message = {"role": "assistant", "content": content, "reasoning_content": TEXT}
    server.plan = Reply(choice={"message": message})
    evaluator = chat(server)
    found = [await refused(evaluator) for _ in range(4)]

    assert [getattr(error, "counted", True) for error in found] == [False, False, False, True]
    assert found[-1].reason == "invalid_answer"
    assert "reasoning_content" in str(found[-1])


async def test_mere_thoughts_change_nothing(server: model_server.Server):
    """A reply that has thoughts and no answer anywhere is an invalid answer, and the form stays."""
    server.plan = Reply(choice={"message": {"role": "assistant", "content": "", "reasoning_content": "Hm."}})
    evaluator = chat(server)
    before = evaluator.mode
    error = await refused(evaluator)

    assert (error.reason, evaluator.mode) == ("invalid_answer", before)


# --- ends


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("error", "unavailable"),
        ("abort", "unavailable"),
        ("insufficient_system_resource", "unavailable"),
        ("banana", "invalid_answer"),
        (None, "invalid_answer"),
        (7, "invalid_answer"),
        ("content_filter", "content_filter"),
        ("model_length", "invalid_answer"),
        ("eos", None),
        ("tool_calls", None),
        ("STOP", None),
    ],
)
async def test_an_answer_has_a_known_good_end(server: model_server.Server, end: Any, expected: str | None):
    """A whole answer is taken only where its end is known to be good; an error is tried again."""
    server.plan = model_replies.said(TEXT, finish_reason=end)
    evaluator = chat(server, max_output_tokens=500)
    if expected is None:
        await ask(evaluator)
    else:
        error = await refused(evaluator)
        assert error.reason == expected
        assert isinstance(error, errors.EvaluatorUnavailable) == (end in (None, 7) or expected == "unavailable")
    assert len(server.requests) == 1


async def test_a_routers_error_in_a_choice_is_shown(server: model_server.Server):
    """OpenRouter puts what its provider broke off with into the choice."""
    server.plan = model_replies.said(TEXT, finish_reason="error", error={"code": 502, "message": "Upstream died"})
    error = await refused(chat(server))

    assert (error.reason, "Upstream died" in str(error)) == ("unavailable", True)


# --- what is no answer

ODD: dict[str, tuple[Reply, str]] = {
    "an error with 200": (Reply(200, {"error": {"message": "Provider returned error", "code": 502}}), "unavailable"),
    "a rate limit with 200": (Reply(200, {"error": {"message": "slow down", "code": 429}}), "rate_limited"),
    "an error in words with 200": (Reply(200, {"error": "busy"}), "unavailable"),
    "too long with 200": (Reply(200, {"error": "prompt is too long"}), "too_long"),
    "choices null": (Reply(200, {"id": "x", "choices": None}), "invalid_answer"),
    "choices of nothing": (Reply(200, {"id": "x", "choices": [None]}), "invalid_answer"),
    "choices in an object": (Reply(200, {"choices": {"message": {"content": TEXT}}}), "invalid_answer"),
    "message null": (Reply(200, {"choices": [{"message": None, "finish_reason": "stop"}]}), "invalid_answer"),
    "another protocol": (Reply(200, {"output": [{"content": TEXT}]}), "invalid_answer"),
    "a list": (Reply(200, [1]), "invalid_answer"),
    "a number": (Reply(200, "7"), "invalid_answer"),
    "null": (Reply(200, "null"), "invalid_answer"),
    "nothing": (Reply(200, ""), "unavailable"),
    "a page": (model_replies.html(), "unavailable"),
    "half a JSON": (model_replies.cut_json(), "unavailable"),
    "half a body": (model_replies.truncated(), "unavailable"),
    "a longer claim": (Reply(body={"choices": []}, claims_bytes=500), "unavailable"),
    "a shorter claim": (Reply(body={"choices": []}, claims_bytes=4), "unavailable"),
    "closed": (model_replies.closed(), "unavailable"),
    "a stream of events": (
        Reply(200, 'data: {"choices": []}\n\ndata: [DONE]\n\n', {"content-type": "text/event-stream"}),
        "invalid_answer",
    ),
    "no text": (Reply(200, b'{"choices": [{"message": {"content": "\xff\xfe"}}]}'), "invalid_answer"),
    "deep": (Reply(200, "[" * 30_000 + "]" * 30_000), "unavailable"),
    "a redirect": (Reply(302, "", {"location": "http://127.0.0.1:1/login?token=x"}), "EvaluatorMisconfigured"),
    "a permanent redirect": (Reply(308, "", {"location": "/v2/chat/completions"}), "EvaluatorMisconfigured"),
    "content as a number": (model_replies.said(7), "invalid_answer"),  # type: ignore[arg-type]
    "content as an object": (model_replies.said({"q0": "C"}), "invalid_answer"),  # type: ignore[arg-type]
    "brotli": (Reply(200, b"\x8b\x02\x80", {"content-encoding": "br"}), "invalid_answer"),
    "no gzip": (Reply(200, b"{}", {"content-encoding": "gzip"}), "invalid_answer"),
}


@pytest.mark.parametrize(("reply", "expected"), ODD.values(), ids=ODD)
async def test_what_cannot_be_read_has_a_reason(server: model_server.Server, reply: Reply, expected: str):
    """One request, one reason: JSON that is no completion is an invalid answer, trouble on the way is tried again."""
    server.plan = reply
    error = await refused(chat(server, max_output_tokens=500))

    assert getattr(error, "reason", type(error).__name__) == expected
    assert len(server.requests) == 1


async def test_a_redirect_says_where_to(server: model_server.Server):
    """It is not followed, and its query, which may be a secret, is not shown."""
    server.plan = Reply(307, "", {"location": "https://models.example/v1?sig=s3cret"})
    error = await refused(chat(server))

    assert "redirects to https://models.example/v1, which is not followed: set api_base" in str(error)


# --- on the way


async def test_a_proxy_of_the_environment_is_used(server: model_server.Server, monkeypatch: pytest.MonkeyPatch):
    """HTTP_PROXY takes the request to a host that only it can reach; NO_PROXY keeps it away."""
    monkeypatch.setenv("http_proxy", server.url)
    server.plan = model_replies.said(TEXT)
    await ask(Chat(Connection("openai/x", "http://models.invalid/v1", VARIABLE), Settings(logprobs="off")))
    monkeypatch.setenv("no_proxy", "away.invalid")
    away = Chat(Connection("openai/x", "http://away.invalid/v1", VARIABLE), Settings(logprobs="off"))
    error = await refused(away)

    assert (len(server.requests), server.requests[0].headers["host"]) == (1, "models.invalid")
    assert (error.reason, "No server was reached" in str(error)) == ("unavailable", True)


# --- bounds


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_compressed_reply_is_read(server: model_server.Server, coding: str):
    """Some servers compress although they were asked not to."""
    good = json.dumps(model_replies.chat({}, TEXT, {})).encode()
    data = gzip.compress(good) if coding == "gzip" else zlib.compress(good)
    server.plan = Reply(body=data, headers={"content-encoding": coding})

    await ask(chat(server))


MANY = 64 * 1024 * 1024
BOMB = gzip.compress(b" " * MANY)
TOO_MUCH = {
    "an answer": Reply(flood_bytes=MANY),
    "an error": Reply(400, {"error": "logprobs"}, flood_bytes=MANY),
    "an outage": Reply(503, {"error": "busy"}, flood_bytes=MANY),
    "a bomb": Reply(body=BOMB, headers={"content-encoding": "gzip"}),
    "a claim": Reply(body=b" " * 70_000),
}


@pytest.mark.parametrize("reply", TOO_MUCH.values(), ids=TOO_MUCH)
async def test_no_more_than_the_bound_is_read(server: model_server.Server, reply: Reply):
    """Beyond `reply_bytes_max` a reply is an invalid answer, whatever it was, and its connection is closed."""
    server.plan = reply
    error = await refused(chat(server))

    assert (error.reason, "reply_bytes_max" in str(error)) == ("invalid_answer", True)
    await eventually(lambda: server.running == 0 and (not reply.flood_bytes or server.connections == 0))


async def test_what_a_redirect_says_is_not_read(server: model_server.Server):
    """Its status says all."""
    server.plan = Reply(302, "", {"location": "/x"}, flood_bytes=MANY)

    assert isinstance(await refused(chat(server)), errors.EvaluatorMisconfigured)
    await eventually(lambda: server.connections == 0 and server.running == 0)


async def test_the_bound_is_the_tables(server: model_server.Server):
    """A reply of the bound's length is read, one byte more is not."""
    good = json.dumps(model_replies.chat({}, TEXT, {}))
    server.plan = Reply(body=good)
    await ask(chat(server, reply_bytes_max=len(good)))

    assert (await refused(chat(server, reply_bytes_max=len(good) - 1))).reason == "invalid_answer"


MEMORY = """
import asyncio, os, resource, sys

from facetline.evaluators.litellm_adapter import client as models
from facetline.evaluators.chat.evaluator import Chat
from facetline.evaluators.litellm_adapter.client import Connection
from facetline.facets import errors, questions

ASKED = {"urgent": questions.boolean(ask="Is it urgent?")}


async def main():
    evaluator = Chat(Connection(sys.argv[2], sys.argv[1], "KEY"))
    for number in range(2):
        try:
            await evaluator.evaluate("body", ASKED, key="k", deadline_s=60)
        except errors.InvalidAnswer as error:
            assert "reply_bytes_max" in str(error), error
        else:
            raise AssertionError
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)
        if number == 0:
            sys.stdin.readline()
    await models.close()


asyncio.run(main())
"""


@pytest.mark.parametrize("model", ["openai/x", "huggingface/x"], ids=["an adapter", "litellm"])
async def test_memory_does_not_grow_with_a_reply(server: model_server.Server, model: str):
    """A gigabyte of reply takes no more memory than its bound, whoever sends the request."""
    server.plan = Reply(body=b" " * 5_000_000)

    def run() -> tuple[int, int]:
        command = [sys.executable, "-c", MEMORY, server.chat_url, model]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": ROOT, "KEY": KEY}, **pipes) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            before = int(process.stdout.readline())
            server.plan = Reply(flood_bytes=1024 * 1024 * 1024)
            process.stdin.write("\n")
            process.stdin.flush()
            return before, int(process.stdout.readline())

    before_kib, after_kib = await asyncio.to_thread(run)
    assert after_kib - before_kib < 32 * 1024


def test_kib_is_the_unit_of_memory():
    """What the test above measures is in KiB on this system, or it would prove nothing."""
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 10_000
