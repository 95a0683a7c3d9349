"""The statements that make and fill a collection's table: pure text.

Names in them come from the table's own columns; what a batch holds is one bound text.
"""

# ruff: noqa: S608 (see above)

from facets import tables
from facets.tables import Column, Table

CATALOG = "live"
"""What the view attaches its database as. Tables are named in full: a new cursor does not inherit USE."""

POSITION = f'{CATALOG}.main."_position"'
"""One row: the highest feed_seq applied. No collection's name starts with "_"."""

CREATE_POSITION = f"CREATE TABLE {POSITION} AS SELECT CAST(0 AS BIGINT) AS feed_seq"
READ_POSITION = f"SELECT feed_seq FROM {POSITION}"
WRITE_POSITION = f"UPDATE {POSITION} SET feed_seq = ?"


def name_of(table: Table) -> str:
    """Return a collection's table as it stands in SQL."""
    return f'{CATALOG}.main."{table.definition.name}"'


def create_table(table: Table) -> str:
    """Return the statement that makes a collection's table."""
    stored = [*table.columns.values(), *tables.HIDDEN]
    cells = ", ".join(
        f"{column.quoted} {column.sql_type}{' PRIMARY KEY' if column.name == 'doc_uri' else ''}" for column in stored
    )
    return f"CREATE TABLE {name_of(table)} ({cells})"


def upsert(table: Table) -> str:
    """Return the statement that applies a batch of folded rows, one JSON text; older versions change nothing.

    The batch is materialized first: reading it inside the upsert makes the same statement a third slower.
    """
    stored = [*table.columns.values(), *tables.HIDDEN]
    shape = ", ".join(f'"{column.name}":"{_json_type(column)}"' for column in stored)
    cells = ", ".join(_cell(column) for column in stored)
    names = ", ".join(column.quoted for column in stored)
    changes = ", ".join(f"{column.quoted} = excluded.{column.quoted}" for column in stored if column.name != "doc_uri")
    return (
        f"INSERT INTO {name_of(table)} AS known ({names}) "
        f"WITH batch AS MATERIALIZED (SELECT {cells} FROM (SELECT unnest(from_json(?, '[{{{shape}}}]')) AS cell)) "
        f"SELECT * FROM batch ON CONFLICT (doc_uri) DO UPDATE SET {changes} "
        f"WHERE excluded.doc_version > known.doc_version"
    )


def _json_type(column: Column) -> str:
    return {"datetime": "BIGINT", "text": "VARCHAR"}.get(column.kind, column.sql_type)


def _cell(column: Column) -> str:
    cell = f"cell.{column.quoted}"
    if column.kind == "datetime":
        return f"make_timestamp({cell}) AS {column.quoted}"
    return f"CAST({cell} AS {column.sql_type}) AS {column.quoted}" if column.values else cell
