"""Many rows into one table with one statement: what the write path spends its time on.

SQLite takes rows fastest one after another through one prepared statement, PostgreSQL as one array for each column.
Both read the same `ON CONFLICT` clause. SQLAlchemy's own handling of each row would cost more than the database does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from facetline.storage.db import engine


@dataclass(frozen=True)
class Insert:
    """A statement that inserts `columns` of a table; `constants` are SQL that is the same in every row.

    `conflict`: what follows `ON CONFLICT`, the same in both databases; without it a row that exists is an error.
    `rows_max`: rows of one statement in PostgreSQL, so that the arrays stay far below its limit of 1 GB.
    """

    table: sa.Table
    columns: Sequence[str]
    constants: Mapping[str, str] = field(default_factory=dict)
    conflict: str | None = None
    rows_max: int = 500

    def run(self, tx: engine.Tx, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows, each with a value for each of `columns`; they must not name one key twice."""
        if not rows:
            return
        if tx.dialect == "sqlite":
            tx.connection.exec_driver_sql(self._sqlite, list(rows))
            return
        for start in range(0, len(rows), self.rows_max):
            arrays = tuple(list(column) for column in zip(*rows[start : start + self.rows_max], strict=True))
            tx.connection.exec_driver_sql(self._postgresql, arrays)

    @cached_property
    def _sqlite(self) -> str:
        values = [*("?" for _ in self.columns), *self.constants.values()]
        return f"{self._into} VALUES ({', '.join(values)}){self._on_conflict}"

    @cached_property
    def _postgresql(self) -> str:
        # %b: psycopg sends the arrays in binary, which costs a quarter of their text.
        arrays = ", ".join(f"%b::{_array(self.table.c[name].type)}" for name in self.columns)
        values = ", ".join(["given.*", *self.constants.values()])
        given = f"unnest({arrays}) AS given"
        return f"{self._into} SELECT {values} FROM {given}{self._on_conflict}"  # noqa: S608 (our own names only)

    @property
    def _into(self) -> str:
        names = ", ".join(f'"{name}"' for name in (*self.columns, *self.constants))
        return f"INSERT INTO {self.table.name} ({names})"

    @property
    def _on_conflict(self) -> str:
        return "" if self.conflict is None else f" ON CONFLICT {self.conflict}"


def replacing(key: Sequence[str], columns: Sequence[str], other: Mapping[str, str] | None = None) -> str:
    """Return the conflict clause that takes `columns` from the new row, and `other` columns from SQL."""
    taken = {name: f'excluded."{name}"' for name in columns}
    given = ", ".join(f'"{name}" = {value}' for name, value in {**taken, **(other or {})}.items())
    names = ", ".join(f'"{name}"' for name in key)
    return f"({names}) DO UPDATE SET {given}"


def _array(kind: sa.types.TypeEngine[Any]) -> str:
    if isinstance(kind, sa.Integer):  # of any size: the database checks what it stores
        return "bigint[]"
    return "bytea[]" if isinstance(kind, sa.LargeBinary) else "text[]"
