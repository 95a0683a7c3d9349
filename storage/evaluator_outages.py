"""Evaluator outages, as last reported by the processes that call them.

A process reports when its breaker opens and after each failed probe; it clears the report when the evaluator
answers. So commands of other processes, which make no calls, can say why documents wait. The report of a
process that has died stays until a call succeeds; `until_ms` says how long it counts as current.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from facetline.storage.db import engine, models
from facetline.storage.db.models import Outage as Outage  # noqa: PLC0414 (part of what this module offers)

_TROUBLES = models.TROUBLES
_T = _TROUBLES.c


def record(tx: engine.Tx, evaluator: str, reason: str, message: str, *, misconfigured: bool, valid_ms: int) -> None:
    """Report that an evaluator does not answer; it is probed again within `valid_ms`. Texts must be storable."""
    insert = sqlite.insert(_TROUBLES) if tx.dialect == "sqlite" else postgresql.insert(_TROUBLES)
    changed = ("reason", "message", "misconfigured", "told_ms", "until_ms")
    given = insert.on_conflict_do_update(
        index_elements=["evaluator"], set_={name: insert.excluded[name] for name in changed}
    )
    row: dict[str, Any] = {"evaluator": evaluator, "reason": reason, "message": message}
    times = {"since_ms": tx.now_ms, "told_ms": tx.now_ms, "until_ms": tx.now_ms + valid_ms}
    tx.execute(given, {**row, "misconfigured": misconfigured, **times})


def clear(tx: engine.Tx, evaluator: str) -> None:
    """Report that it answers."""
    tx.execute(sa.delete(_TROUBLES).where(_T.evaluator == evaluator))


def all(tx: engine.Tx) -> list[Outage]:  # noqa: A001 (read as `evaluator_outages.all`)
    """Return the reports that were not cleared, by evaluator."""
    return tx.rows(Outage, sa.select(_TROUBLES).order_by(_T.evaluator))


def now(tx: engine.Tx, evaluator: str) -> Outage | None:
    """Return the current outage, None when the evaluator answers as far as is known."""
    found = tx.rows(Outage, sa.select(_TROUBLES).where(_T.evaluator == evaluator))
    return next((each for each in found if each.is_current(tx.now_ms)), None)
