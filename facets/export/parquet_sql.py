"""The statements that write Parquet files: pure text. Names in them come from the table's own columns.

The wide file of a collection has the columns that people may name, as its table has them; the long one, `answers`, is
made of the wide ones, so that the two can never differ.
"""

# ruff: noqa: S608 (see above)

from collections.abc import Sequence
from pathlib import Path

from facetline.facets.documents import Status
from facetline.facets.questions import Boolean, Choice, Question
from facetline.facets.table.ddl import name_of
from facetline.facets.table.tables import Table

OPTIONS = "(FORMAT parquet, COMPRESSION zstd)"
ANSWERS = "answers"
"""The long table's name; no collection can be called so."""

ANSWER_COLUMNS = {
    "doc_uri": "VARCHAR",
    "doc_scope": "VARCHAR",
    "collection": "VARCHAR",
    "question": "VARCHAR",
    "type": "VARCHAR",
    "value": "VARCHAR",
    "confidence": "DOUBLE",
    "probability": "DOUBLE",
    "score": "DOUBLE",
    "fingerprint": "VARCHAR",
    "doc_outdated": "BOOLEAN",
    "doc_classified_at": "TIMESTAMP",
}
"""The columns of `answers` with their types; `value` is the option, `true` or `false`, or the nearest level."""


def quoted(path: Path | str) -> str:
    """Return a path or name as a text literal."""
    return "'{}'".format(str(path).replace("'", "''"))


def wide(table: Table, path: Path) -> str:
    """Return the statement that writes a collection's documents, the deleted ones left out."""
    columns = ", ".join(column.quoted for column in table.columns.values())
    where = f"doc_status <> '{Status.DELETED.value}'"
    return f"COPY (SELECT {columns} FROM {name_of(table)} WHERE {where}) TO {quoted(path)} {OPTIONS}"


TEXT_BYTES_MAX = 8 << 20
"""Of a line of texts: a body has 512 KiB, and JSON may take six times as much for it."""


def joined(file: Path, texts: Path, path: Path) -> str:
    """Return the statement that writes a collection's file with `texts` (uri, revision, body a line) as `doc_body`."""
    columns = "{uri: 'VARCHAR', revision: 'BIGINT', body: 'VARCHAR'}"
    form = f"format = 'newline_delimited', maximum_object_size = {TEXT_BYTES_MAX}"
    return (
        f"COPY (SELECT wide.*, texts.body AS doc_body FROM read_parquet({quoted(file)}) AS wide "
        f"LEFT JOIN read_json({quoted(texts)}, columns = {columns}, {form}) AS texts "
        f"ON texts.uri = wide.doc_uri AND texts.revision = wide.doc_revision) TO {quoted(path)} {OPTIONS}"
    )


def answers(tables: Sequence[Table], folder: Path, path: Path) -> str:
    """Return the statement that writes all answers of the collections whose wide files are in `folder`."""
    parts = [_answers(table, name, question, folder) for table in tables for name, question in table.questions.items()]
    if not parts:
        nothing = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in ANSWER_COLUMNS.items())
        parts = [f"SELECT {nothing} WHERE false"]
    return f"COPY ({' UNION ALL '.join(parts)}) TO {quoted(path)} {OPTIONS}"


def _answers(table: Table, name: str, question: Question, folder: Path) -> str:
    column = table.columns[name].quoted
    value, probability, score = column, "NULL", "NULL"
    if isinstance(question, Boolean):
        kind, value, probability = "boolean", f"CAST({column} AS VARCHAR)", f'"{name}_probability"'
    elif isinstance(question, Choice):
        kind = "choice"
    else:
        kind, value, score = "score", f'"{name}_level"', column
    made = {
        "collection": quoted(table.definition.name),
        "question": quoted(name),
        "type": quoted(kind),
        "value": value,
        "confidence": f'"{name}_confidence"',
        "probability": probability,
        "score": score,
        # Of another one no more is known here than that it is another.
        "fingerprint": f"CASE WHEN NOT doc_outdated THEN {quoted(table.definition.fingerprint)} END",
    }
    cells = ", ".join(f"CAST({made.get(each, each)} AS {kind_}) AS {each}" for each, kind_ in ANSWER_COLUMNS.items())
    source = f"read_parquet({quoted(folder / (table.definition.name + '.parquet'))})"
    return f"SELECT {cells} FROM {source} WHERE {column} IS NOT NULL"
