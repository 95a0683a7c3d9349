"""Bounded JSON parsing of request bodies, in time linear in their length.

Parsing holds the interpreter lock, and its time depends on the number of names and values: a document with a long body
has few, a hostile text of the same length has millions. So that number is limited.
"""

import asyncio
import json
import re
from typing import Any, NoReturn

from facetline.facets.api.problems import Problem

VALUES_MAX = 20_000
"""Names and values of one text. A state has at most 128 fields, a search some thousands of selected options."""
DEPTH_MAX = 32
"""Nesting levels of a JSON body: a search has four, a document's state as many as its schema."""
IN_PLACE_BYTES = 64 * 1024
"""A longer text is parsed in a thread."""
_SEPARATORS = (b",", b":", b"[", b"{")
# Possessive, so that one long string is scanned once. An unterminated string is reported by the JSON parser.
_PIECE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,:\[{]', re.DOTALL)


async def parsed_object(text: bytes) -> dict[str, Any]:
    """Return the JSON object that a text holds.

    Raises:
        Problem: `invalid-json` or `invalid-request`.
    """
    return _parsed(text) if len(text) <= IN_PLACE_BYTES else await asyncio.to_thread(_parsed, text)


async def check(text: bytes) -> None:
    """Refuse a text that is expensive to parse: too many names and values, or long and not a JSON object.

    Raises:
        Problem: `invalid-json` or `invalid-request`.
    """
    if len(text) <= IN_PLACE_BYTES:
        _check_count(text)
    else:
        await asyncio.to_thread(_parsed, text)


def _check_count(text: bytes) -> None:
    # Each name and value but the first follows a separator. Separators inside strings are excluded only if needed.
    if sum(text.count(each) for each in _SEPARATORS) < VALUES_MAX:
        return
    pieces = strings = 0
    for piece in _PIECE.finditer(text):
        if text[piece.start()] == ord('"'):
            strings += 1
        else:
            pieces += 1
        if max(pieces, strings) >= VALUES_MAX:
            raise Problem("invalid-json", f"the body has more than {VALUES_MAX} names and values; send fewer")


def _parsed(text: bytes) -> dict[str, Any]:
    _check_count(text)
    try:
        value = json.loads(text.decode(), parse_constant=_refuse_constant, object_pairs_hook=_once_each)
    except UnicodeDecodeError:
        raise Problem("invalid-json", "the body is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Problem(
            "invalid-json", f"the body is not JSON: {error.msg}", line=error.lineno, column=error.colno
        ) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise Problem("invalid-json", f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Problem("invalid-request", "the body is not a JSON object")
    _check_depth(value)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"{name[:80]!r} appears twice in one object")
            seen.add(name)
    return found


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> Problem:
    return Problem("invalid-json", f"the body is nested deeper than {DEPTH_MAX} levels")
