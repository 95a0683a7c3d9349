"""What a model server's refusal says: its words and codes, wherever in the reply they stand. Pure.

Servers put them into `error.message`, `error`, `detail` (text, or a list of what is wrong where), `message`, `errors`
and more, routers wrap the words of the provider behind them, and proxies send plain text or a page.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from facetline.evaluators.litellm_adapter.http import HttpReply

WORDS_CHARS_MAX = 2000
"""Of a refusal; what is further on only quotes the request."""
DEPTH_MAX = 6
"""Levels of a refusal that are looked into; the deepest that was seen has four."""
PARTS_MAX = 8
"""Parts of a list of mistakes that are shown."""

WORDED = ("message", "Message", "msg", "error", "detail", "details", "errors", "error_description", "title", "reason")
"""Names of what holds words, the plainest first."""
CODED = ("code", "type", "status", "error_type", "__type", "param")
BEYOND = ("innererror", "metadata", "raw")
"""Where the words and codes of the upstream provider stand."""

MARKUP = re.compile(r"<(?:script|style)\b.*?</(?:script|style)>|<[^>]*>", re.DOTALL | re.IGNORECASE)
TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.DOTALL | re.IGNORECASE)


class ReplyRefused(Exception):
    """A model server's reply is no answer but a refusal, or names an error.

    Its parts have the names that litellm's exceptions use, so that one set of rules judges both
    (`evaluators.litellm_adapter.errors`, `evaluators.chat.request_modes`). `status_code` is 200 for an error in a
    reply that calls itself a success.
    """

    def __init__(self, reply: HttpReply, model: str, found: Any = None) -> None:
        self.status_code = _status_of(reply, found)
        self.headers = reply.headers
        self.model = model
        given = found if found is not None else parsed(reply.body)
        self.codes = tuple(_codes(given))
        self.message = (_plain(reply.body) if given is None else words_of(given)) or _phrase(self.status_code)
        super().__init__(self.message)


def parsed(body: bytes) -> Any:
    """Return what a body is as JSON, None where it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def words_of(given: Any) -> str:
    """Return a refusal's words, its own before those of the upstream provider."""
    found: list[str] = []
    for words in _words(given, 0):
        plain = " ".join(words.split())
        if plain and not any(plain in each for each in found):
            found.append(plain)
        if len(found) >= PARTS_MAX:
            break
    return "; ".join(found)[:WORDS_CHARS_MAX]


def _words(given: Any, depth: int) -> Iterator[str]:
    if depth > DEPTH_MAX:
        return
    if isinstance(given, str):
        inner = parsed(given.encode("utf-8", "replace")) if given.lstrip()[:1] in ("{", "[") else None
        if isinstance(inner, Mapping | list):
            yield from _words(inner, depth + 1)
        else:
            yield given
    elif isinstance(given, Mapping):
        yield from _of_mapping(given, depth)
    elif isinstance(given, Sequence) and not isinstance(given, bytes):
        for each in given[:PARTS_MAX]:
            yield from _words(each, depth + 1)


def _of_mapping(fields: Mapping[str, Any], depth: int) -> Iterator[str]:
    place = fields.get("loc")
    if isinstance(place, list) and isinstance(fields.get("msg"), str):
        yield f"{'.'.join(map(str, place))}: {fields['msg']}"
        return
    for name in (*WORDED, *BEYOND):
        if fields.get(name):
            yield from _words(fields[name], depth + 1)


def _codes(given: Any, depth: int = 0) -> Iterator[str]:
    if depth > DEPTH_MAX:
        return
    if isinstance(given, list):
        for each in given[:PARTS_MAX]:
            yield from _codes(each, depth + 1)
    elif isinstance(given, Mapping):
        for name in CODED:
            if isinstance(given.get(name), str | int) and not isinstance(given[name], bool):
                yield str(given[name])
        for name in ("error", "errors", "detail", "details", *BEYOND):
            yield from _codes(given.get(name), depth + 1)


def _plain(body: bytes) -> str:
    text = body[: WORDS_CHARS_MAX * 8].decode("utf-8", "replace")
    titled = TITLE.search(text)
    words = titled[1] if titled else MARKUP.sub(" ", text)
    return " ".join(words.split())[:WORDS_CHARS_MAX]


def _status_of(reply: HttpReply, found: Any) -> int:
    """Return the reply's status, or for an error in a success the one that the error names, as routers do."""
    if reply.status >= HTTPStatus.MULTIPLE_CHOICES or not isinstance(found, Mapping):
        return reply.status
    inner = found.get("error")
    for holder in (inner, found):
        for name in ("code", "status", "status_code"):
            code = holder.get(name) if isinstance(holder, Mapping) else None
            number = int(code) if isinstance(code, str) and code.isascii() and code.isdecimal() else code
            if isinstance(number, int) and HTTPStatus.BAD_REQUEST <= number < 600:  # noqa: PLR2004 (of HTTP)
                return number
    return reply.status


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "an error without words"
