"""The statements that make and fill a collection's table: pure text.

Names in them come from the table's own columns; what a batch holds is handed over beside them.
"""

# ruff: noqa: S608 (see above)

from facetline.facets.table import column_sql
from facetline.facets.table.tables import CATALOG, Table

POSITION = f'{CATALOG}.main."_position"'
"""One row: the highest feed_seq applied. No collection's name starts with "_"."""

CREATE_POSITION = f"CREATE TABLE {POSITION} AS SELECT CAST(0 AS BIGINT) AS feed_seq"
READ_POSITION = f"SELECT feed_seq FROM {POSITION}"
WRITE_POSITION = f"UPDATE {POSITION} SET feed_seq = ?"

GIVEN = "_given"
"""The name under which a cursor finds a batch's arrays."""


def name_of(table: Table) -> str:
    """Return a collection's table as it stands in SQL."""
    return f'{CATALOG}.main."{table.definition.name}"'


def create(table: Table) -> list[str]:
    """Return the statements that make a collection's table.

    An ENUM is ordered by its numbers, so its values are declared in the order of their text.
    """
    stored = table.stored
    domains = [
        f"CREATE TYPE {column.sql_type} AS ENUM ({', '.join(_literal(value) for value in sorted(column.values))})"
        for column in stored
        if column.domain
    ]
    cells = ", ".join(
        f"{column.quoted} {column.sql_type}{' PRIMARY KEY' if column.name == 'doc_uri' else ''}" for column in stored
    )
    return [*domains, f"CREATE TABLE {name_of(table)} ({cells})"]


def drop(table: Table) -> list[str]:
    """Return the statements that undo `create`."""
    domains = [f"DROP TYPE {column.sql_type}" for column in table.stored if column.domain]
    return [f"DROP TABLE {name_of(table)}", *domains]


def rewrite(table: Table) -> list[str]:
    """Return the statements that rewrite the table from its rows; readers keep the old one while they need it.

    In place of a row that changes, DuckDB keeps the old texts for as long as there is the table.
    """
    make = create(table)[-1].replace(name_of(table), _ANEW)
    return [
        make,
        f"INSERT INTO {_ANEW} SELECT * FROM {name_of(table)}",
        f"DROP TABLE {name_of(table)}",
        f'ALTER TABLE {_ANEW} RENAME TO "{table.definition.name}"',
    ]


def size(table: Table) -> str:
    """Return the statement that counts a table's rows, the hidden ones too."""
    return f"SELECT count(*) FROM {name_of(table)}"


_ANEW = f'{CATALOG}.main."_anew"'


def upsert(table: Table) -> str:
    """Return the statement that takes the batch `GIVEN`, one row of each uri; older versions change nothing."""
    stored = table.stored
    names = ", ".join(column.quoted for column in stored)
    changes = ", ".join(f"{column.quoted} = {_changed(column.name)}" for column in stored if column.name != "doc_uri")
    # WHERE true: ON would be read as a join's otherwise.
    return (
        f"INSERT INTO {name_of(table)} AS known ({names}) SELECT {', '.join(column_sql.cells(table))} "
        f"FROM (SELECT *, {', '.join(column_sql.parsed(table))} FROM temp.main.{GIVEN}) AS made WHERE true "
        f"ON CONFLICT (doc_uri) DO UPDATE SET {changes} WHERE excluded.doc_version > known.doc_version "
        # a text that could not be taken the first time
        "OR (excluded.doc_version = known.doc_version AND excluded.doc_text > 0 AND known.doc_text <= 0)"
    )


def _changed(name: str) -> str:
    """Return what becomes of a column: a text below 0 stays as it is, if it is the text of the same write."""
    if name not in {"doc_text", "doc_words"}:
        return f'excluded."{name}"'
    kept = f"CASE WHEN excluded.doc_revision = known.doc_revision THEN known.{name} ELSE 0 END"
    return f"CASE WHEN excluded.doc_text >= 0 THEN excluded.{name} ELSE {kept} END"


def _literal(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))
