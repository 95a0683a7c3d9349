"""Many small rows as the input of one statement: a single JSON text parameter that the database takes apart.

One parameter instead of thousands: the statement's text stays the same whatever the number of rows, neither driver's
limit of variables is met, and a join with it is one round trip.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from facetline.storage.db import engine, json_rows

T = TypeVar("T")
Kind = Literal["text", "bigint", "boolean"]

ROWS_MAX = 500
"""Rows of one statement: a few megabytes at most, some ten milliseconds under a lock."""

_TYPES: dict[Kind, type[sa.types.TypeEngine[Any]]] = {"text": sa.Text, "bigint": sa.BigInteger, "boolean": sa.Boolean}


@functools.cache
def shape(dialect: engine.Dialect, name: str, kinds: tuple[tuple[str, Kind], ...]) -> sa.FromClause:
    """Return the rows of the parameter `name_rows` (see `parameter`) as something to select from or to join with.

    For statements that are built once and run often: building one costs more than running it.
    """
    return _taken_apart(dialect, name, kinds, sa.bindparam(f"{name}_rows", type_=sa.Text))


def parameter(name: str, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the parameter that holds the rows of a `shape`. The texts must be valid Unicode without NUL."""
    return {f"{name}_rows": json_rows.dumps(list(rows))}


def table(tx: engine.Tx, name: str, kinds: Mapping[str, Kind], rows: Iterable[Mapping[str, Any]]) -> sa.FromClause:
    """Return `rows` as something to select from or to join with, with the columns `kinds`.

    The texts must be valid Unicode without NUL, which PostgreSQL refuses.
    """
    given = sa.bindparam(f"{name}_rows", json_rows.dumps(list(rows)), type_=sa.Text, unique=True)
    return _taken_apart(tx.dialect, name, tuple(kinds.items()), given)


def _taken_apart(
    dialect: engine.Dialect, name: str, kinds: tuple[tuple[str, Kind], ...], given: sa.BindParameter[str]
) -> sa.FromClause:
    if dialect == "postgresql":
        columns = [sa.column(column, _TYPES[kind]) for column, kind in kinds]
        taken_apart = sa.func.json_to_recordset(sa.cast(given, postgresql.JSON)).table_valued(*columns, name=name)
        return taken_apart.render_derived(with_types=True)
    each = sa.func.json_each(given).table_valued("value", name=f"{name}_each")
    parts = [
        sa.type_coerce(sa.func.json_extract(each.c.value, f"$.{column}"), _TYPES[kind]).label(column)
        for column, kind in kinds
    ]
    return sa.select(*parts).subquery(name)


def unindexed(column: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """Return a text column as an expression that no index helps with.

    SQLite plans without knowing how many rows a condition meets. Where it would take the index of the condition that
    meets nearly all of them, this leaves it the right one.
    """
    return column.concat(sa.literal_column("''"))


def chunks(items: list[T], size: int = ROWS_MAX) -> Iterable[list[T]]:
    """Cut a list into parts of at most `size`, in order."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
