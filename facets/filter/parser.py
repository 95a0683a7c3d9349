"""The filter: CQL2 text as a typed tree over a table's columns.

The `cql2` wheel parses the text; only a listed part of its result goes on: and, or, not, = <> < <= > >=, between, in,
isNull, like. A comparison has a column on one side and a value of the column's type on the other.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from facetline.facets.errors import InvalidFilter, nearest
from facetline.facets.filter import text as filter_text
from facetline.facets.filter.text import Operand
from facetline.facets.filter.tree import And, Between, Compare, In, IsNull, Like, Node, Not, Operator, Or, Value
from facetline.facets.filter.values import refusal, typed
from facetline.facets.table.tables import Column, Table

# A pattern becomes a regular expression, whose program is bounded by this.
PATTERN_MAX = 1_000
LIKES_MAX = 32
"""Conditions of a filter that are LIKE. A search that takes too long is stopped between two groups of the table's rows,
which a microsecond a row and pattern must not put off for long."""

# None: any number of arguments.
_ARITY: Mapping[str, int | None] = {
    "and": None,
    "or": None,
    "not": 1,
    "=": 2,
    "<>": 2,
    "<": 2,
    "<=": 2,
    ">": 2,
    ">=": 2,
    "isNull": 1,
    "between": 3,
    "in": 2,
    "like": 2,
}
_FLIPPED: Mapping[str, Operator] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def parse(text: str, table: Table) -> Node:
    """Return the tree of a filter.

    Raises:
        InvalidFilter: it cannot be read, is too large, or names a column that the table does not have.
        UnknownValue: it compares a column with a value that is not declared.
    """
    operands = filter_text.operands(text)
    import cql2  # native code, only loaded when there is a filter

    try:
        tree = cql2.parse_text(text).to_json()
    except cql2.ParseError as error:
        raise _syntax(text, str(error)) from None
    return _Reader(table, iter(operands)).node(tree)


def _syntax(text: str, message: str) -> InvalidFilter:
    # "--> 1:11 …  = expected Expr": the parser counts from 1.
    head, _, expected = message.partition("= expected ")
    spot = head.partition("-->")[2].split("\n", 1)[0].strip()
    line, _, column = spot.partition(":")
    if not (line.isdigit() and column.isdigit()):
        return InvalidFilter(f"the filter cannot be read: {message[:200]}")
    lines = text.split("\n")
    found = lines[int(line) - 1][int(column) - 1 :][:20] if int(line) <= len(lines) else ""
    after = f"{found!r} cannot stand here" if found else "the filter ends too early"
    return InvalidFilter(
        f"filter, line {line}, column {column}: {after}; expected {_expected(expected)}",
        line=int(line),
        column=int(column),
    )


def _expected(rules: str) -> str:
    """Return what the parser would have taken, in words instead of the names of its grammar's rules."""
    names = set(rules.replace(",", " ").split())
    if names & {"Expr", "Identifier"}:
        return "a column or a value"
    if "Eq" in names:
        return "a comparison, AND, OR or " + ("the end" if "EOI" in names else "')'")
    return rules.strip()[:200] or "something else"


class _Reader:
    """Goes through the parser's tree and the operands of the text side by side: both have the same order."""

    def __init__(self, table: Table, operands: Iterator[Operand]) -> None:
        self._table = table
        self._operands = operands
        self._likes = 0

    def node(self, tree: Any) -> Node:
        match tree:
            case {"op": str(op), "args": list(args)} if op in _ARITY and _ARITY[op] in {None, len(args)}:
                return self._operation(op, args)
            case {"property": str()}:
                return self._bare(tree)
        raise self._not_taken(tree)

    def _operation(self, op: str, args: list[Any]) -> Node:
        match op:
            case "and":
                return And(tuple(self.node(arg) for arg in args))
            case "or":
                return Or(tuple(self.node(arg) for arg in args))
            case "not":
                return Not(self.node(args[0]))
            case "<>":
                return Not(self._compare("=", *args))
            case "=" | "<" | "<=" | ">" | ">=":
                return self._compare(op, *args)
        return self._predicate(op, args)

    def _predicate(self, op: str, args: list[Any]) -> Node:
        match op:
            case "isNull":
                return IsNull(self._column(args[0])[0])
            case "between":
                return self._between(*args)
            case "in":
                return self._in(*args)
        return self._like(*args)

    def _compare(self, operator: Operator, left: Any, right: Any) -> Node:
        if isinstance(left, dict) and "property" in left:
            column, at = self._column(left)
            value = self._value(column, right, declared=operator == "=")
        else:
            operand = self._next(left)
            column, at = self._column(right)
            value = typed(column, left, operand, declared=operator == "=")
            operator = _FLIPPED[operator]
        if column.kind == "boolean" and operator != "=":
            raise refusal(at, f"{column.name} is true or false; compare it with = or <>")
        return Compare(column, operator, value)

    def _between(self, arg: Any, low: Any, high: Any) -> Node:
        column, at = self._column(arg)
        if column.kind == "boolean":
            raise refusal(at, f"{column.name} is true or false; compare it with = or <>")
        return Between(column, self._value(column, low, declared=False), self._value(column, high, declared=False))

    def _in(self, arg: Any, values: Any) -> Node:
        column, _ = self._column(arg)
        if not isinstance(values, list):
            raise self._not_taken(values)
        return In(column, tuple(self._value(column, value, declared=True) for value in values))

    def _like(self, arg: Any, pattern: Any) -> Node:
        column, at = self._column(arg)
        operand = self._next(pattern)
        if column.kind != "text":
            raise refusal(at, f"{column.name} is no text; LIKE compares text")
        if operand.kind != "string":
            raise refusal(operand, "LIKE takes a pattern in single quotes, as in LIKE 'a%'")
        if len(operand.text) > PATTERN_MAX:
            raise refusal(operand, f"the pattern has {len(operand.text)} characters; at most {PATTERN_MAX} are taken")
        self._likes += 1
        if self._likes > LIKES_MAX:
            raise refusal(operand, f"at most {LIKES_MAX} conditions of a filter are LIKE")
        return Like(column, operand.text)

    def _bare(self, tree: Any) -> Node:
        column, at = self._column(tree)
        if column.kind != "boolean":
            raise refusal(at, f"{column.name} alone is no condition; compare it with a value")
        return Compare(column, "=", True)

    def _column(self, tree: Any) -> tuple[Column, Operand]:
        operand = self._next(tree)
        if operand.kind not in {"name", "word"} or not isinstance(tree, dict) or "property" not in tree:
            raise refusal(
                operand, f"{operand.text[:80]!r} stands where a column is needed; write column, operator, value"
            )
        column = self._table.columns.get(operand.text)
        if column is None:
            hint = nearest(operand.text[:80], self._table.columns)
            known = tuple(self._table.columns)
            raise refusal(
                operand,
                f"there is no column {operand.text[:80]!r}{hint}; known: {', '.join(known[:40])}",
                allowed=known,
            )
        return column, operand

    def _value(self, column: Column, tree: Any, *, declared: bool) -> Value:
        return typed(column, tree, self._next(tree), declared=declared)

    def _next(self, tree: Any) -> Operand:
        operand = next(self._operands, None)
        if operand is None or not _same(tree, operand):
            # The text's walk and the parser disagree about what stands here: what we do not take looks so.
            raise self._not_taken(tree, operand)
        return operand

    def _not_taken(self, tree: Any, operand: Operand | None = None) -> InvalidFilter:
        operand = operand or next(self._operands, None)
        what = f"'{tree['op']}'" if isinstance(tree, dict) and "op" in tree else "this"
        message = f"{what} is not taken; a condition compares a column with a value, AND, OR and NOT join conditions"
        return InvalidFilter(f"filter: {message}") if operand is None else refusal(operand, message)


def _same(tree: Any, operand: Operand) -> bool:
    match tree:
        case {"property": name}:
            return operand.kind in {"name", "word"} and name == operand.text
        case {"timestamp": _} | {"date": _}:
            return operand.kind == "string"
        case bool() | None:
            return operand.kind == "word" and operand.text.lower() in {"true", "false", "null"}
        case str():
            return operand.kind == "string" and operand.text == tree
        case int() | float():
            return operand.kind == "number" and float(operand.text) == tree
    return False
