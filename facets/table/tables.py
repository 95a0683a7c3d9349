"""A collection's table: its columns with their types and the values that they can hold.

A column of a question holds what is declared now: an answer with an option that is no longer declared is null here.
Columns with declared values are stored as ENUM, which halves the time of the counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from facetline.facets.definitions import Definition
from facetline.facets.documents import Status
from facetline.facets.questions import Boolean, Choice, Question
from facetline.facets.schema import columns, states

Kind = Literal["text", "integer", "number", "boolean", "datetime"]

_SQL_TYPES: Mapping[Kind, str] = {
    "text": "VARCHAR",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
    "datetime": "TIMESTAMP",  # UTC, without zone: fetching zoned ones would need another library
}
CATALOG = "live"
"""What the view attaches its database as. Things are named in full: a new cursor does not inherit USE."""

_STATE_KINDS: Mapping[str, Kind] = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "datetime": "datetime",
}
_DOCUMENT_KINDS: Mapping[str, Kind] = {
    "doc_version": "integer",
    "doc_revision": "integer",
    "doc_indexed_as": "integer",
    "doc_written_at": "datetime",
    "doc_classified_at": "datetime",
    "doc_outdated": "boolean",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `values` are the only ones it can hold, in the declared order (empty: any).

    `domain` names the ENUM of these values; it is empty where any value can stand.
    """

    name: str
    kind: Kind
    values: tuple[str, ...] = ()
    domain: str = ""

    @property
    def quoted(self) -> str:
        """The name as it stands in SQL."""
        return f'"{self.name}"'

    @property
    def sql_type(self) -> str:
        """The type as it stands in SQL."""
        return f'{CATALOG}.main."{self.domain}"' if self.domain else _SQL_TYPES[self.kind]


@dataclass(frozen=True, slots=True)
class Table:
    """A collection's table; `columns` are those that people may name, by name."""

    definition: Definition
    columns: Mapping[str, Column]

    @property
    def questions(self) -> Mapping[str, Question]:
        """The questions by id."""
        return self.definition.questions

    @property
    def own_fields(self) -> Mapping[str, Column]:
        """The columns of the documents' own fields, by name."""
        return {name: column for name, column in self.columns.items() if name.startswith(columns.STATE_PREFIX)}

    @property
    def stored(self) -> list[Column]:
        """All columns, in the order in which they are stored."""
        return [*self.columns.values(), *HIDDEN]

    def buckets_of(self, question: str) -> Column:
        """Return the column whose values are the buckets of a question's count."""
        column = self.columns[question]
        return self.columns[f"{question}_level"] if column.kind == "number" else column


HIDDEN = (
    Column("doc_facets", "text"),
    Column("doc_state", "text"),
    Column("doc_text", "integer"),
    Column("doc_words", "integer"),
)
"""JSON texts that hits are rebuilt from; the number of the document's text (not above 0: none) and its length.

Filters cannot name them.
"""


def table_of(definition: Definition) -> Table:
    """Return the table of a collection."""
    found = [_document_column(name) for name in columns.DOC_COLUMNS]
    for name, question in definition.questions.items():
        found += _question_columns(name, question)
    for name, kind in states.column_types(definition.state_schema).items():
        found.append(Column(columns.state_column(name), _STATE_KINDS[kind]))
    return Table(definition, {column.name: _with_domain(column, definition.name) for column in found})


def _with_domain(column: Column, collection: str) -> Column:
    # No name of ours holds a dot, so these are the only ones that do.
    return replace(column, domain=f"{collection}.{column.name}") if column.values else column


def _document_column(name: str) -> Column:
    values = tuple(status.value for status in Status) if name == "doc_status" else ()
    return Column(name, _DOCUMENT_KINDS.get(name, "text"), values)


def _question_columns(name: str, question: Question) -> list[Column]:
    if isinstance(question, Choice):
        answer = [Column(name, "text", tuple(question.options))]
    elif isinstance(question, Boolean):
        answer = [Column(name, "boolean"), Column(f"{name}_probability", "number")]
    else:
        # Levels are distinguished by their text only.
        answer = [Column(name, "number"), Column(f"{name}_level", "text", tuple(dict.fromkeys(question.levels)))]
    return [*answer, Column(f"{name}_confidence", "number")]
