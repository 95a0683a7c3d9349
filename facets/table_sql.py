"""The statements that make and fill a collection's table: pure text.

Names in them come from the table's own columns; what a batch holds is one bound text.
"""

# ruff: noqa: S608 (see above)

from facets import cells
from facets.tables import CATALOG, Column, Table

POSITION = f'{CATALOG}.main."_position"'
"""One row: the highest feed_seq applied. No collection's name starts with "_"."""

CREATE_POSITION = f"CREATE TABLE {POSITION} AS SELECT CAST(0 AS BIGINT) AS feed_seq"
READ_POSITION = f"SELECT feed_seq FROM {POSITION}"
WRITE_POSITION = f"UPDATE {POSITION} SET feed_seq = ?"

_BATCH = "temp.main._batch"


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


def stage(table: Table) -> str:
    """Return the statement that reads a batch, one JSON text with an array for each column, into a temporary table.

    On its own, because reading it inside the upsert makes both together half as fast again.
    """
    given = cells.given(table)
    shape = ", ".join(f'"{column.name}":["{_json_type(column)}"]' for column in given)
    rows = ", ".join(f"unnest(batch.{column.quoted}) AS {column.quoted}" for column in given)
    return (
        f"CREATE OR REPLACE TEMP TABLE {_BATCH} AS SELECT {', '.join(cells.cells(table))} "
        f"FROM (SELECT *, {', '.join(cells.parsed(table))} "
        f"FROM (SELECT {rows} FROM (SELECT from_json(?, '{{{shape}}}') AS batch))) AS made"
    )


def upsert(table: Table) -> str:
    """Return the statement that takes the staged rows, one of each uri; older versions change nothing."""
    stored = table.stored
    names = ", ".join(column.quoted for column in stored)
    changes = ", ".join(f"{column.quoted} = excluded.{column.quoted}" for column in stored if column.name != "doc_uri")
    return (
        f"INSERT INTO {name_of(table)} AS known ({names}) SELECT {names} FROM {_BATCH} "
        f"ON CONFLICT (doc_uri) DO UPDATE SET {changes} WHERE excluded.doc_version > known.doc_version"
    )


def _json_type(column: Column) -> str:
    return {"datetime": "BIGINT", "text": "VARCHAR"}.get(column.kind, column.sql_type)


def _literal(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))
