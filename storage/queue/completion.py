"""The statements that end or change a claim, for many documents at once. `storage.queue.queue` says what they mean.

Every one names uri, `indexed_as` and `pending`, and says which rows it changed: nothing is checked first and written
later. Rows are locked in the order of their uris before, in all transactions alike, so that two of them never wait for
each other in a circle.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from facetline.storage import counters
from facetline.storage.db import batch_parameters, engine, models
from facetline.storage.queue import due_documents

Identity = tuple[str, int]
"""A uri and the `indexed_as` that an answer must match."""
Row = Mapping[str, Any]
Changes = Callable[[sa.FromClause], dict[str, Any]]

UNCLAIMED: dict[str, Any] = {"owner": None, "lease_until_ms": None}
SETTLED: dict[str, Any] = {
    **UNCLAIMED,
    "due_ms": None,
    "claimed_ms": None,
    "claimed_fingerprint": None,
    "memo_after_ms": None,
    "feed_seq": None,
}

_DOCUMENTS = models.DOCUMENTS
_ITEMS = models.JOB_ITEMS
_C = _DOCUMENTS.c
_IDENTITY: dict[str, batch_parameters.Kind] = {"uri": "text", "indexed_as": "bigint"}
_ANSWER: dict[str, batch_parameters.Kind] = {**_IDENTITY, "fingerprint": "text", "facets": "text", "evaluation": "text"}
# Written out, as in `candidates`: SQLite would read every item of every job otherwise.
OPEN_ITEM = _ITEMS.c.state.in_([sa.literal_column("'waiting'"), sa.literal_column("'asked'")])
"""The condition that an item of a reindex job has not ended."""


def lock(tx: engine.Tx, uris: Iterable[str]) -> dict[str, sa.Row[Any]]:
    """Lock documents in the order of their uris; return what is known about their claims, by uri."""
    known: dict[str, sa.Row[Any]] = {}
    for chunk in batch_parameters.chunks(sorted(set(uris))):
        known.update((row.uri, row) for row in tx.execute(_locking(tx.dialect), {"uris": chunk}))
    return known


def store(tx: engine.Tx, rows: Iterable[Row]) -> set[Identity]:
    """Store answers (columns of `_ANSWER`) where a document still waits for them; return which were stored."""
    stored: set[Identity] = set()
    for chunk in batch_parameters.chunks(list(rows)):
        given = batch_parameters.parameter("given", chunk)
        stored |= _identities(tx.execute(_answering(tx.dialect), {**given, "now": tx.now_ms}))
    close_items(tx, stored, "reindexed")
    return stored


def settle(
    tx: engine.Tx, rows: Sequence[Row], kinds: Mapping[str, batch_parameters.Kind], changes: Changes
) -> set[Identity]:
    """Change documents whose claim is still the one of their row (uri, indexed_as, attempt); return which were."""
    lock(tx, (row["uri"] for row in rows))
    changed: set[Identity] = set()
    for chunk in batch_parameters.chunks(list(rows)):
        given = batch_parameters.table(tx, "given", {**_IDENTITY, "attempt": "bigint", **kinds}, chunk)
        still_claimed = sa.and_(_C.attempt == given.c.attempt, _C.owner.is_not(None))
        changed |= _identities(tx.execute(_changing(given, still_claimed, changes(given))))
    return changed


def close_items(tx: engine.Tx, identities: Iterable[Identity], state: str) -> None:
    """Close the items of reindex jobs that wait for these answers."""
    for chunk in batch_parameters.chunks(sorted(identities)):
        ended = batch_parameters.parameter("ended", [{"uri": uri, "indexed_as": as_} for uri, as_ in chunk])
        tx.execute(_closing(tx.dialect), {**ended, "ended_as": state})


def count_discarded(tx: engine.Tx, name: str, n: int) -> None:
    """Count what changed no row. The tally's row is touched last, and only when there is something to count."""
    if n:
        counters.add(tx, name, n)


# Statements of every round of calls: building one takes ten times as long as running it, so each is built once.


@functools.cache
def _locking(dialect: engine.Dialect) -> sa.Select[Any]:
    named = _C.uri.in_(sa.bindparam("uris", expanding=True))
    rows = sa.select(_C.uri, _C.attempt, _C.indexed_as, _C.claimed_ms).where(named).order_by(_C.uri)
    return engine.lock_rows(dialect, rows)


@functools.cache
def _answering(dialect: engine.Dialect) -> sa.Executable:
    given = batch_parameters.shape(dialect, "given", tuple(_ANSWER.items()))
    answered = {
        **SETTLED,
        "status": "indexed",
        "reason": None,
        "reason_message": None,
        "facets": given.c.facets,
        "evaluation": given.c.evaluation,
        "fingerprint": given.c.fingerprint,
        "classified_ms": sa.bindparam("now"),
        "version": _C.version + 1,
    }
    return _changing(given, sa.true(), answered)


@functools.cache
def _closing(dialect: engine.Dialect) -> sa.Executable:
    ended = batch_parameters.shape(dialect, "ended", tuple(_IDENTITY.items()))
    asked = sa.and_(_ITEMS.c.uri == ended.c.uri, _ITEMS.c.indexed_as == ended.c.indexed_as)
    closed = sa.update(_ITEMS).where(asked, OPEN_ITEM, _ITEMS.c.state == "asked")
    return closed.values(state=sa.bindparam("ended_as"))


def _changing(given: sa.FromClause, condition: sa.ColumnElement[bool], values: dict[str, Any]) -> sa.Executable:
    current = sa.and_(_C.uri == given.c.uri, _C.indexed_as == given.c.indexed_as, due_documents.PENDING, condition)
    return sa.update(_DOCUMENTS).where(current).values(values).returning(_C.uri, _C.indexed_as)


def _identities(changed: sa.CursorResult[Any]) -> set[Identity]:
    return {(row.uri, row.indexed_as) for row in changed}
