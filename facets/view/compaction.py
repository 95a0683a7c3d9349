"""Decides when to rewrite a DuckDB table: updates since the last rewrite reach its row count.

A change of a row that was there leaves its old texts behind in memory, about 300 bytes (measured, see
docs/benchmarks.md). A rewrite takes a second for 100,000 rows and blocks no reader; it is due when
as many rows have changed as it has, and not before `CHANGES_MIN`.
"""

from dataclasses import dataclass, field

CHANGES_MIN = 200_000
"""About 60 MB."""


@dataclass(slots=True)
class _Table:
    rows: int = 0
    changes: int = 0


@dataclass(slots=True)
class Wear:
    """Of the tables of one view, by collection; `changes` are all there ever were."""

    changes: int = 0
    _tables: dict[str, _Table] = field(default_factory=dict)

    def note(self, collection: str, *, written: int, rows: int) -> None:
        """Note that a batch wrote so many rows, new or not, after which there are `rows`."""
        table = self._tables.setdefault(collection, _Table())
        table.changes += written - max(rows - table.rows, 0)
        table.rows = rows
        self.changes += written

    def worn(self) -> list[str]:
        """Return the collections whose tables are to be rewritten."""
        return [name for name, table in self._tables.items() if table.changes > max(CHANGES_MIN, table.rows)]

    def renewed(self, collection: str) -> None:
        """Note that a table was rewritten."""
        self._tables[collection].changes = 0

    def dropped(self, collection: str) -> None:
        """Note that a table is gone."""
        self._tables.pop(collection, None)
