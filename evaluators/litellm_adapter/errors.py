"""What a failed model call means for the document and for its evaluator: litellm's exceptions as our errors.

Judged by status code, code and words, not by class: litellm raises one class for a rate limit and for an empty account,
another for a closed connection and for an HTML page, and plain ones for statuses that it does not know. No exception of
a provider is imported here, so that this costs nothing and holds for all of them.
"""

import contextlib
import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Protocol

from facetline.evaluators.litellm_adapter import reply_words, retry_after
from facetline.facets import masking
from facetline.facets.errors import (
    EvaluationFailed,
    EvaluatorMisconfigured,
    EvaluatorUnavailable,
    InvalidAnswer,
    PipelineError,
)

WORDS_CHARS_MAX = 300
"""Of a provider's words: enough to act on; they may quote the document."""

SECRET_CHARS_MIN = 8
"""Shorter values of variables are words like `true`, and blacking them out would spoil the message."""

BLAMING = frozenset({400, 403, 413, 422})
"""Statuses by which providers refuse one request, whatever is wrong with it: the words must say what."""

PASSING = frozenset({409, 425})
"""Statuses below 500 that may pass by themselves; 408 and 429 have rules of their own."""

TRACEBACK = re.compile(r"\s*Traceback \(most recent call last\).*", re.DOTALL)
"""What litellm appends to some of its messages: lines of code, with paths of this machine."""
LOCAL_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[/\\][\w.@+~-]+){2,}\.py\b(?:(?:\", line |:)\d+)?")

NETWORK = re.compile(
    r"connect|timeout|network|protocol|transport|disconnect|ssl|oserror|socket|gaierror|client|read|write",
    re.IGNORECASE,
)
"""Parts of the names of exceptions that are about a connection."""

UNREACHED = re.compile(r"^connection error\.?$|cannot connect to host", re.IGNORECASE)
"""Words for which litellm invents a status: no server was reached at all."""
NOISE = re.compile(r" ssl:<[^>]*>| Handle with `litellm\.\w+`\.")
"""Parts of such messages that do not inform a reader."""
LOOK_WHERE = "No server was reached: look at api_base in {}, whether it runs, and at the network."

WORDLESS = re.compile(r"Error code: \d+\s*$")
"""What OpenAI's library makes of a refusal whose words are not where OpenAI has them."""

EMPTY = "The account behind the key in {} has nothing left: top it up."


class Named(Protocol):
    """What an error says of a connection: `models.Connection`."""

    @property
    def model(self) -> str:
        """The model's id with its provider."""

    @property
    def api_key_env(self) -> str | None:
        """The variable that holds the key."""

    @property
    def table(self) -> str:
        """Where it is configured."""


def translated(error: BaseException, connection: Named, *, now: datetime | None = None) -> PipelineError:
    """Return what `error` means: try again, fix the evaluator, or this body gets no answer.

    Its words are scrubbed of every key. `now` is what a Retry-After date is compared with where the provider's answer
    has no date of its own.
    """
    if isinstance(error, PipelineError):
        return error
    found = _ErrorReport(error, connection, now or datetime.now(UTC))
    for judge in (_by_kind, _by_body, _by_account, _by_status):
        verdict = judge(found)
        if verdict is not None:
            return verdict
    return EvaluationFailed("evaluator_error", found.because())


class _ErrorReport:
    """An exception's parts, whichever of its many forms it has."""

    def __init__(self, error: BaseException, connection: Named, now: datetime) -> None:
        self.kinds = frozenset(kind.__name__ for kind in type(error).__mro__)
        self.error = error
        self.connection = connection
        self.status = _status(error)
        self.headers = _headers(error)
        self.codes = frozenset(_codes(error))
        message = str(getattr(error, "message", None) or error)
        words = TRACEBACK.sub("", message)
        self.traceback = message[len(words) :]
        self.words = (_words_of_response(error) or words) if WORDLESS.search(words) else words
        self.retry_after_s = retry_after.seconds(self.headers, now=now)

    def says(self, pattern: re.Pattern[str]) -> bool:
        return pattern.search(self.words) is not None or any(pattern.search(code) for code in self.codes)

    @property
    def is_unreached(self) -> bool:
        """Whether no server was there to answer."""
        return UNREACHED.search(" ".join(_plain_words(self.words).split())) is not None

    @property
    def is_in_success(self) -> bool:
        """Whether a reply that calls itself a success is none: it names an error, or is no JSON."""
        return self.status is not None and self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def is_unread(self) -> bool:
        """Whether litellm failed at reading a reply, which it reports as a connection that failed."""
        if not self.traceback or "APIConnectionError" not in self.kinds:
            return False
        return NETWORK.search(self.traceback.strip().rpartition("\n")[2].partition(":")[0]) is None

    def because(self, fix: str = "") -> str:
        """Return the message: the model, the provider's words, and the way out."""
        words = " ".join(
            scrubbed(LOCAL_PATH.sub("…", NOISE.sub("", _plain_words(self.words))), self.connection).split()
        )
        if len(words) > WORDS_CHARS_MAX:
            words = f"{words[:WORDS_CHARS_MAX]}…"
        what = words or type(self.error).__name__
        # litellm gives a connection that failed the status 500.
        known = self.status is not None and "APIConnectionError" not in self.kinds and not self.is_unreached
        status = f" (HTTP {self.status})" if known else ""
        return f"{self.connection.model}{status}: {what}" + (f" {fix}" if fix else "")


LITELLM = re.compile(r"^\s*(?:(?:litellm\.)*\w+(?:Error|Timeout): |\w+Exception - )+")
"""What litellm puts before a provider's words, once for each class they went through."""

TOO_LONG = re.compile(
    r"context[ _]length|context window|maximum context|max(?:imum)? (?:input )?(?:prompt )?tokens?\b.*exceed|"
    r"(?:prompt|input|inputs|request|messages?|text) (?:is |are )?too (?:long|large)|too many (?:input )?tokens|"
    r"(?:exceed\w*|available|beyond) .{0,30}context|exceed_context_size|longer than the maximum model|max_model_len|"
    r"reduce the length of|inputs` tokens|input token count|"
    r"exceeds? (?:the )?(?:maximum|limit|model).{0,40}tokens|string_above_max_length|ContextWindowExceeded",
    re.IGNORECASE,
)
FILTERED = re.compile(
    r"content[ _-]?(?:filter|policy|management policy|moderation)|ContentPolicyViolation|safety (?:system|setting)|"
    r"flagged by moderation|moderation_blocked|prompt_?blocked|responsible ai",
    re.IGNORECASE,
)
QUOTA = re.compile(
    r"(?:exceeded|exhausted|used up) (?:your |the |its )?(?:\w+ ){0,2}quota|"
    r"quota (?:is |has been |was )?(?:used up|exhausted|exceeded)|no credits? (?:left|remaining)|"
    r"insufficient[ _](?:quota|credit|balance|fund)|exceeded your current quota|credit balance|"
    r"out of (?:credits?|funds|quota)|not enough credits?|payment required|"
    r"billing[ _](?:hard[ _]limit|not[ _]active|limit)|"
    r"(?:account|subscription) .{0,30}(?:suspended|deactivated|expired)",
    re.IGNORECASE,
)
SETUP = re.compile(
    r"unknown decisions provider|llm provider not provided|unmapped llm provider|api[ _]?key|api_base|credentials?\b|"
    r"model[ _`'\"]*not[ _]?found|unknown model|invalid model|model must be|no such model|"
    r"model .{0,80}(?:does not exist|is not (?:supported|available)|not found)|"
    r"decisions? provider '.{0,40}' cannot serve|invalid decisions request|supports the decision model|"
    r"does not support parameters|model name is required",
    re.IGNORECASE,
)
UNEXPECTED = re.compile(r"returned an unexpected response")
NO_CONFIDENCE = re.compile(r"answer has no confidence")
NO_MODULE = re.compile(r"No module named '")
NO_ANSWERS = re.compile(
    r"invalid json|answers: field required|input should be (?:an object|a valid dict)", re.IGNORECASE
)
REFUSAL = re.compile(r"refusal", re.IGNORECASE)
RETRY_IN = re.compile(r"(?:retry(?:[ _]?(?:delay|in|after))?)\W{1,6}(\d+(?:\.\d+)?)\s*(ms|s|m)\b", re.IGNORECASE)
"""A wish that is in the words only, as Google's `"retryDelay": "21s"`."""


def _by_kind(report: _ErrorReport) -> PipelineError | None:
    if report.kinds & {"TimeoutError", "Timeout", "APITimeoutError"} or report.status == HTTPStatus.REQUEST_TIMEOUT:
        return EvaluatorUnavailable(report.because(), reason="timeout", retry_after_s=report.retry_after_s)
    if "ImportError" in report.kinds or (report.is_unread and NO_MODULE.search(report.words)):
        return EvaluatorMisconfigured(report.because("A library is missing: install facetline's dependencies again."))
    if report.kinds & {"UnsupportedParamsError", "BudgetExceededError"}:
        is_budget = "BudgetExceededError" in report.kinds
        fix = "" if is_budget else f"The model does not take what {report.connection.table} asks for."
        return EvaluatorMisconfigured(report.because(fix))
    if report.is_unread or report.kinds & {"JSONSchemaValidationError", "APIResponseValidationError"}:
        return InvalidAnswer(report.because())
    return None


def _by_body(report: _ErrorReport) -> PipelineError | None:
    """Judge what the body is to blame for: it is too long, or a filter stopped it."""
    if report.status not in BLAMING and not report.is_in_success:
        return None
    long = report.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or "ContextWindowExceededError" in report.kinds
    if long or report.says(TOO_LONG):
        return EvaluationFailed("too_long", report.because("The body is longer than the model takes."))
    if "ContentPolicyViolationError" in report.kinds or report.says(FILTERED):
        return EvaluationFailed("content_filter", report.because())
    return None


def _by_account(report: _ErrorReport) -> PipelineError | None:
    """Judge key, account and address."""
    key = report.connection.api_key_env
    variable = key or "the provider's own variable (or name one by api_key_env)"
    if report.status == HTTPStatus.TOO_MANY_REQUESTS:
        return _too_many(report, variable)
    if report.status == HTTPStatus.PAYMENT_REQUIRED:
        return EvaluatorMisconfigured(report.because(EMPTY.format(variable)))
    if report.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return EvaluatorMisconfigured(report.because(f"Look at the key in {variable}."))
    if report.status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        return EvaluatorMisconfigured(report.because(f"Look at model and api_base in {report.connection.table}."))
    if (report.status in BLAMING or report.is_in_success) and (report.says(QUOTA) or report.says(SETUP)):
        return EvaluatorMisconfigured(report.because(f"Look at model, api_base and key in {report.connection.table}."))
    return None


def _redirected(report: _ErrorReport) -> str:
    to = report.headers.get("location", "")
    where = f" to {to.partition('?')[0]:.200}" if to.isprintable() and to else ""
    return f"It redirects{where}, which is not followed: set api_base to the server's own address."


def _too_many(report: _ErrorReport, variable: str) -> PipelineError:
    retry_after_s = _retry_after_s(report)
    if retry_after_s is None and report.says(QUOTA):
        return EvaluatorMisconfigured(report.because(EMPTY.format(variable)))
    return EvaluatorUnavailable(report.because(), reason="rate_limited", retry_after_s=retry_after_s)


def _by_status(report: _ErrorReport) -> PipelineError | None:
    if report.status in (None, HTTPStatus.INTERNAL_SERVER_ERROR) and UNEXPECTED.search(report.words):
        return _unexpected(report)
    if report.status is None:
        away = report.kinds & {"APIConnectionError", "OSError", "HTTPError", "TransportError", "ClientError"}
        return (
            EvaluatorUnavailable(report.because(_look_where(report) if report.is_unreached else "")) if away else None
        )
    if HTTPStatus.MULTIPLE_CHOICES <= report.status < HTTPStatus.BAD_REQUEST:
        return EvaluatorMisconfigured(report.because(_redirected(report)))
    if report.is_unreached:
        return EvaluatorUnavailable(report.because(_look_where(report)))
    if report.is_in_success or report.status in PASSING or report.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return EvaluatorUnavailable(report.because(), retry_after_s=_retry_after_s(report))
    return None


def _look_where(report: _ErrorReport) -> str:
    return LOOK_WHERE.format(report.connection.table)


def _unexpected(report: _ErrorReport) -> PipelineError:
    """Judge a decision model's answer that litellm refused: no answer at all is the server's trouble."""
    if NO_CONFIDENCE.search(report.words):
        fix = "This provider must give a confidence; use a model that does, or kind 'chat'."
        return EvaluatorMisconfigured(report.because(fix))
    if NO_ANSWERS.search(report.words):
        return EvaluatorUnavailable(report.because(), retry_after_s=report.retry_after_s)
    if REFUSAL.search(report.words):
        return EvaluationFailed("refused", report.because())
    return InvalidAnswer(report.because())


def _words_of_response(error: BaseException) -> str:
    """Return the words of the reply behind an error, if it was kept."""
    with contextlib.suppress(RuntimeError):  # httpx's, for a reply that was not read
        text = getattr(getattr(error, "response", None), "text", None)
        if isinstance(text, str) and text:
            return reply_words.words_of(reply_words.parsed(text.encode("utf-8", "replace")) or text)
    return ""


def _plain_words(words: str) -> str:
    """Return a provider's sentence without litellm's prefixes and the JSON around it."""
    plain = LITELLM.sub("", words)
    try:
        data = json.loads(plain)
    except (ValueError, RecursionError):
        return plain
    inner = data.get("error", data) if isinstance(data, dict) else None
    message = inner.get("message") if isinstance(inner, dict) else inner
    return message if isinstance(message, str) and message else plain


def _retry_after_s(report: _ErrorReport) -> float | None:
    if report.retry_after_s is not None:
        return report.retry_after_s
    found = RETRY_IN.search(report.words)
    if found is None:
        return None
    return retry_after.believed(float(found[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0}[found[2].lower()])


def scrubbed(words: str, connection: Named) -> str:
    """Return `words` without the connection's key, any other secret of the environment, and what looks like one."""
    own = connection.api_key_env
    values = {value.strip() for name, value in os.environ.items() if name == own or masking.is_secret(name)}
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= SECRET_CHARS_MIN:
            words = words.replace(value, "***")
    return masking.scrubbed(words)


def _status(error: BaseException) -> int | None:
    for holder in (error, getattr(error, "response", None)):
        status = getattr(holder, "status_code", None)
        if isinstance(status, int) and not isinstance(status, bool):
            return status
        if isinstance(status, str) and status.isdecimal():
            return int(status)
    return None


def _headers(error: BaseException) -> dict[str, str]:
    """Return the answer's headers, names in lower case, from wherever litellm kept them."""
    found: dict[str, str] = {}
    response = getattr(error, "response", None)
    places = (getattr(response, "headers", None), getattr(error, "litellm_response_headers", None))
    for holder in (*places, getattr(error, "headers", None)):
        if isinstance(holder, Mapping):
            found.update({_plain(name): str(value) for name, value in holder.items()})
    return found


def _plain(name: Any) -> str:
    return str(name).lower().removeprefix("llm_provider-")


def _codes(error: BaseException) -> list[str]:
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    holders = [error.__dict__, inner] if hasattr(error, "__dict__") else [inner]
    own = getattr(error, "codes", ())
    return [*(own if isinstance(own, tuple) else ())] + [
        str(holder[name])
        for holder in holders
        if isinstance(holder, Mapping)
        for name in ("code", "type")
        if isinstance(holder.get(name), str | int)
    ]
