"""From a chat reply's bytes to the JSON object that litellm's adapters read. Pure."""

import json
from http import HTTPStatus
from typing import Any

from facetline.evaluators.litellm_adapter.http import HttpReply
from facetline.evaluators.litellm_adapter.reply_words import ReplyRefused
from facetline.facets.errors import InvalidAnswer


def object_of(reply: HttpReply, model: str) -> dict[str, Any]:
    """Return the JSON object that a reply is.

    Raises:
        ReplyRefused: its status refuses, it names an error, or it is no JSON.
        InvalidAnswer: it is JSON of another kind, or not text.
    """
    if reply.status >= HTTPStatus.MULTIPLE_CHOICES:
        raise ReplyRefused(reply, model)
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError) as error:
        if reply.body.lstrip().startswith((b"data:", b"event:")):
            raise InvalidAnswer(f"{model}: the reply is a stream of events, which was not asked for.") from error
        if not is_text(reply.body):
            raise InvalidAnswer(f"{model}: the reply is not text in UTF-8.") from error
        raise ReplyRefused(reply, model) from error
    if isinstance(found, dict) and found.get("error") and not found.get("choices"):
        raise ReplyRefused(reply, model, found)
    if not isinstance(found, dict):
        raise InvalidAnswer(f"{model}: the reply is not a JSON object.")
    return found


def is_text(body: bytes) -> bool:
    """Whether a body is UTF-8."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def readable(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a reply without what litellm's reading stumbles over and we read for ourselves, or not at all.

    Content in parts becomes their text, token probabilities are left out (`raw` keeps them), and of the counts of
    tokens only those stay that are counts.
    """
    choices, usage = raw.get("choices"), raw.get("usage")
    made = dict(raw)
    if isinstance(choices, list):
        made["choices"] = [_readable_choice(choice) for choice in choices[:1]]
    if "usage" in raw and not isinstance(usage, dict):
        del made["usage"]
    elif isinstance(usage, dict):
        made["usage"] = {name: count for name, count in usage.items() if _is_usage(count)}
    return made


def _readable_choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    made = {name: part for name, part in choice.items() if name != "logprobs"}
    message = choice.get("message")
    if isinstance(message, dict) and isinstance(message.get("content"), list):
        made["message"] = {**message, "content": text_of(message["content"])}
    return made


def text_of(parts: list[Any]) -> str:
    """Return the text of content that comes in parts, without the parts that are thoughts or no text."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and part.get("type", "text") in ("text", "output_text"):
            text = part.get("text", part.get("content"))
            value = text.get("value") if isinstance(text, dict) else text
            texts.append(value if isinstance(value, str) else "")
    return "".join(texts)


def _is_usage(count: Any) -> bool:
    if isinstance(count, dict):
        return all(isinstance(part, int) and part >= 0 for part in count.values())
    return isinstance(count, int | float) and not isinstance(count, bool) and count >= 0
