"""Searches as bound SQL: pure text and parameters, no connection.

Values never get into the text; names do, and every name comes from a table's own columns.
"""

# ruff: noqa: S608 (see above)

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from facetline.facets.documents import Status
from facetline.facets.filter.tree import Node
from facetline.facets.questions import Score
from facetline.facets.search import histograms, own_counts, sql_text
from facetline.facets.search.conditions import Clause, all_of, any_of, as_text, condition, parameter, wanted
from facetline.facets.search.selection import MISSING, SCORE, Selection, counted_by, sorted_by
from facetline.facets.search.sort_keys import SortKey, behind
from facetline.facets.table.ddl import name_of
from facetline.facets.table.tables import Table
from facetline.facets.text import globs

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
FOUND = ("doc_score", "doc_keyword", "doc_matched", "doc_text")
"""The cells that follow where texts were looked for: both scores, the number of words, the text's number."""
MATCHES = "_matches"
"""The name under which a cursor finds the texts that match: text, score, keyword, matched."""
_FOUND = "_found"
_JOINED_MAX = 2


@dataclass(frozen=True)
class Query:
    """What a checked selection selects: all that its page, total and counts have in common."""

    table: Table
    selection: Selection
    filter: Node | None

    @property
    def by_text(self) -> bool:
        """Whether rows are those of `MATCHES` only."""
        return self.selection.by_text

    @property
    def source(self) -> str:
        """What rows are selected from, as it stands in SQL; `place` is where a row lies in the table."""
        if not self.by_text:
            return f"(SELECT *, rowid AS place FROM {name_of(self.table)})"
        scores = "m.score AS doc_score, m.keyword AS doc_keyword, m.matched AS doc_matched"
        joined = f"{name_of(self.table)} AS d JOIN temp.main.{MATCHES} AS m ON m.text = d.doc_text"
        return f"(SELECT d.*, d.rowid AS place, {scores} FROM {joined})"

    @property
    def cells(self) -> tuple[str, ...]:
        """The first cells of a page's row."""
        return (*HIT, *FOUND) if self.by_text else HIT

    def carried(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return what a row of a page is sorted by, its uri last."""
        return (*row[len(self.cells) :], row[0])

    @property
    def keys(self) -> list[SortKey]:
        """The columns of the order, before the uri."""
        return [SortKey(column, descending) for column, descending in sorted_by(self.selection, self.table)]

    @cached_property
    def counted(self) -> tuple[str, ...]:
        """The questions and own fields to count, in the order of the reply's facets."""
        return counted_by(self.selection, self.table)


def best_first(query: Query) -> bool:
    """Say whether rows come by their scores before anything else."""
    keys = query.keys
    return query.by_text and bool(keys) and keys[0].column.name == SCORE and keys[0].descending


def page(query: Query, after: tuple[Any, ...] | None) -> Clause:
    """Return the statement of one page and one row more: the query's cells, then what each sort key carries.

    `after` is what the row before the page carried, its uri last; None for the first page.
    """
    keys = query.keys
    where = _where(query) if after is None else all_of([_where(query), behind(keys, after)])
    cells = ", ".join([*query.cells, *(key.carried for key in keys)])
    order = ", ".join([*(key.order for key in keys), "doc_uri"])
    values = (*where.values, query.selection.limit + 1)
    if not query.by_text:
        source = name_of(query.table)
        return Clause(f"SELECT {cells} FROM {source} WHERE {where.text} ORDER BY {order} LIMIT ?", values)
    # The wide cells are read of the page's rows alone.
    found = f"place, {', '.join(FOUND[:-1])}"
    best = f"SELECT {found} FROM {query.source} WHERE {where.text} ORDER BY {order} LIMIT ?"
    joined = f"({best}) AS best JOIN {name_of(query.table)} AS d ON d.rowid = best.place"
    return Clause(f"SELECT {cells} FROM {joined} ORDER BY {order}", values)


def uris(query: Query, *, after: str, limit: int) -> Clause:
    """Return the statement of the selected uris behind `after`, in order."""
    where = all_of([_where(query), Clause("doc_uri > ?", (after,))])
    return Clause(
        f"SELECT doc_uri FROM {query.source} WHERE {where.text} ORDER BY doc_uri LIMIT ?", (*where.values, limit)
    )


def total(query: Query) -> Clause:
    """Return the statement that counts what is selected."""
    where = _where(query)
    return Clause(f"SELECT count(*) FROM {query.source} WHERE {where.text}", where.values)


def numbered(query: Query, *, limit: int) -> Clause:
    """Return the statement of the first selected uris with the numbers of their texts, in order."""
    where = _where(query)
    return Clause(
        f"SELECT doc_uri, doc_text FROM {query.source} WHERE {where.text} ORDER BY doc_uri LIMIT ?",
        (*where.values, limit),
    )


PLACES = "_places"
"""The name under which a cursor finds the places of a page's rows."""


def places(query: Query) -> Clause:
    """Return the statement of all selected rows' places in the table, in order. They hold within one snapshot."""
    where = _where(query)
    order = ", ".join([*(key.order for key in query.keys), "doc_uri"])
    return Clause(f"SELECT place FROM {query.source} WHERE {where.text} ORDER BY {order}", where.values)


def cells_at(query: Query) -> str:
    """Return the statement of the rows at `PLACES`, in any order: place, then the columns that people may name."""
    cells = ", ".join(as_text(column) for column in query.table.columns.values())
    return f"SELECT rowid, {cells} FROM {name_of(query.table)} WHERE rowid IN (SELECT place FROM temp.main.{PLACES})"


TOTAL, PENDING = -1, -2
"""What the rows of `numbers` have in place of a facet's number."""


def numbers(query: Query) -> Clause:
    """Return the statement of all numbers of a reply: one, because to plan one takes DuckDB about a millisecond.

    Its rows have the cells: number of the facet, value, status, interval of the histogram, documents, confident ones,
    lowest and highest score of those. A facet is counted over what matches everything but its own selection, in one
    row for each group of documents that it does not distinguish; of an own field see `own_counts.statement`. The rows
    `TOTAL` and `PENDING` have documents only; there is no row `TOTAL` where a facet has the same total (`total_of`).
    """
    source = _FOUND if query.by_text else name_of(query.table)
    parts = [_count(query, number, name, source) for number, name in enumerate(query.counted)]
    pending = all_of([_status(query, "=", Status.PENDING), *_scope(query.selection)])
    parts.append(_alone(PENDING, pending, name_of(query.table)))
    if total_of(query) == TOTAL:
        parts.append(_alone(TOTAL, _where(query), source))
    text = " UNION ALL ".join(part.text for part in parts)
    if query.by_text:  # joined once, with the columns that are named
        named = [column.quoted for column in query.table.stored if _names(text, column.name)]
        # Kept for several parts; for one or two to join again takes less time than to keep.
        kept = "MATERIALIZED" if text.count(_FOUND) > _JOINED_MAX else "NOT MATERIALIZED"
        text = f"WITH {_FOUND} AS {kept} (SELECT {', '.join(named)} FROM {query.source}) {text}"
    return Clause(text, tuple(value for part in parts for value in part.values))


def _names(text: str, column: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(column)}(?!\w)", text) is not None


def total_of(query: Query) -> int:
    """Return the number of the facet whose documents are all that are selected, `TOTAL` where there is none."""
    conjunctive = query.selection.facet_mode == "conjunctive"
    whole = (n for n, name in enumerate(query.counted) if conjunctive or name not in query.selection.facets)
    return next(whole, TOTAL)


def _alone(number: int, where: Clause, source: str) -> Clause:
    cells = "NULL, NULL, NULL, count(*), NULL, NULL, NULL"
    return Clause(f"SELECT {number}, {cells} FROM {source} WHERE {where.text}", where.values)


def _count(query: Query, number: int, name: str, source: str) -> Clause:
    where = _where(query, but=name if query.selection.facet_mode == "disjunctive" else None)
    if name not in query.table.questions:
        return own_counts.statement(number, query.table.columns[name], query.selection, where, source)
    question, bucket = query.table.questions[name], query.table.buckets_of(name).quoted
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
        f"{', '.join(given)} FROM {source} WHERE {where.text} "
        f"GROUP BY {', '.join([bucket, 'doc_status', *([interval] if isinstance(question, Score) else [])])}",
        (*confident.values * len(given), *where.values),
    )


def shown(query: Query) -> str:
    """Return the total as a statement to be shown, its values inside, over the tables that `sql` offers people.

    Those hold no deleted documents, and options as text. What is looked for in texts is left out.
    """
    parts = [sql_text.text_of(part) for part in _parts(query)]
    where = "\nWHERE " + "\n  AND ".join(parts) if parts else ""
    return f'SELECT count(*) AS total FROM "{query.table.definition.name}"{where}'


def _where(query: Query, *, but: str | None = None) -> Clause:
    questions = query.table.questions
    named = [values for name, values in query.selection.facets.items() if name != but and name in questions]
    # Only indexed documents have answers: where one is wanted, the deleted need not be looked for.
    alive = [_status(query, "<>", Status.DELETED)] if all(MISSING in values for values in named) else []
    return all_of([*alive, *_parts(query, but=but)])


def _parts(query: Query, *, but: str | None = None) -> list[Clause]:
    selection = query.selection
    parts = [
        wanted(name, query.table.buckets_of(name), values, selection.least(name))
        if name in query.table.questions
        else wanted(name, query.table.columns[name], values, None)
        for name, values in selection.facets.items()
        if name != but
    ]
    parts += _scope(selection)
    parts += [] if selection.glob is None else [_glob(selection.glob)]
    return parts if query.filter is None else [*parts, condition(query.filter)]


def _status(query: Query, operator: str, status: Status) -> Clause:
    column = query.table.columns["doc_status"]
    return Clause(f"{column.quoted} {operator} {parameter(column)}", (status.value,))


def _glob(glob: str) -> Clause:
    """Return the condition that a glob fits a document's key, or its path without the scope."""
    expression, start = globs.expression(glob), globs.literal_start(glob)
    path = "CASE WHEN doc_scope = '' THEN doc_uri ELSE substr(doc_uri, length(doc_scope) + 3) END"
    return any_of(
        Clause(f"(starts_with({text}, CAST(? AS VARCHAR)) AND regexp_full_match({text}, ?, 's'))", (start, expression))
        for text in ("doc_key", path)
    )


def _scope(selection: Selection) -> list[Clause]:
    return [] if selection.scope is None else [Clause("doc_scope = ?", (selection.scope,))]
