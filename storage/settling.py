"""The statements that end or change a claim, for many documents at once. `storage.queue` says what they mean.

Every one names uri, `indexed_as` and `pending`, and says which rows it changed: nothing is checked first and written
later. Rows are locked in the order of their uris before, in all transactions alike, so that two of them never wait for
each other in a circle.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from storage import batches, candidates, engine, tables, tallies

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

_DOCUMENTS = tables.DocumentRow.__table__  # type: ignore[attr-defined]
_ITEMS = tables.JobItemRow.__table__  # type: ignore[attr-defined]
_C = _DOCUMENTS.c
_IDENTITY: dict[str, batches.Kind] = {"uri": "text", "indexed_as": "bigint"}
_ANSWER: dict[str, batches.Kind] = {**_IDENTITY, "fingerprint": "text", "facets": "text", "evaluation": "text"}
# Written out, as in `candidates`: SQLite would read every item of every job otherwise.
OPEN_ITEM = _ITEMS.c.state.in_([sa.literal_column("'waiting'"), sa.literal_column("'asked'")])
"""The condition that an item of a reindex job has not ended."""


def lock(tx: engine.Tx, uris: Iterable[str]) -> dict[str, sa.Row[Any]]:
    """Lock documents in the order of their uris; return what is known about their claims, by uri."""
    known: dict[str, sa.Row[Any]] = {}
    for chunk in batches.chunks(sorted(set(uris))):
        rows = sa.select(_C.uri, _C.attempt, _C.indexed_as, _C.claimed_ms).where(_C.uri.in_(chunk)).order_by(_C.uri)
        known.update((row.uri, row) for row in tx.execute(tx.lock_rows(rows)))
    return known


def store(tx: engine.Tx, rows: Iterable[Row]) -> set[Identity]:
    """Store answers (columns of `_ANSWER`) where a document still waits for them; return which were stored."""
    stored: set[Identity] = set()
    for chunk in batches.chunks(list(rows)):
        given = batches.table(tx, "given", _ANSWER, chunk)
        stored |= _changed(tx, given, sa.true(), _answered(tx, given))
    close_items(tx, stored, "reindexed")
    return stored


def settle(tx: engine.Tx, rows: Sequence[Row], kinds: Mapping[str, batches.Kind], changes: Changes) -> set[Identity]:
    """Change documents whose claim is still the one of their row (uri, indexed_as, attempt); return which were."""
    lock(tx, (row["uri"] for row in rows))
    changed: set[Identity] = set()
    for chunk in batches.chunks(list(rows)):
        given = batches.table(tx, "given", {**_IDENTITY, "attempt": "bigint", **kinds}, chunk)
        still_claimed = sa.and_(_C.attempt == given.c.attempt, _C.owner.is_not(None))
        changed |= _changed(tx, given, still_claimed, changes(given))
    return changed


def close_items(tx: engine.Tx, identities: Iterable[Identity], state: str) -> None:
    """Close the items of reindex jobs that wait for these answers."""
    for chunk in batches.chunks(sorted(identities)):
        ended = batches.table(tx, "ended", _IDENTITY, [{"uri": uri, "indexed_as": as_} for uri, as_ in chunk])
        asked = sa.and_(_ITEMS.c.uri == ended.c.uri, _ITEMS.c.indexed_as == ended.c.indexed_as)
        tx.execute(sa.update(_ITEMS).where(asked, OPEN_ITEM, _ITEMS.c.state == "asked").values(state=state))


def count_discarded(tx: engine.Tx, name: str, n: int) -> None:
    """Count what changed no row. The tally's row is touched last, and only when there is something to count."""
    if n:
        tallies.add(tx, name, n)


def waiting(tx: engine.Tx, identities: Iterable[Identity]) -> list[Identity]:
    """Return those identities whose document still waits for its answer."""
    found: list[Identity] = []
    for chunk in batches.chunks(list(identities)):
        asked = batches.table(tx, "asked", _IDENTITY, [{"uri": uri, "indexed_as": as_} for uri, as_ in chunk])
        same = sa.and_(_C.uri == asked.c.uri, _C.indexed_as == asked.c.indexed_as, candidates.PENDING)
        found.extend((row.uri, row.indexed_as) for row in tx.execute(sa.select(_C.uri, _C.indexed_as).where(same)))
    return found


def _answered(tx: engine.Tx, given: sa.FromClause) -> dict[str, Any]:
    return {
        **SETTLED,
        "status": "indexed",
        "reason": None,
        "reason_message": None,
        "facets": given.c.facets,
        "evaluation": given.c.evaluation,
        "fingerprint": given.c.fingerprint,
        "classified_ms": tx.now_ms,
        "version": _C.version + 1,
    }


def _changed(
    tx: engine.Tx, given: sa.FromClause, condition: sa.ColumnElement[bool], values: dict[str, Any]
) -> set[Identity]:
    current = sa.and_(_C.uri == given.c.uri, _C.indexed_as == given.c.indexed_as, candidates.PENDING, condition)
    statement = sa.update(_DOCUMENTS).where(current).values(values).returning(_C.uri, _C.indexed_as)
    return {(row.uri, row.indexed_as) for row in tx.execute(statement)}
