"""Columns: the names that a collection's table has, and whether two of them are one.

One naming everywhere (docs/sql.md): in filters, in orders and in SQL.
"""

from collections.abc import Iterable, Mapping

from facetline.facets.questions import Boolean, Question, Score

STATE_PREFIX = "state_"
DOC_COLUMNS = (
    "doc_uri",
    "doc_key",
    "doc_scope",
    "doc_status",
    "doc_reason",
    "doc_version",
    "doc_revision",
    "doc_indexed_as",
    "doc_written_at",
    "doc_classified_at",
    "doc_outdated",
)


def answer_columns(name: str, question: Question) -> tuple[str, ...]:
    """Return the columns that hold the answer to one question: the bare one first, its confidence last."""
    if isinstance(question, Boolean):
        return (name, f"{name}_probability", f"{name}_confidence")
    if isinstance(question, Score):
        return (name, f"{name}_level", f"{name}_confidence")
    return (name, f"{name}_confidence")


def state_column(name: str) -> str:
    """Return the column of a state field."""
    return f"{STATE_PREFIX}{name}"


def collisions(questions: Mapping[str, Question], state: Iterable[str]) -> list[str]:
    """Return one problem for each column that two things of the table would share, with the way out."""
    owners = dict.fromkeys(DOC_COLUMNS, "the document")
    for name in state:
        owners[state_column(name)] = f"state '{name}'"
    problems = []
    for name, question in questions.items():
        for column in answer_columns(name, question):
            if column in owners:
                problems.append(f"question '{name}': its column {column} is that of {owners[column]}; rename one")
            owners[column] = f"question '{name}'"
    return problems
