"""The processes that ask evaluators: a row for each, which it renews every few seconds while its side chain runs.

These rows show every other process whether anything calls evaluators for this store. A row that is not renewed any more
counts for `LIVING_MS`, whatever became of its process.
"""

import os
import socket
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from facetline.storage import definitions, store_stats
from facetline.storage.db import engine, models
from facetline.storage.db.models import Process as Process  # noqa: PLC0414 (part of what this module offers)

Kind = Literal["worker", "serve", "command"]

BEAT_S = 5.0
"""Between two renewals of a row."""
LIVING_MS = 15_000
"""A row counts for so long: three renewals, so that one that was slow or lost makes no process look dead. A time that
lies further ahead is from before the store's clock went back: it does not count, and the next renewal of any process
deletes it. A living process has a new one within a moment."""
KEPT_MS = 3_600_000
"""Rows of processes that were killed are kept for an hour, for people who look at the table."""
PURGED_MAX = 100
"""Old rows that one renewal deletes."""
COUNTED_MAX = 10_000
"""Pending documents that are counted; a bound of the work, and a number that large says enough."""

_PROCESSES = models.PROCESSES
_P = _PROCESSES.c


@dataclass(frozen=True, slots=True)
class Answering:
    """Who answers for a store: the living processes, how many documents are pending, since when the oldest one is.

    `waiting` ends at `COUNTED_MAX`. `since_ms` None: none is pending.
    """

    living: tuple[Process, ...]
    waiting: int
    since_ms: int | None


def beat(tx: engine.Tx, process_id: str, kind: Kind) -> None:
    """Renew this process's row, or make it, and delete old ones of others."""
    insert = sqlite.insert(_PROCESSES) if tx.dialect == "sqlite" else postgresql.insert(_PROCESSES)
    renewed = insert.on_conflict_do_update(index_elements=["id"], set_={"seen_ms": insert.excluded.seen_ms})
    place: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid()}
    tx.execute(renewed, {"id": process_id, "kind": kind, **place, "started_ms": tx.now_ms, "seen_ms": tx.now_ms})
    old = sa.or_(_P.seen_ms < tx.now_ms - KEPT_MS, _P.seen_ms > tx.now_ms + LIVING_MS)
    those = tx.lock_rows(sa.select(_P.id).where(old).order_by(_P.id).limit(PURGED_MAX), skip_locked=True)
    tx.execute(sa.delete(_PROCESSES).where(_P.id.in_(tx.execute(those).scalars().all())))


def leave(tx: engine.Tx, process_id: str) -> None:
    """Delete this process's row: its side chain has stopped."""
    tx.execute(sa.delete(_PROCESSES).where(_P.id == process_id))


def living(tx: engine.Tx) -> tuple[Process, ...]:
    """Return the processes whose rows count, those that have run longest first."""
    counts = _P.seen_ms.between(tx.now_ms - LIVING_MS, tx.now_ms + LIVING_MS)
    query = sa.select(_PROCESSES).where(counts).order_by(_P.started_ms, _P.id)
    return tuple(tx.rows(Process, query))


def answering(tx: engine.Tx) -> Answering:
    """Return who answers for this store, and what waits: it costs the same however much that is.

    Raises:
        StoreUnavailable: it took longer than `store_stats.LIMIT_S`.
    """
    with tx.limited(store_stats.LIMIT_S):
        waiting = store_stats.pending(tx, COUNTED_MAX)
        oldest = store_stats.oldest_pending(tx, definitions.fingerprints(tx)) if waiting else {}
        return Answering(living(tx), waiting, min(oldest.values(), default=None))
