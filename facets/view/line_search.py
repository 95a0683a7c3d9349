"""Lines with a pattern (grep) and uris that fit a glob, in the order of uris, from one snapshot."""

# ruff: noqa: S608 (names come from a table's own columns, numbers are whole)

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from facetline.facets.errors import InvalidQuery
from facetline.facets.search import sql
from facetline.facets.search.sql import Query
from facetline.facets.text import lines
from facetline.facets.text.lines import LinePattern
from facetline.facets.view.text_tables import TextTables

if TYPE_CHECKING:
    import duckdb

LINES, LINES_MAX = 50, 1_000
CONTEXT_MAX = 5
URIS, URIS_MAX = 100, 1_000
_DOCUMENTS_AT_ONCE = 25
"""Texts that are split at once: 12 MB, where each is as long as it may be."""

Numbered = tuple[str, int]
"""A uri and the number of its text."""


def check(limit: int, context: int) -> None:
    """Refuse more lines than a reply may have.

    Raises:
        InvalidQuery: naming the bound.
    """
    if not 1 <= limit <= LINES_MAX:
        raise InvalidQuery(f"limit is {limit}; it goes from 1 to {LINES_MAX}")
    if not 0 <= context <= CONTEXT_MAX:
        raise InvalidQuery(f"context is {context}; it goes from 0 to {CONTEXT_MAX}")


def check_uris(limit: int) -> None:
    """Refuse more uris than a reply may have.

    Raises:
        InvalidQuery: naming the bound.
    """
    if not 1 <= limit <= URIS_MAX:
        raise InvalidQuery(f"limit is {limit}; it goes from 1 to {URIS_MAX}")


def lines_with(
    cursor: "duckdb.DuckDBPyConnection", query: Query, pattern: LinePattern, *, limit: int, context: int
) -> dict[str, Any]:
    """Return the first lines with the pattern, and in how many documents there are such lines."""
    [(documents,)] = _fetch(cursor, sql.total(query))
    numbered = _fetch(cursor, sql.numbered(query, limit=limit + 1))
    found: list[dict[str, Any]] = []
    for start in range(0, len(numbered), _DOCUMENTS_AT_ONCE):
        part = numbered[start : start + _DOCUMENTS_AT_ONCE]
        found += _lines_of(cursor, TextTables(query.table), part, pattern, limit + 1 - len(found), context)
        if len(found) > limit:
            break
    reply = {"lines": found[:limit], "documents": documents, "truncated": len(found) > limit}
    return reply if pattern.because is None else {**reply, "taken_as": "literal", "because": pattern.because}


def _lines_of(
    cursor: "duckdb.DuckDBPyConnection",
    tables: TextTables,
    numbered: Sequence[Numbered],
    pattern: LinePattern,
    most: int,
    context: int,
) -> list[dict[str, Any]]:
    listed = ", ".join(str(number) for _, number in numbered)
    split = f"SELECT text, string_split(body, chr(10)) AS found FROM {tables.name('bodies')} WHERE text IN ({listed})"
    line, content = "generate_subscripts(found, 1) AS line", "rtrim(unnest(found), chr(13)) AS content"
    around = f"found[greatest(line - {context}, 1):line - 1], found[line + 1:line + {context}]" if context else "[], []"
    statement = (
        f"SELECT text, line, content, {around} FROM (SELECT text, found, {line}, {content} FROM ({split})) "
        "WHERE regexp_matches(content, ?) ORDER BY text, line"
    )
    by_text: dict[int, list[tuple[Any, ...]]] = {}
    for text, *row in cursor.execute(statement, [pattern.expression]).fetchall():
        by_text.setdefault(text, []).append(tuple(row))
    made = [_line(uri, *row, context=context) for uri, number in numbered for row in by_text.get(number, ())]
    return made[:most]


def _line(
    uri: str, line: int, content: str, before: Sequence[str], after: Sequence[str], *, context: int
) -> dict[str, Any]:
    made = {"uri": uri, "line": line, "snippet": lines.shown(content)}
    if not context:
        return made
    return {**made, "before": [lines.shown(each) for each in before], "after": [lines.shown(each) for each in after]}


def _fetch(cursor: "duckdb.DuckDBPyConnection", statement: Any) -> list[tuple[Any, ...]]:
    return cursor.execute(statement.text, statement.values).fetchall()
