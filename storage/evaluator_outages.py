"""Evaluator outages, as last reported by the processes that call them.

A process reports when its breaker opens and after each failed probe; it clears the report when the evaluator
answers. So commands of other processes, which make no calls, can say why documents wait. The word of a process that
has died stays until another one is answered: `until_ms` says how long it may be taken for what is so now.
"""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from facetline.storage.db import engine, models

_TROUBLES = models.TROUBLES
_T = _TROUBLES.c
CLOCKS_APART_MS = 5_000
"""How far the store's clock may be set back without making a report one of the future."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Why an evaluator's calls are stopped. `misconfigured`: no retry can help before it is fixed.

    Times are the store's: `since_ms` when it began, `told_ms` when it was last reported, `until_ms` when it will be
    looked at again.
    """

    evaluator: str
    reason: str
    message: str
    misconfigured: bool
    since_ms: int
    told_ms: int
    until_ms: int

    def is_current(self, now_ms: int) -> bool:
        """Whether this is so now, as far as is known; a report of the future is from before the clock went back."""
        return self.told_ms - CLOCKS_APART_MS <= now_ms < self.until_ms


def record(tx: engine.Tx, evaluator: str, reason: str, message: str, *, misconfigured: bool, valid_ms: int) -> None:
    """Say that an evaluator does not answer; it is looked at again within `valid_ms`. Texts must be storable."""
    insert = sqlite.insert(_TROUBLES) if tx.dialect == "sqlite" else postgresql.insert(_TROUBLES)
    changed = ("reason", "message", "misconfigured", "told_ms", "until_ms")
    given = insert.on_conflict_do_update(
        index_elements=["evaluator"], set_={name: insert.excluded[name] for name in changed}
    )
    row: dict[str, Any] = {"evaluator": evaluator, "reason": reason, "message": message}
    times = {"since_ms": tx.now_ms, "told_ms": tx.now_ms, "until_ms": tx.now_ms + valid_ms}
    tx.execute(given, {**row, "misconfigured": misconfigured, **times})


def clear(tx: engine.Tx, evaluator: str) -> None:
    """Say that it answers."""
    tx.execute(sa.delete(_TROUBLES).where(_T.evaluator == evaluator))


def all(tx: engine.Tx) -> list[Outage]:  # noqa: A001 (read as `troubles.all`)
    """Return the reports that were not cleared, by evaluator."""
    return [Outage(**row) for row in tx.execute(sa.select(_TROUBLES).order_by(_T.evaluator)).mappings()]


def now(tx: engine.Tx, evaluator: str) -> Outage | None:
    """Return what is so now, None when the evaluator answers as far as anybody knows."""
    row = tx.execute(sa.select(_TROUBLES).where(_T.evaluator == evaluator)).mappings().first()
    found = None if row is None else Outage(**row)
    return found if found is not None and found.is_current(tx.now_ms) else None
