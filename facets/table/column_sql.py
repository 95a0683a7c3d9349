"""The cells of a row in SQL, taken out of the JSON texts that the store keeps: pure text.

A record comes as a few given columns, its facets and state among them as text. The typed cells are made inside DuckDB,
which reads each text once. A cell holds an answer only in the terms of the questions declared now: an option or level
that is no longer declared, or an answer of another type, is null; so is a state that has another type by now.
"""

from collections.abc import Iterator, Mapping

from facetline.facets.answers import DECIMALS
from facetline.facets.questions import Boolean, Choice, Question
from facetline.facets.schema import columns, states
from facetline.facets.table.tables import HIDDEN, Column, Table

# How DuckDB names what a JSON value is; whole numbers beyond 64 bits are DOUBLE to it.
_KINDS: Mapping[str, str] = {
    "string": "= 'VARCHAR'",
    "integer": "IN ('BIGINT', 'UBIGINT')",
    "number": "IN ('BIGINT', 'UBIGINT', 'DOUBLE')",
    "boolean": "= 'BOOLEAN'",
}


NO_MOMENT = -(2**63)
"""Stands for a missing moment in what is given: an array of integers has no null, and no moment is so long ago."""


def moments(table: Table) -> list[str]:
    """Return the state fields that are moments: SQL reads them otherwise than Python, so they are given, not taken."""
    return [name for name, kind in states.column_types(table.definition.state_schema).items() if kind == "datetime"]


def given(table: Table) -> list[Column]:
    """Return the columns in which a record is handed over, in order; moments are microseconds in them."""
    names = [*columns.DOC_COLUMNS, *(columns.state_column(name) for name in moments(table))]
    return [*(table.columns[name] for name in names), *HIDDEN]


def parsed(table: Table) -> list[str]:
    """Return what is made of the two texts of a row, each read once: `facets`, and `kinds` and `texts` of its state.

    No given column has such a name: theirs begin with `doc_` or `state_`.
    """
    shapes = ", ".join(f'"{name}":{_shape(question)}' for name, question in table.questions.items())
    paths = ", ".join(f"'/{name}'" for name in _plain(table))
    return [
        f"from_json(doc_facets, '{{{shapes}}}') AS facets",
        f"json_type(doc_state, [{paths}]::VARCHAR[]) AS kinds",
        f"json_extract_string(doc_state, [{paths}]::VARCHAR[]) AS texts",
    ]


def cells(table: Table) -> list[str]:
    """Return the expression of each stored column, in their order, over a row `made` of given and parsed columns."""
    found = {column.name: _given(column) for column in given(table)}
    for name, question in table.questions.items():
        found.update(_answer(table, name, question))
    for place, (name, kind) in enumerate(_plain(table).items(), 1):
        column = table.columns[columns.state_column(name)]
        text = f"made.texts[{place}]" if kind == "string" else f"TRY_CAST(made.texts[{place}] AS {column.sql_type})"
        found[column.name] = f"CASE WHEN made.kinds[{place}] {_KINDS[kind]} THEN {text} END"
    return [f"{found[column.name]} AS {column.quoted}" for column in table.stored]


def _plain(table: Table) -> dict[str, str]:
    return {
        name: kind for name, kind in states.column_types(table.definition.state_schema).items() if kind != "datetime"
    }


def _given(column: Column) -> str:
    cell = f"made.{column.quoted}"
    if column.kind == "datetime":
        return f"make_timestamp(nullif({cell}, {NO_MOMENT}))"
    return f"CAST({cell} AS {column.sql_type})" if column.domain else cell


def _shape(question: Question) -> str:
    if isinstance(question, Choice):
        own = '"choice":"VARCHAR"'
    elif isinstance(question, Boolean):
        own = '"value":"BOOLEAN","probability":"DOUBLE"'
    else:
        own = '"score":"DOUBLE","level":"VARCHAR"'
    return f'{{"type":"VARCHAR",{own},"confidence":"DOUBLE"}}'


def _answer(table: Table, name: str, question: Question) -> Iterator[tuple[str, str]]:
    facet = f'made.facets."{name}"'
    if isinstance(question, Boolean):
        holds = f"{facet}.type = 'boolean'"
        parts = {name: "value", f"{name}_probability": "probability"}
    elif isinstance(question, Choice):
        message = _declared(facet, "choice", table.columns[name])
        yield name, message
        holds, parts = f"{message} IS NOT NULL", {}
    else:
        message = _declared(facet, "level", table.columns[f"{name}_level"])
        yield f"{name}_level", message
        holds, parts = f"{message} IS NOT NULL", {name: "score"}
    for column, part in parts.items():
        yield column, f"CASE WHEN {holds} THEN {facet}.{part} END"
    yield f"{name}_confidence", f"CASE WHEN {holds} THEN {_confidence(facet, question)} END"


def _confidence(facet: str, question: Question) -> str:
    """Return an answer's confidence, as `facets.answers.confidence_of` has it; documents may hold it or not."""
    if not isinstance(question, Boolean):
        return f"{facet}.confidence"
    sure = f"round(greatest({facet}.probability, 1 - {facet}.probability), {DECIMALS})"
    return f"coalesce({facet}.confidence, {sure})"


def _declared(facet: str, part: str, column: Column) -> str:
    """Return the value that an ENUM takes; it is the same wherever it stands, so DuckDB makes it once."""
    kind = "choice" if part == "choice" else "score"
    return f"CASE WHEN {facet}.type = '{kind}' THEN TRY_CAST({facet}.{part} AS {column.sql_type}) END"
