"""Searches as bound SQL: pure text and parameters, no connection.

Values never get into the text; names do, and every name comes from a table's own columns.
"""

# ruff: noqa: S608 (see above)

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from facetline.facets.documents import Status
from facetline.facets.filter.tree import Node
from facetline.facets.questions import Score
from facetline.facets.search import histograms, sql_text
from facetline.facets.search.conditions import Clause, all_of, as_text, condition, parameter, wanted
from facetline.facets.search.selection import MISSING, Selection, counted_by, sorted_by
from facetline.facets.search.sort_keys import SortKey, behind
from facetline.facets.table.ddl import name_of
from facetline.facets.table.tables import Table

HIT = (
    "doc_uri",
    "doc_key",
    "doc_version",
    "doc_revision",
    "doc_indexed_as",
    "CAST(doc_status AS VARCHAR)",
    "doc_outdated",
    "doc_facets",
    "doc_state",
)
"""The cells of a hit, the first ones of a page's row."""


@dataclass(frozen=True)
class Query:
    """What a checked selection selects: all that its page, total and counts have in common."""

    table: Table
    selection: Selection
    filter: Node | None

    @property
    def source(self) -> str:
        """The table as it stands in SQL."""
        return name_of(self.table)

    @property
    def keys(self) -> list[SortKey]:
        """The columns of the order, before the uri."""
        return [SortKey(column, descending) for column, descending in sorted_by(self.selection, self.table)]

    @cached_property
    def counted(self) -> tuple[str, ...]:
        """The questions to count, in the order of the reply's facets."""
        return counted_by(self.selection, self.table)


def page(query: Query, after: tuple[Any, ...] | None) -> Clause:
    """Return the statement of one page and one row more: the cells of `HIT`, then what each sort key carries.

    `after` is what the row before the page carried, its uri last; None for the first page.
    """
    keys = query.keys
    where = _where(query) if after is None else all_of([_where(query), behind(keys, after)])
    cells = ", ".join([*HIT, *(key.carried for key in keys)])
    order = ", ".join([*(key.order for key in keys), "doc_uri"])
    return Clause(
        f"SELECT {cells} FROM {query.source} WHERE {where.text} ORDER BY {order} LIMIT ?",
        (*where.values, query.selection.limit + 1),
    )


def uris(query: Query, *, after: str, limit: int) -> Clause:
    """Return the statement of the selected uris behind `after`, in order."""
    where = all_of([_where(query), Clause("doc_uri > ?", (after,))])
    return Clause(
        f"SELECT doc_uri FROM {query.source} WHERE {where.text} ORDER BY doc_uri LIMIT ?", (*where.values, limit)
    )


PLACES = "_places"
"""The name under which a cursor finds the places of a page's rows."""


def places(query: Query) -> Clause:
    """Return the statement of all selected rows' places in the table, in order. They hold within one snapshot."""
    where = _where(query)
    order = ", ".join([*(key.order for key in query.keys), "doc_uri"])
    return Clause(f"SELECT rowid FROM {query.source} WHERE {where.text} ORDER BY {order}", where.values)


def cells_at(query: Query) -> str:
    """Return the statement of the rows at `PLACES`, in any order: place, then the columns that people may name."""
    cells = ", ".join(as_text(column) for column in query.table.columns.values())
    return f"SELECT rowid, {cells} FROM {query.source} WHERE rowid IN (SELECT place FROM temp.main.{PLACES})"


TOTAL, PENDING = -1, -2
"""What the rows of `numbers` have in place of a facet's number."""


def numbers(query: Query) -> Clause:
    """Return the statement of all numbers of a reply: one, because to plan one takes DuckDB about a millisecond.

    Its rows have the cells: number of the facet, value, status, interval of the histogram, documents, confident ones,
    lowest and highest score of those. A facet is counted over what matches everything but its own selection, in one
    row for each group of documents that it does not distinguish. The rows `TOTAL` and `PENDING` have documents only;
    there is no row `TOTAL` where a facet has the same total (`total_of`).
    """
    parts = [_count(query, number, name) for number, name in enumerate(query.counted)]
    parts.append(_alone(query, PENDING, all_of([_status(query, "=", Status.PENDING), *_scope(query.selection)])))
    if total_of(query) == TOTAL:
        parts.append(_alone(query, TOTAL, _where(query)))
    return Clause(
        " UNION ALL ".join(part.text for part in parts), tuple(value for part in parts for value in part.values)
    )


def total_of(query: Query) -> int:
    """Return the number of the facet whose documents are all that are selected, `TOTAL` where there is none."""
    conjunctive = query.selection.facet_mode == "conjunctive"
    whole = (n for n, name in enumerate(query.counted) if conjunctive or name not in query.selection.facets)
    return next(whole, TOTAL)


def _alone(query: Query, number: int, where: Clause) -> Clause:
    cells = "NULL, NULL, NULL, count(*), NULL, NULL, NULL"
    return Clause(f"SELECT {number}, {cells} FROM {query.source} WHERE {where.text}", where.values)


def _count(query: Query, number: int, name: str) -> Clause:
    question, bucket = query.table.questions[name], query.table.buckets_of(name).quoted
    where = _where(query, but=name if query.selection.facet_mode == "disjunctive" else None)
    least = query.selection.least(name)
    confident = Clause("")
    if least is not None:
        confident = Clause(f' FILTER (WHERE "{name}_confidence" >= ?)', (least,))
    interval, score = "CAST(NULL AS BIGINT)", "CAST(NULL AS DOUBLE)"
    if isinstance(question, Score):
        # A power of two divides exactly: an interval holds just what its ends say.
        interval, score = f'CAST(floor("{name}" / {histograms.width(question)}) AS BIGINT)', f'"{name}"'
    given = [f"{call}{confident.text}" for call in ("count(*)", f"min({score})", f"max({score})")]
    # The status is why a value is missing; where there is a value, it is always the same.
    return Clause(
        f"SELECT {number}, CAST({bucket} AS VARCHAR), CAST(doc_status AS VARCHAR), {interval}, count(*), "
        f"{', '.join(given)} FROM {query.source} WHERE {where.text} "
        f"GROUP BY {', '.join([bucket, 'doc_status', *([interval] if isinstance(question, Score) else [])])}",
        (*confident.values * len(given), *where.values),
    )


def shown(query: Query) -> str:
    """Return the total as a statement to be shown, its values inside, over the tables that `sql` offers people.

    Those hold no deleted documents, and options as text.
    """
    parts = [sql_text.text_of(part) for part in _parts(query)]
    where = "\nWHERE " + "\n  AND ".join(parts) if parts else ""
    return f'SELECT count(*) AS total FROM "{query.table.definition.name}"{where}'


def _where(query: Query, *, but: str | None = None) -> Clause:
    named = [values for name, values in query.selection.facets.items() if name != but]
    # Only indexed documents have answers: where one is wanted, the deleted need not be looked for.
    alive = [_status(query, "<>", Status.DELETED)] if all(MISSING in values for values in named) else []
    return all_of([*alive, *_parts(query, but=but)])


def _parts(query: Query, *, but: str | None = None) -> list[Clause]:
    selection = query.selection
    parts = [
        wanted(name, query.table.buckets_of(name), values, selection.least(name))
        for name, values in selection.facets.items()
        if name != but
    ]
    parts += _scope(selection)
    return parts if query.filter is None else [*parts, condition(query.filter)]


def _status(query: Query, operator: str, status: Status) -> Clause:
    column = query.table.columns["doc_status"]
    return Clause(f"{column.quoted} {operator} {parameter(column)}", (status.value,))


def _scope(selection: Selection) -> list[Clause]:
    return [] if selection.scope is None else [Clause("doc_scope = ?", (selection.scope,))]
