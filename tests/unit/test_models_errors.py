"""What a failed model call means: every row of what providers were seen to do, without a network or litellm.

Method: exceptions in the forms that litellm was seen to raise (class name, status, words, code, headers);
tests/integration/test_decisions.py and test_chat.py raise the real ones.
"""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from facetline.evaluators.litellm_adapter import client
from facetline.evaluators.litellm_adapter import errors as model_errors
from facetline.evaluators.litellm_adapter.client import Connection
from facetline.facets import errors

NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)
CONNECTION = Connection("openai/gpt-x", api_key_env="FACETLINE_TEST_MODEL_KEY")
KEY = "sk-proj-0123456789abcdef"

Expected = tuple[type[errors.PipelineError], str | None]
UNAVAILABLE: Expected = (errors.EvaluatorUnavailable, "unavailable")
RATE_LIMITED: Expected = (errors.EvaluatorUnavailable, "rate_limited")
TIMEOUT: Expected = (errors.EvaluatorUnavailable, "timeout")
MISCONFIGURED: Expected = (errors.EvaluatorMisconfigured, None)
TOO_LONG: Expected = (errors.EvaluationFailed, "too_long")
FILTERED: Expected = (errors.EvaluationFailed, "content_filter")
REFUSED: Expected = (errors.EvaluationFailed, "refused")
INVALID: Expected = (errors.InvalidAnswer, "invalid_answer")
FAILED: Expected = (errors.EvaluationFailed, "evaluator_error")


def raised(
    name: str,
    status: int | str | None = None,
    words: str = "scripted",
    *,
    headers: dict[str, str] | None = None,
    **parts: Any,
) -> Exception:
    """Return an exception as litellm raises it: a class by name, its parts as attributes."""
    error = type(name, (Exception,), {})(words)
    error.message = f"litellm.{name}: {words}"
    if status is not None:
        error.status_code = status
    if headers is not None:
        error.litellm_response_headers = headers
    for part, value in parts.items():
        setattr(error, part, value)
    return error


def meaning(error: Exception) -> Expected:
    """Return our error's class and its reason."""
    found = model_errors.translated(error, CONNECTION, now=NOW)
    return type(found), getattr(found, "reason", None)


UNEXPECTED = "TypesafeException - Decisions provider 'typesafe' returned an unexpected response: "

CASES: list[tuple[str, Exception, Expected]] = [
    ("row 35: 500", raised("InternalServerError", 500), UNAVAILABLE),
    ("row 35: 502", raised("BadGatewayError", 502), UNAVAILABLE),
    ("row 35: 503", raised("ServiceUnavailableError", 503), UNAVAILABLE),
    ("row 35: 529, a status litellm has no class for", raised("APIError", 529), UNAVAILABLE),
    ("row 35: a status in words", raised("APIError", "529"), UNAVAILABLE),
    ("row 35: 409", raised("APIError", 409), UNAVAILABLE),
    ("row 35: closed connection", raised("APIConnectionError", 500, "Server disconnected"), UNAVAILABLE),
    ("row 35: no connection at all", raised("APIConnectionError", None, "refused"), UNAVAILABLE),
    ("row 35: a socket's own error", ConnectionResetError("reset by peer"), UNAVAILABLE),
    (
        "row 35: a page instead of JSON",
        raised("InternalServerError", 500, f"{UNEXPECTED}any Invalid JSON"),
        UNAVAILABLE,
    ),
    (
        "row 35: an object without answers",
        raised("InternalServerError", 500, f"{UNEXPECTED}DecisionsResponse answers: Field required"),
        UNAVAILABLE,
    ),
    ("row 34: the client's own timeout", raised("Timeout", 408), TIMEOUT),
    ("row 34: a timeout below", TimeoutError(), TIMEOUT),
    ("row 31: 429", raised("RateLimitError", 429, "Rate limit reached"), RATE_LIMITED),
    ("row 31: 429 without words", raised("RateLimitError", 429, ""), RATE_LIMITED),
    (
        "row 31: quota words for a limit per minute, with the time to wait",
        raised("RateLimitError", 429, "You exceeded your current quota. Please retry in 21.5s"),
        RATE_LIMITED,
    ),
    (
        "row 31: quota words with a Retry-After",
        raised("RateLimitError", 429, "You exceeded your current quota", headers={"retry-after": "3"}),
        RATE_LIMITED,
    ),
    ("row 32: quota by code", raised("RateLimitError", 429, "no", code="insufficient_quota"), MISCONFIGURED),
    (
        "row 32: quota by the body's code",
        raised("RateLimitError", 429, "no", body={"error": {"code": "insufficient_quota"}}),
        MISCONFIGURED,
    ),
    ("row 32: quota by words", raised("RateLimitError", 429, "Your credit balance is too low"), MISCONFIGURED),
    ("row 32: credit in a 400", raised("BadRequestError", 400, "Your credit balance is too low"), MISCONFIGURED),
    ("row 32: a budget", raised("BudgetExceededError", None, "Budget has been exceeded"), MISCONFIGURED),
    ("row 36: 401", raised("AuthenticationError", 401), MISCONFIGURED),
    ("row 36: 402", raised("APIError", 402), MISCONFIGURED),
    ("row 36: 403", raised("PermissionDeniedError", 403), MISCONFIGURED),
    ("row 36: 404", raised("NotFoundError", 404), MISCONFIGURED),
    ("row 36: 405", raised("APIError", 405), MISCONFIGURED),
    ("row 36: a wrong key as 400", raised("BadRequestError", 400, "API key not valid."), MISCONFIGURED),
    ("row 36: no such model as 400", raised("BadRequestError", 400, "no", code="model_not_found"), MISCONFIGURED),
    ("row 36: no such provider", raised("BadRequestError", 400, "LLM Provider NOT provided"), MISCONFIGURED),
    (
        "row 36: no decision protocol",
        raised("BadRequestError", 400, "Unknown Decisions provider 'anthropic'"),
        MISCONFIGURED,
    ),
    ("row 36: no address", raised("BadRequestError", 400, "api_base is required for Decisions"), MISCONFIGURED),
    ("row 26: a parameter", raised("UnsupportedParamsError", 400, "does not support logprobs"), MISCONFIGURED),
    ("a library that is not there", ModuleNotFoundError("No module named 'litellm'"), MISCONFIGURED),
    ("row 28: by class", raised("ContextWindowExceededError", 400), TOO_LONG),
    (
        "row 28: by words",
        raised("BadRequestError", 400, "This model's maximum context length is 8192 tokens."),
        TOO_LONG,
    ),
    ("row 28: by code", raised("BadRequestError", 400, "no", code="context_length_exceeded"), TOO_LONG),
    ("row 28: 413", raised("APIError", 413), TOO_LONG),
    ("row 10: by class", raised("ContentPolicyViolationError", 400), FILTERED),
    ("row 10: by code", raised("BadRequestError", 400, "no", code="content_filter"), FILTERED),
    ("row 10: as 403", raised("APIError", 403, "Your input was flagged by moderation"), FILTERED),
    (
        "row 9: a refusal that litellm cannot read",
        raised("InternalServerError", 500, f"{UNEXPECTED}answers.topic: Input tag 'refusal' found"),
        REFUSED,
    ),
    (
        "row 21: no confidence",
        raised("InternalServerError", 500, f"{UNEXPECTED}a choice or score answer has no confidence"),
        MISCONFIGURED,
    ),
    (
        "row 14: no number",
        raised("InternalServerError", 500, f"{UNEXPECTED}answers.s.score: Input should be a valid number"),
        INVALID,
    ),
    ("a schema that the answer breaks", raised("JSONSchemaValidationError", 500), INVALID),
    ("row 37: any other refusal is about this body", raised("BadRequestError", 400, "bad input"), FAILED),
    ("row 37: 422", raised("UnprocessableEntityError", 422), FAILED),
    ("row 37: anything else", KeyError("choices"), FAILED),
]


@pytest.mark.parametrize(("error", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_failure_has_its_meaning(error: Exception, expected: Expected):
    """Try again, mend the evaluator, or this body gets no answer: by status, code and words."""
    assert meaning(error) == expected


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("InternalServerError", "InternalServerError: OpenAIException - Connection error."),
        (
            "APIConnectionError",
            "OllamaException - Cannot connect to host 127.0.0.1:1 ssl:<ssl.SSLContext at 0x7e> [no]",
        ),
        (
            "InternalServerError",
            "AnthropicException - Cannot connect to host h:1 ssl:<None> [no]. Handle with `litellm.X`.",
        ),
    ],
)
def test_a_server_that_is_not_there_has_no_status(name: str, words: str):
    """The status 500 that litellm gives it is one that nobody said; the message says where to look instead."""
    found = model_errors.translated(raised(name, 500, words), CONNECTION)

    assert isinstance(found, errors.EvaluatorUnavailable)
    assert "HTTP" not in found.message
    assert "ssl:" not in found.message
    assert found.message.endswith(model_errors.LOOK_WHERE.format("the evaluator's table"))


def test_our_own_errors_pass():
    """What is one of ours already stays as it is."""
    error = errors.InvalidAnswer("no")

    assert model_errors.translated(error, CONNECTION) is error


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"llm_provider-retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Sun, 29 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Sun, 29 Nov 2026 12:00:30 GMT", "date": "Sun, 29 Nov 2026 12:00:20 GMT"}, 10.0),
        ({"retry-after": "Sun, 29 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "99999999"}, 86400.0),
        ({"retry-after": "-4"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_the_wish_to_be_left_alone_is_read(headers: dict[str, str], seconds: float | None):
    """Seconds, milliseconds and dates (by the provider's own clock); at most a day, and nothing for nonsense."""
    found = model_errors.translated(raised("RateLimitError", 429, headers=headers), CONNECTION, now=NOW)

    assert isinstance(found, errors.EvaluatorUnavailable)
    assert found.retry_after_s == seconds


def test_the_wish_may_be_in_the_response_or_in_the_words():
    """Headers are found on the response too; Google says it in the body only."""
    on_response = raised("RateLimitError", 429, response=SimpleNamespace(headers={"Retry-After": "4"}, status_code=429))
    in_words = raised("RateLimitError", 429, 'quota exceeded per minute, "retryDelay": "21s"')

    wishes = [model_errors.translated(error, CONNECTION).retry_after_s for error in (on_response, in_words)]  # type: ignore[attr-defined]
    assert wishes == [4.0, 21.0]


@pytest.mark.parametrize(
    "words",
    [
        f"Incorrect API key provided: {KEY}.",
        "Incorrect API key provided: sk-proj-****cdef.",
        f"Authorization: Bearer {KEY}",
        "cannot reach http://someone:s3cretword@host/v1",
        "the token hf_abcdefgh12345678 is refused",
    ],
)
def test_no_key_gets_into_a_message(words: str, monkeypatch: pytest.MonkeyPatch):
    """Neither ours nor any other secret of the environment, nor what looks like one."""
    monkeypatch.setenv("FACETLINE_TEST_MODEL_KEY", KEY)
    monkeypatch.setenv("SOME_HUB_TOKEN", "hf_abcdefgh12345678")

    message = str(model_errors.translated(raised("AuthenticationError", 401, words), CONNECTION))
    for secret in (KEY, "cdef", "s3cretword", "hf_abcdefgh12345678"):
        assert secret not in message
    assert "FACETLINE_TEST_MODEL_KEY" in message


def test_a_message_is_the_providers_sentence():
    """Model, status and words, without litellm's prefixes and the JSON around them, and never more than some words."""
    error = raised("RateLimitError", 429, 'TypesafeException - {"error": {"message": "Slow down", "code": null}}')
    long = raised("InternalServerError", 500, "x" * 5000)

    assert str(model_errors.translated(error, CONNECTION)) == "openai/gpt-x (HTTP 429): Slow down"
    assert len(str(model_errors.translated(long, CONNECTION))) < 400


async def test_a_missing_key_is_named_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch):
    """Without its variable no call is made; the message names the variable."""
    monkeypatch.delenv("FACETLINE_TEST_MODEL_KEY", raising=False)

    with pytest.raises(errors.EvaluatorMisconfigured, match="FACETLINE_TEST_MODEL_KEY is not set"):
        await client.call("acompletion", CONNECTION, deadline_s=5)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (SimpleNamespace(prompt_tokens=3, completion_tokens=2), {"input_tokens": 3, "output_tokens": 2}),
        (SimpleNamespace(input_tokens=3, output_tokens=0), {"input_tokens": 3, "output_tokens": 0}),
        ({"input_tokens": 3}, {"input_tokens": 3}),
        (SimpleNamespace(input_tokens=0, output_tokens=0), None),
        (SimpleNamespace(prompt_tokens=None, completion_tokens=True), None),
        ({"prompt_tokens": -1}, None),
        (None, None),
    ],
)
def test_token_counts_are_what_was_reported(usage: Any, expected: dict[str, int] | None):
    """Both protocols' names; nothing is made up for what was not said."""
    assert client.usage_of(SimpleNamespace(usage=usage)) == expected
