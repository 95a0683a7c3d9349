"""Conditions as bound SQL: filters, and the values wanted of a question.

Values never get into the text. A condition is true for a row, or else false or unknown, which WHERE takes for the same.
Where it is negated the unknown is made false first, so that NOT is an exact complement: without any NOT inside, AND and
OR of something unknown are true only if they are with false in its place.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from facetline.facets.filter.tree import And, Between, Compare, In, IsNull, Like, Node, Not, Or, Value
from facetline.facets.search import own_fields
from facetline.facets.search.selection import MISSING
from facetline.facets.table import record_arrays
from facetline.facets.table.tables import Column


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece of SQL and the values of its question marks, in order."""

    text: str
    values: tuple[Any, ...] = ()


def all_of(parts: Iterable[Clause]) -> Clause:
    """Return the condition that every part holds; there is at least one."""
    return _joined(" AND ", list(parts))


def any_of(parts: Iterable[Clause]) -> Clause:
    """Return the condition that some part holds; there is at least one."""
    return _joined(" OR ", list(parts))


def wanted(question: str, column: Column, values: tuple[str, ...], least: float | None) -> Clause:
    """Return the condition that a question's answer is one of the values, `__missing__` included.

    `column` holds the values. With `least`, an answer without that confidence is missing.
    """
    given = dict.fromkeys(value for value in values if value != MISSING)
    options = tuple(own_fields.typed(column, value) for value in given)
    confident = [] if least is None else [Clause(f'"{question}_confidence" >= ?', (least,))]
    none = Clause(f"{column.quoted} IS NULL")
    either = []
    if options:
        either.append(all_of([one_of(column, options), *confident]))
    if MISSING in values:
        either.append(_none_of(all_of([Clause(f"{column.quoted} IS NOT NULL"), *confident])) if confident else none)
    return any_of(either)


def condition(node: Node) -> Clause:
    """Return the SQL of a filter, true just for the rows that it finds."""
    match node:
        case And(args):
            return all_of(condition(arg) for arg in args)
        case Or(args):
            return any_of(condition(arg) for arg in args)
        case Not(arg):
            return _not(arg)
        case IsNull(column):
            return Clause(f"{column.quoted} IS NULL")
        case _:
            return _leaf(node)


def parameter(column: Column, *, text: bool = False) -> str:
    """Return a question mark that takes a value of the column: a moment as microseconds, `text` for any text.

    It has the column's own type, so that ENUMs are compared by their numbers.
    """
    if column.kind == "datetime":
        return "make_timestamp(CAST(? AS BIGINT))"
    return "CAST(? AS VARCHAR)" if text else f"CAST(? AS {column.sql_type})"


def as_text(column: Column) -> str:
    """Return a column with declared values as plain text, any other as it is."""
    return f"CAST({column.quoted} AS VARCHAR)" if column.domain else column.quoted


def like_expression(pattern: str) -> str:
    """Return the regular expression that matches what LIKE would.

    DuckDB's own LIKE takes time that is exponential in the number of `%`; its regular expressions take linear time.
    """
    parts = re.findall(r"\\.|%+|.", pattern, flags=re.DOTALL)
    return "".join({"%": ".*", "_": "."}.get(part[0]) or _literal(part[-1]) for part in parts)


def _not(node: Node) -> Clause:
    match node:
        case IsNull(column):
            return Clause(f"{column.quoted} IS NOT NULL")
        case Compare(column, "=", value):
            return Clause(f"{column.quoted} IS DISTINCT FROM {parameter(column)}", (_bound(value),))
        case Not(arg):
            return condition(arg)
        case _:
            return _none_of(condition(node))


def _none_of(clause: Clause) -> Clause:
    return Clause(f"NOT coalesce({clause.text}, false)", clause.values)


def _leaf(node: Compare | Between | In | Like) -> Clause:
    match node:
        case Compare(column, "=", value):
            return Clause(f"{column.quoted} = {parameter(column)}", (_bound(value),))
        case Compare(column, operator, value):
            return Clause(
                f"{as_text(column)} {operator} {parameter(column, text=bool(column.domain))}", (_bound(value),)
            )
        case Between(column, low, high):
            end = parameter(column, text=bool(column.domain))
            return Clause(f"{as_text(column)} BETWEEN {end} AND {end}", (_bound(low), _bound(high)))
        case In(column, values):
            return one_of(column, tuple(_bound(value) for value in values))
        case Like(column, pattern):
            return _like(column, pattern)


_PLAIN_LIKE = re.compile(r"(%*)([^%_\\]*)(%*)")


def _like(column: Column, pattern: str) -> Clause:
    """Return the condition of LIKE: by a function of its own where % stands at the ends only, which is faster."""
    plain = _PLAIN_LIKE.fullmatch(pattern)
    if plain is None:
        return Clause(f"regexp_full_match({as_text(column)}, ?, 's')", (like_expression(pattern),))
    before, text, after = plain.groups()
    if not before and not after:
        return Clause(f"{as_text(column)} = CAST(? AS VARCHAR)", (text,))
    function = "contains" if before and after else "ends_with" if before else "starts_with"
    return Clause(f"{function}({as_text(column)}, CAST(? AS VARCHAR))", (text,))


def one_of(column: Column, values: tuple[Any, ...]) -> Clause:
    """Return the condition that a column has one of the values; there is at least one."""
    if len(values) == 1:
        return Clause(f"{column.quoted} = {parameter(column)}", values)
    return Clause(f"{column.quoted} IN ({', '.join([parameter(column)] * len(values))})", values)


def _bound(value: Value) -> Any:
    return record_arrays.microseconds(value) if isinstance(value, datetime) else value


def _literal(character: str) -> str:
    return character if character.isalnum() else rf"\x{{{ord(character):x}}}"


def _joined(word: str, parts: list[Clause]) -> Clause:
    if len(parts) == 1:
        return parts[0]
    return Clause(
        f"({word.join(part.text for part in parts)})", tuple(value for part in parts for value in part.values)
    )
