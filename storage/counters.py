"""Counts that outlive processes, such as answers that came too late."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from facetline.storage.db import engine, models

CLOCK_CORRECTIONS = "clock_corrections"
CRASHES = "crashes"
"""Claims whose holder died or was stopped in mid-call: taken over, or released with a call under way."""
DUPLICATES = "duplicates"
"""Events that had been settled before under the same id: they came again at another place of the log."""

_TALLIES = models.TALLIES


def add(tx: engine.Tx, name: str, n: int) -> None:
    """Add `n` to a count; the row stays locked until the transaction ends, so call this last and only when needed."""
    insert = sqlite.insert(_TALLIES) if tx.dialect == "sqlite" else postgresql.insert(_TALLIES)
    added = insert.on_conflict_do_update(
        index_elements=["name"], set_={"value": _TALLIES.c.value + insert.excluded.value}
    )
    tx.execute(added, {"name": name, "value": n})


def all(tx: engine.Tx) -> dict[str, int]:  # noqa: A001 (read as `tallies.all`)
    """Return every count by name."""
    rows = tx.execute(sa.select(_TALLIES.c.name, _TALLIES.c.value).order_by(_TALLIES.c.name))
    return {row.name: row.value for row in rows}
