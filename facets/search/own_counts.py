"""Counts of a document's own fields: the statement, and the facet of the reply out of its rows. Pure.

A field can have as many values as there are documents: which of them are listed is decided by the database.
"""

# ruff: noqa: S608 (names come from a table's own columns)

from collections.abc import Sequence
from typing import Any

from facetline.facets.schema.question_sets import MISSING
from facetline.facets.search.conditions import Clause, one_of
from facetline.facets.search.own_fields import LISTED_CHARS_MAX, typed
from facetline.facets.search.selection import Selection
from facetline.facets.table.tables import Column

VALUE, ALL_VALUES = "value", "all"
"""What the rows of `statement` are about, in place of a status: one value, or the whole field."""


def statement(number: int, column: Column, selection: Selection, where: Clause, source: str) -> Clause:
    """Return the statement of one field's counts, with cells as `sql.numbers` has them.

    A row `VALUE` has a value and its documents. The row `ALL_VALUES` has, in this order, the number of values that
    could be listed, all documents and those without a value.
    """
    wanted = _wanted(column, selection)
    selected = one_of(column, wanted) if wanted else Clause("false")
    listed = f"length(v) <= {LISTED_CHARS_MAX}" if column.kind == "text" else "true"
    none = "CAST(NULL AS DOUBLE)"
    groups = (
        f"SELECT {column.quoted} AS v, count(*) AS c, coalesce({selected.text}, false) AS s FROM {source} "
        f"WHERE {where.text} GROUP BY {column.quoted}"
    )
    values = (
        f"SELECT {number}, CAST(v AS VARCHAR), '{VALUE}', CAST(NULL AS BIGINT), c, c, {none}, {none} FROM g "
        f"WHERE v IS NOT NULL AND (s OR c >= ? AND {listed}) ORDER BY s DESC, c DESC, v LIMIT ?"
    )
    whole = (
        f"SELECT {number}, CAST(NULL AS VARCHAR), '{ALL_VALUES}', "
        "count(*) FILTER (WHERE v IS NOT NULL AND (s OR c >= ?)), CAST(coalesce(sum(c), 0) AS BIGINT), "
        f"CAST(coalesce(sum(c) FILTER (WHERE v IS NULL), 0) AS BIGINT), {none}, {none} FROM g"
    )
    least = selection.facet_min_count
    return Clause(
        f"SELECT * FROM (WITH g AS MATERIALIZED ({groups}) ({values}) UNION ALL ({whole}))",
        (*selected.values, *where.values, least, max(selection.facet_size, len(wanted)), least),
    )


def facet(column: Column, selection: Selection, rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return the facet of the reply out of the rows, each without the facet's number."""
    [(could_be_listed, total, missing)] = [row[2:5] for row in rows if row[1] == ALL_VALUES]
    wanted = [str(value).lower() if isinstance(value, bool) else str(value) for value in _wanted(column, selection)]
    counts = {row[0]: row[3] for row in rows if row[1] == VALUE}
    # What is selected has its places first, also where no document has it.
    others = [value for value in counts if value not in wanted][: max(0, selection.facet_size - len(wanted))]
    counts = {value: counts.get(value, 0) for value in (*wanted, *others)}
    listed = sum(1 for count in counts.values() if count)
    return {
        "name": column.name,
        "type": column.kind,
        "mode": selection.facet_mode,
        "total": total,
        "buckets": [
            {"value": typed(column, value), "count": counts[value], "selected": value in wanted}
            for value in _ordered(column, selection, counts)
        ],
        "other_count": total - missing - sum(counts.values()),
        "truncated": listed < could_be_listed,
        "missing": {"count": missing},
    }


def _wanted(column: Column, selection: Selection) -> tuple[Any, ...]:
    given = dict.fromkeys(selection.facets.get(column.name, ()))
    return tuple(typed(column, value) for value in given if value != MISSING)


def _ordered(column: Column, selection: Selection, counts: dict[str, int]) -> list[str]:
    ordered = sorted(counts, key=lambda value: typed(column, value))
    # Nothing declares an order of them: the fullest come first.
    return ordered if selection.facet_sort == "alpha" else sorted(ordered, key=lambda value: -counts[value])
