"""What the loopback model server says: good answers of both protocols, and every bad one that a provider can give.

A `Reply` is one HTTP answer. Those without a `body` hold a good answer to whatever was asked: each question's option
whose key stands in the body, else its first one.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

CHAT_PATH = "/chat/completions"
CONFIDENCE = 0.87
MODEL = "loopback-1"
"""The id that the server reports, whatever it was asked for."""
USAGE = {"input": 120, "output": 7}

Asked = dict[str, Any]
"""A request's JSON body."""


@dataclass(frozen=True)
class Reply:
    """One answer, and how it comes.

    `body` is the body itself (text or JSON), or makes one of the request; None is a good answer, over which `answers`
    (decision protocols, by question id; None leaves one out) or `content` and `choice` (chat) are laid.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, Any] = field(default_factory=dict)
    content: str | Callable[[Asked], str] | None = None
    choice: Mapping[str, Any] = field(default_factory=dict)
    """Parts of the chat reply's only choice, for example `{"logprobs": …, "finish_reason": "length"}`."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Parts of the reply's outermost object, for example `{"model": "other", "usage": None}`."""
    after_s: float = 0.0
    drip_s: float | None = None
    """One byte each so many seconds, without an end."""
    hang: bool = False
    """Not one byte, without an end."""
    cut: bool = False
    """Half of the body, then the connection is closed."""
    drop: bool = False
    """The connection is closed without one byte."""
    flood_bytes: int = 0
    """So many bytes of white space before the body."""
    claims_bytes: int | None = None
    """A Content-Length that is not the body's."""

    def data(self, path: str, asked: Asked) -> bytes:
        """Return the HTTP body."""
        return self.body if isinstance(self.body, bytes) else self.text(path, asked).encode()

    def text(self, path: str, asked: Asked) -> str:
        """Return the HTTP body as text."""
        body = self.body(asked) if callable(self.body) else self.body
        if body is None:
            body = self._good(path, asked)
        return body if isinstance(body, str) else json.dumps(body)

    def _good(self, path: str, asked: Asked) -> dict[str, Any]:
        if path.endswith(CHAT_PATH):
            good = chat(asked, self.content, self.choice)
        elif isinstance(asked.get("questions"), list):
            good = openai_decisions(asked, self.answers)
        else:
            good = systemone(asked, self.answers)
        return {name: value for name, value in {**good, **self.extra}.items() if value is not None}


GOOD = Reply()


def hang() -> Reply:
    """Accept the request and never say a word."""
    return Reply(hang=True)


def drip(every_s: float = 1.0) -> Reply:
    """One byte at a time."""
    return Reply(drip_s=every_s)


def closed() -> Reply:
    """Close the connection."""
    return Reply(drop=True)


def truncated() -> Reply:
    """Close it in the middle of a body."""
    return Reply(cut=True)


def error(status: int, message: str = "scripted", *, code: str | None = None, **headers: str) -> Reply:
    """An error in OpenAI's form; header names with underscores for dashes."""
    body = {"error": {"message": message, "type": code or "error", "code": code, "param": None}}
    return Reply(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


def too_many(*, retry_after: str | None = None, retry_after_ms: str | None = None) -> Reply:
    """429, as a rate limit; both headers are optional."""
    headers = {"retry_after": retry_after, "retry_after_ms": retry_after_ms}
    return error(429, "Rate limit reached", code="rate_limit_exceeded", **{k: v for k, v in headers.items() if v})


def too_many_until(seconds: float) -> Reply:
    """429 with a date `seconds` from now in its Retry-After."""
    return too_many(retry_after=format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True))


def quota() -> Reply:
    """429, as an account that is used up."""
    message = "You exceeded your current quota, please check your plan and billing details."
    return error(429, message, code="insufficient_quota")


def unauthorized(key: str = "sk-wrong-0123456789") -> Reply:
    """401, with the key in its words, as some providers do."""
    return error(401, f"Incorrect API key provided: {key}.", code="invalid_api_key")


def too_long() -> Reply:
    """400, as a body beyond the model's context."""
    message = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
    return error(400, message, code="context_length_exceeded")


def filtered() -> Reply:
    """400, as a content filter."""
    message = "The response was filtered due to the prompt triggering the content management policy."
    return error(400, message, code="content_filter")


def html() -> Reply:
    """200 with a page, as a proxy in between gives it."""
    return Reply(body="<html><body>Please log in</body></html>", headers={"content-type": "text/html"})


def cut_json() -> Reply:
    """200 whose JSON ends in the middle."""
    return Reply(body='{"model": "loopback-1", "answers": {"topic": {"type": "cho')


def no_choices() -> Reply:
    """A chat reply with an empty list of choices."""
    return Reply(extra={"choices": []})


def refusal(words: str = "I can't help with that.") -> Reply:
    """A chat reply whose message is a refusal."""
    return Reply(choice={"message": {"role": "assistant", "content": None, "refusal": words}})


def said(content: str | None, **choice: Any) -> Reply:
    """A chat reply with this content; further parts of its choice by name (`finish_reason`, `logprobs`)."""
    return Reply(choice={"message": {"role": "assistant", "content": content}, **choice})


def tool_call(*arguments: str, name: str | None = None) -> Reply:
    """A chat reply that calls a tool (the request's first one) once for each of `arguments`."""

    def body(asked: Asked) -> dict[str, Any]:
        called = name or asked["tools"][0]["function"]["name"]
        calls = [_call(index, called, text) for index, text in enumerate(arguments)]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
        return chat(asked, None, {"message": message, "finish_reason": "tool_calls"})

    return Reply(body=body)


def logprobs(*tokens: tuple[str, float] | tuple[str, float, Mapping[str, float]]) -> dict[str, Any]:
    """Return a choice's `logprobs`: token, log-probability, and its alternatives."""
    content = []
    for token, logprob, *rest in tokens:
        others = rest[0] if rest else {}
        top = [{"token": other, "logprob": value, "bytes": list(other.encode())} for other, value in others.items()]
        content.append({"token": token, "logprob": logprob, "bytes": list(token.encode()), "top_logprobs": top})
    return {"content": content, "refusal": None}


def systemone(asked: Asked, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a good answer to `POST /v1/systemone`."""
    state = str(asked.get("state"))
    good = {name: _systemone_answer(question, state) for name, question in asked.get("questions", {}).items()}
    answers = {name: answer for name, answer in {**good, **changes}.items() if answer is not None}
    usage = {"input_tokens": USAGE["input"], "output_tokens": USAGE["output"]}
    return {"model": MODEL, "answers": answers, "usage": usage}


def _systemone_answer(question: Mapping[str, Any], state: str) -> dict[str, Any]:
    if question["type"] == "noul":
        return {"type": "noul", "noul": 0.75}
    if question["type"] == "choice":
        shares = _shares(list(question["criteria"]), state)
        return {
            "type": "choice",
            "choice": max(shares, key=shares.__getitem__),
            "probabilities": shares,
            "confidence": CONFIDENCE,
        }
    levels = question["criteria"]
    shares = _by_index(levels, state)
    return {
        "type": "score",
        "score": round(sum(int(index) * share for index, share in shares.items()), 2),
        "legend": {str(index): level for index, level in enumerate(levels)},
        "probabilities": shares,
        "confidence": CONFIDENCE,
    }


def openai_decisions(asked: Asked, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a good answer to `POST /v1/decisions` in OpenAI's form."""
    state = str(asked.get("input"))
    good = [changes.get(question["name"]) or _openai_answer(question, state) for question in asked["questions"]]
    usage = {"input_tokens": USAGE["input"], "output_tokens": USAGE["output"], "total_tokens": sum(USAGE.values())}
    return {"model": MODEL, "answers": good, "usage": usage}


def _openai_answer(question: Mapping[str, Any], state: str) -> dict[str, Any]:
    answer = {"type": question["type"], "name": question["name"]}
    if question["type"] == "predicate":
        return {**answer, "probability": 0.75}
    if question["type"] == "choice":
        shares = _shares([option["value"] for option in question["choices"]], state)
        listed = [{"value": value, "probability": share} for value, share in shares.items()]
        chosen = max(shares, key=shares.__getitem__)
        return {**answer, "choice": chosen, "probabilities": listed, "confidence": CONFIDENCE}
    levels = [level["label"] for level in question["levels"]]
    shares = _by_index(levels, state)
    listed = [
        {"value": int(index), "label": levels[int(index)], "probability": share} for index, share in shares.items()
    ]
    score = round(sum(int(index) * share for index, share in shares.items()), 2)
    return {**answer, "score": score, "probabilities": listed, "confidence": CONFIDENCE}


def _shares(names: list[str], state: str) -> dict[str, float]:
    """Return two-decimal probabilities that add up to 1, the highest for the name that stands in `state`."""
    chosen = next((name for name in names if name in state), names[0])
    rest = (20 // (len(names) - 1)) / 100 if len(names) > 1 else 0.0
    shares = dict.fromkeys(names, rest)
    shares[chosen] = round(1 - rest * (len(names) - 1), 2)
    return shares


def _by_index(levels: list[str], state: str) -> dict[str, float]:
    return {str(index): share for index, share in enumerate(_shares(levels, state).values())}


def chat(asked: Asked, content: str | Callable[[Asked], str] | None, choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return a good answer to `POST …/chat/completions`: by its schema, or as a call of its tool where it has one."""
    text = content(asked) if callable(content) else content
    message: dict[str, Any] = {"role": "assistant", "content": text}
    finish = "stop"
    if text is None and asked.get("tools"):
        function = asked["tools"][0]["function"]
        text = json.dumps(_fitting(function["parameters"]))
        message, finish = {"role": "assistant", "content": None, "tool_calls": [_call(0, function["name"], text)]}, ""
    elif text is None:
        schema = (asked.get("response_format") or {}).get("json_schema", {}).get("schema", {})
        message["content"] = json.dumps(_fitting(schema))
    made = {"index": 0, "message": message, "finish_reason": finish or "tool_calls", **choice}
    usage = {"prompt_tokens": USAGE["input"], "completion_tokens": USAGE["output"], "total_tokens": sum(USAGE.values())}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": [made],
        "usage": usage,
    }


def _fitting(schema: Mapping[str, Any]) -> Any:
    """Return the first thing that fits a schema: the first of an enum, 0.75 for a number."""
    if "enum" in schema:
        return schema["enum"][0]
    if "properties" in schema:
        return {name: _fitting(part) for name, part in schema["properties"].items()}
    return {"number": 0.75, "integer": 0, "string": "", "boolean": True}.get(str(schema.get("type")), {})


def _call(index: int, name: str, arguments: str) -> dict[str, Any]:
    return {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
