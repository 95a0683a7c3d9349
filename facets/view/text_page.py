"""What a search by text says of each hit of a page, and of itself: scores, places, snippets, corrections."""

# ruff: noqa: S608 (names come from a table's own columns)

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from facetline.facets.search import sql
from facetline.facets.search.sql import Query
from facetline.facets.text import highlights, lines, scoring
from facetline.facets.text.carried import Carried
from facetline.facets.text.lines import LinePattern
from facetline.facets.view.text_batches import state_texts
from facetline.facets.view.text_search import Matches
from facetline.facets.view.text_tables import TextTables

if TYPE_CHECKING:
    import duckdb

_EXTRA_BYTES = 400


@dataclass(frozen=True, slots=True)
class TextPage:
    """`extras` are what the hits of the page have more, in its order; `notes` is the reply's `search`."""

    extras: Sequence[dict[str, Any]]
    notes: dict[str, Any]
    carried: Carried | None

    @property
    def size(self) -> int:
        """How many bytes it takes, about."""
        places = sum(len(each.get("highlights", ())) for each in self.extras)
        return _EXTRA_BYTES * (len(self.extras) + places)


def text_page(
    cursor: "duckdb.DuckDBPyConnection", query: Query, matches: Matches, page: Sequence[tuple[Any, ...]]
) -> TextPage:
    """Return what a page's rows and the search say."""
    rows = page[: query.selection.limit]
    cells = [dict(zip(sql.FOUND, row[len(sql.HIT) :], strict=False)) for row in rows]
    extras = [_scores(query, matches, each) for each in cells]
    if query.selection.highlight:
        places = _highlights(cursor, query, matches, rows, [each["doc_text"] for each in cells])
        extras = [{**extra, **found} for extra, found in zip(extras, places, strict=True)]
    carried = None if matches.query is None else matches.carried
    return TextPage(extras, _notes(query, matches), carried)


def _scores(query: Query, matches: Matches, cells: Mapping[str, Any]) -> dict[str, Any]:
    if query.selection.q is None:
        return {}
    score = {"score": scoring.shown(cells["doc_score"])}
    if not query.selection.score_details:
        return score
    k1 = query.table.definition.text.k1
    details = {
        "keyword": scoring.raw(cells["doc_keyword"], matches.statistics, k1),
        "words": [cells["doc_matched"], len(matches.expanded)],
    }
    return {**score, "score_details": details}


def _notes(query: Query, matches: Matches) -> dict[str, Any]:
    notes: dict[str, Any] = {}
    if query.selection.q is not None:
        notes["mode"] = "keyword"
    if matches.corrected:
        notes["corrected"] = matches.corrected
    if matches.pattern is not None and matches.pattern.because is not None:
        notes |= {"taken_as": "literal", "because": matches.pattern.because}
    return notes


def _highlights(
    cursor: "duckdb.DuckDBPyConnection",
    query: Query,
    matches: Matches,
    rows: Sequence[tuple[Any, ...]],
    numbers: Sequence[int],
) -> list[dict[str, Any]]:
    settings = query.table.definition.text
    tables = TextTables(query.table)
    bodies = _bodies(cursor, tables, numbers)
    first = {} if matches.pattern is None else _first_lines(cursor, tables, numbers, matches.pattern)
    found = []
    for row, number in zip(rows, numbers, strict=True):
        state = row[sql.HIT.index("doc_state")]
        fields = {**state_texts(state, settings), highlights.BODY: bodies.get(number, "")}
        searched = {name: text for name, text in fields.items() if name in settings.fields or name == highlights.BODY}
        marked = highlights.find(searched, matches.words)
        place = first.get(number)
        found.append(
            {
                "highlights": marked.places,
                "snippet_marks": marked.marks,
                "snippet": marked.snippet if place is None or marked.snippet is not None else place[1],
                "line_range": marked.line_range if place is None or marked.line_range is not None else place[0],
            }
        )
    return found


def _bodies(cursor: "duckdb.DuckDBPyConnection", tables: TextTables, numbers: Sequence[int]) -> dict[int, str]:
    listed = ", ".join(map(str, numbers)) or "NULL"
    statement = f"SELECT text, body FROM {tables.name('bodies')} WHERE text IN ({listed})"
    return dict(cursor.execute(statement).fetchall())


def _first_lines(
    cursor: "duckdb.DuckDBPyConnection", tables: TextTables, numbers: Sequence[int], pattern: LinePattern
) -> dict[int, tuple[dict[str, int], str]]:
    """Return the first line of each text that has the pattern: its number from 1, and how it is shown."""
    listed = ", ".join(map(str, numbers)) or "NULL"
    lines_of = (
        f"SELECT text, string_split(body, chr(10)) AS found FROM {tables.name('bodies')} WHERE text IN ({listed})"
    )
    line, content = "generate_subscripts(found, 1) AS line", "rtrim(unnest(found), chr(13)) AS content"
    statement = (
        f"SELECT text, min(line), arg_min(content, line) FROM (SELECT text, {line}, {content} FROM ({lines_of})) "
        "WHERE regexp_matches(content, ?) GROUP BY text"
    )
    found = cursor.execute(statement, [pattern.expression]).fetchall()
    return {text: ({"start": line, "end": line}, lines.shown(content)) for text, line, content in found}
