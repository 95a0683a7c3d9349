"""The order of a search: how a column is ordered, carried in a cursor and compared with what a cursor carried."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from facetline.facets.search.conditions import Clause, all_of, any_of, as_text, parameter
from facetline.facets.table.tables import Column

# A cursor carries what its row sorts by, so a long text sorts by its beginning only; the uri decides the rest.
CHARACTERS_MAX = 256


@dataclass(frozen=True, slots=True)
class SortKey:
    """One column of an order."""

    column: Column
    descending: bool

    @property
    def order(self) -> str:
        """The term of ORDER BY; what has no value comes last in both directions."""
        # An ENUM is ordered by its numbers, which is the order of its text (see `table_sql.create`).
        term = self.column.quoted if self.column.domain else self._compared
        return f"{term} {'DESC' if self.descending else 'ASC'} NULLS LAST"

    @property
    def carried(self) -> str:
        """The term of SELECT that goes into a cursor: text, number or boolean; a moment as microseconds."""
        return f"epoch_us({self.column.quoted})" if self.column.kind == "datetime" else self._compared

    @property
    def _compared(self) -> str:
        if self.column.kind == "text" and self.column.name.startswith("state_"):
            return f"left({self.column.quoted}, {CHARACTERS_MAX})"
        return as_text(self.column)

    def after(self, value: Any) -> Clause:
        """Return the condition that a row comes after one that carries `value`."""
        if value is None:
            return Clause("false")
        operator = "<" if self.descending else ">"
        return Clause(f"({self._compared} {operator} {self._parameter} OR {self.column.quoted} IS NULL)", (value,))

    def ties(self, value: Any) -> Clause:
        """Return the condition that a row sorts as one that carries `value` does."""
        if value is None:
            return Clause(f"{self.column.quoted} IS NULL")
        return Clause(f"{self._compared} = {self._parameter}", (value,))

    @property
    def _parameter(self) -> str:
        return parameter(self.column, text=bool(self.column.domain))


def behind(keys: Sequence[SortKey], carried: tuple[Any, ...]) -> Clause:
    """Return the condition that a row comes behind the one that carried these values, its uri last."""
    *values, uri = carried
    found = Clause("doc_uri > CAST(? AS VARCHAR)", (uri,))
    for key, value in reversed(list(zip(keys, values, strict=True))):
        found = any_of([key.after(value), all_of([key.ties(value), found])])
    return found
