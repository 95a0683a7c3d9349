"""A filter as a typed tree of plain values, made by `facets.filter.parser` and compiled by `facets.search.conditions`.

A leaf is true or false for every document, never unknown: without a value in its column it is false. So `Not` is an
exact complement, and there is no node for `<>` or NOT IN: they are `Not` of their opposite.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from facetline.facets.table.tables import Column

Value = str | int | float | bool | datetime
Operator = Literal["=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class And:
    """Every one of them holds."""

    args: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of them holds."""

    args: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """It does not hold: false or without a value."""

    arg: "Node"


@dataclass(frozen=True, slots=True)
class Compare:
    """The column has a value, and it compares so."""

    column: Column
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class Between:
    """The column has a value from `low` to `high`, both included."""

    column: Column
    low: Value
    high: Value


@dataclass(frozen=True, slots=True)
class In:
    """The column has one of the values."""

    column: Column
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """The column has no value."""

    column: Column


@dataclass(frozen=True, slots=True)
class Like:
    """The column has a value that fits: % any text, _ one character, a backslash before either means itself."""

    column: Column
    pattern: str


Node = And | Or | Not | Compare | Between | In | IsNull | Like
