"""A document's own fields as facets: which values of a `state_` column can be selected, and how they are written."""

import re

from facetline.facets.errors import InvalidQuery, UnknownValue, nearest
from facetline.facets.schema.question_sets import MISSING
from facetline.facets.table.tables import Column

LISTED_CHARS_MAX = 256
"""Longer texts are counted, but not listed among the values."""
_YES_NO = {"yes": "true", "no": "false", "true": "true", "false": "false"}
_WHOLE = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_COUNTABLE = ("text", "integer", "boolean")


def canonical(column: Column, value: str) -> str:
    """Return a wanted value in its one form: `yes` is `true`, `+07` is `7`."""
    if column.kind == "boolean":
        return _YES_NO.get(value.lower(), value)
    return str(int(value)) if column.kind == "integer" and _WHOLE.fullmatch(value) else value


def typed(column: Column, value: str) -> str | int | bool:
    """Return a checked, canonical value as its column holds it."""
    if column.kind == "boolean":
        return value == "true"
    return int(value) if column.kind == "integer" else value


def check_countable(column: Column) -> None:
    """Refuse to count or select values of a column that has too many of them.

    Raises:
        InvalidQuery: the message names the filter to use instead.
    """
    if column.kind not in _COUNTABLE:
        raise InvalidQuery(
            f"'{column.name}' is a {column.kind}, whose values are not counted; select a range with filter instead, "
            f"such as {column.name} >= {_EXAMPLES[column.kind]}"
        )


def check_values(column: Column, values: tuple[str, ...]) -> None:
    """Refuse values that the column cannot hold.

    Raises:
        UnknownValue: a value that a boolean or whole number never has.
        InvalidQuery: values of this column cannot be selected, or text is not valid Unicode.
    """
    check_countable(column)
    for value in values:
        if value != MISSING:
            _check_value(column, value)


_EXAMPLES = {"number": "1.5", "datetime": "'2026-11-30T00:00:00Z'"}


def _check_value(column: Column, value: str) -> None:
    if column.kind == "boolean" and value not in {"true", "false"}:
        allowed = ("true", "false", MISSING)
        hint = nearest(value[:80], allowed)
        raise UnknownValue(
            f"'{column.name}' has no value {value[:80]!r}{hint}; allowed: {', '.join(allowed)}", allowed=allowed
        )
    if column.kind == "integer" and not (_WHOLE.fullmatch(value) and _INT64_MIN <= int(value) <= _INT64_MAX):
        raise InvalidQuery(
            f"'{column.name}' is a whole number and never {value[:80]!r}; send one such as 3, or {MISSING}"
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidQuery(f"a value of '{column.name}' holds half a surrogate pair; send valid Unicode") from None
