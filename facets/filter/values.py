"""The values in a filter: what a literal means to the column that it is compared with.

Numbers are read from the text, not from the parser's tree, where 9007199254740993 is already another one.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from facetline.facets.errors import InvalidFilter, UnknownValue, nearest
from facetline.facets.filter.text import Operand
from facetline.facets.filter.tree import Value
from facetline.facets.table.tables import Column

# Of a 64-bit whole number. More are refused before they are computed: 1e999999999 is a whole number, too.
_DIGITS_MAX = 19


def typed(column: Column, tree: Any, operand: Operand, *, declared: bool) -> Value:
    """Return the value that the parser's `tree` means for a column; `declared` takes only values it can hold.

    Raises:
        InvalidFilter: the value is of another type.
        UnknownValue: the value is not declared.
    """
    if tree is None:
        raise refusal(operand, f"nothing equals NULL; write {column.name} IS NULL")
    if isinstance(tree, dict) and "property" in tree:
        raise refusal(
            operand,
            f"Put text in quotes: {column.name} = '{str(tree['property'])[:80]}' (columns are compared with values)",
        )
    value = _READERS[column.kind](column, tree, operand)
    if declared and column.values and value not in column.values:
        hint = nearest(str(value)[:80], column.values)
        raise UnknownValue(
            f"filter, line {operand.line}, column {operand.column}: {column.name} is never {str(value)[:80]!r}{hint};"
            f" allowed: {', '.join(column.values[:40])}",
            allowed=column.values,
        )
    return value


def _text(column: Column, tree: Any, operand: Operand) -> Value:
    if not isinstance(tree, str):
        raise refusal(operand, f"{column.name} is text; write the value in single quotes")
    return tree


def _integer(column: Column, _tree: Any, operand: Operand) -> Value:
    number = Decimal(operand.text) if operand.kind == "number" else None
    if number is None or number.adjusted() > _DIGITS_MAX or number != number.to_integral_value():
        raise refusal(operand, f"{column.name} is a whole number; {operand.text[:40]!r} is none")
    whole = int(number)
    if not -(2**63) <= whole < 2**63:
        raise refusal(operand, f"{operand.text[:40]} is beyond the range of whole numbers, 64 bits")
    return whole


def _number(column: Column, _tree: Any, operand: Operand) -> Value:
    if operand.kind != "number":
        raise refusal(operand, f"{column.name} is a number; {operand.text[:40]!r} is none")
    number = float(operand.text)
    if number in {float("inf"), float("-inf")}:
        raise refusal(operand, f"{operand.text[:40]} is beyond the range of numbers")
    return number


def _boolean(column: Column, tree: Any, operand: Operand) -> Value:
    if not isinstance(tree, bool):
        raise refusal(operand, f"{column.name} is true or false; {operand.text[:40]!r} is neither")
    return tree


def _datetime(column: Column, tree: Any, operand: Operand) -> Value:
    text = tree.get("timestamp") if isinstance(tree, dict) else tree
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        example = f"{column.name} >= TIMESTAMP('2026-11-30T12:00:00Z')"
        raise refusal(operand, f"{column.name} is a moment; write it as in {example}, with Z or an offset")
    return moment.astimezone(UTC)


_READERS: Mapping[str, Callable[[Column, Any, Operand], Value]] = {
    "text": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "datetime": _datetime,
}


def refusal(operand: Operand, message: str, *, allowed: tuple[str, ...] = ()) -> InvalidFilter:
    """Return the error about an operand, with its place."""
    place = f"filter, line {operand.line}, column {operand.column}: "
    return InvalidFilter(place + message, allowed=allowed, line=operand.line, column=operand.column)
