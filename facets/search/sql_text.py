"""Conditions as text with their values inside, for people to read, change and run.

Nothing here is ever run by us with more rights than the caller has: values are quoted for a statement that is
shown, or sent to where any statement may be sent.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from facetline.facets.search.conditions import Clause

if TYPE_CHECKING:
    from collections.abc import Iterator

# How `conditions.parameter` writes them. No name of ours holds a question mark.
_PLACE = re.compile(r"make_timestamp\(CAST\(\? AS BIGINT\)\)|CAST\(\? AS [^()]+\)|\?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS_EXACT = 15
"""Of a decimal number that is the same when it is read as a DECIMAL and made a DOUBLE then."""
_CONTROLS = re.compile("([\x00-\x1f\x7f])")


def text_of(clause: Clause) -> str:
    """Return the clause's text with each question mark replaced by its value."""
    values: Iterator[Any] = iter(clause.values)
    return _PLACE.sub(lambda place: _literal(next(values), moment=place[0].startswith("make_timestamp")), clause.text)


def _literal(value: Any, *, moment: bool) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() if moment:
            # isoformat, because strftime leaves out the zeros of early years
            return f"TIMESTAMP '{(_EPOCH + timedelta(microseconds=value)).replace(tzinfo=None).isoformat(' ')}'"
        case int():
            return str(value)
        case float():
            return _number(value)
    return _quoted(str(value))


def _number(value: float) -> str:
    text = repr(value)
    # With an exponent it is read as a DOUBLE at once, without one as a DECIMAL.
    exact = "e" in text or sum(character.isdigit() for character in text) <= _DIGITS_EXACT
    return text if exact else f"{text}e0"


def _quoted(text: str) -> str:
    """Return a text literal: quotes doubled, control characters by their numbers, since some end a statement's text."""
    parts = [
        f"chr({ord(part)})" if _CONTROLS.fullmatch(part) else "'{}'".format(part.replace("'", "''"))
        for part in _CONTROLS.split(text)
        if part
    ]
    return f"({' || '.join(parts)})" if len(parts) > 1 else "".join(parts) or "''"
