"""What became of each event: one row for each (source, id, digest).

`applied` and `unchanged` settle an id permanently. A rejection settles nothing and is overwritten when the same event
is judged again. Rows are kept 30 days; an event that comes again later is judged afresh.
"""

import functools
from collections.abc import Iterable

import sqlalchemy as sa

from facetline.storage.db import batch_parameters, bulk_insert, engine, models
from facetline.storage.log import folding
from facetline.storage.log.events import Outcome

KEEP_DAYS = 30
PURGED_MAX = 5_000
"""Rows purged in one transaction: some ten milliseconds."""

_OUTCOMES = models.OUTCOMES
_KEY = ("source", "event_id", "digest")
_SAID = ("outcome", "reason", "message", "uri", "version", "revision", "indexed_as", "at_ms")
_DAY_MS = 24 * 60 * 60 * 1000


def find(tx: engine.Tx, source: str, event_id: str, digest: str | None = None) -> Outcome | None:
    """Return what became of an event; without a digest what settled the id, else its latest rejection."""
    query = sa.select(_OUTCOMES).where(_OUTCOMES.c.source == source, _OUTCOMES.c.event_id == event_id)
    if digest is not None:
        query = query.where(_OUTCOMES.c.digest == digest)
    settled_first = sa.case((_OUTCOMES.c.outcome == "rejected", 1), else_=0)
    row = tx.execute(query.order_by(settled_first, _OUTCOMES.c.at_ms.desc()).limit(1)).first()
    return None if row is None else _outcome(row)


def settled(tx: engine.Tx, keys: Iterable[folding.EventKey]) -> dict[folding.EventKey, Outcome]:
    """Return the outcomes that settled these (source, id) pairs."""
    by_source: dict[str, list[str]] = {}
    for source, event_id in keys:
        by_source.setdefault(source, []).append(event_id)
    found = {}
    for source, ids in by_source.items():
        for chunk in batch_parameters.chunks(ids):
            query = sa.select(_OUTCOMES).where(
                _OUTCOMES.c.source == source, tx.among(_OUTCOMES.c.event_id, chunk), _OUTCOMES.c.outcome != "rejected"
            )
            found.update({(row.source, row.event_id): _outcome(row) for row in tx.execute(query)})
    return found


def store(tx: engine.Tx, outcomes: Iterable[Outcome]) -> None:
    """Store new outcomes; of several for one (source, id, digest) the last counts, and a settled one stays."""
    now_ms = tx.now_ms
    latest = {(each.source, each.id, each.digest): each for each in outcomes if not each.duplicate}
    values = [
        (*key, o.outcome, o.reason, o.message, o.uri, o.version, o.revision, o.indexed_as, now_ms)
        for key, o in sorted(latest.items(), key=lambda item: item[0])
    ]
    _insert().run(tx, values)


@functools.cache
def _insert() -> bulk_insert.Insert:
    return bulk_insert.Insert(
        _OUTCOMES, (*_KEY, *_SAID), conflict=f"{bulk_insert.replacing(_KEY, _SAID)} WHERE outcomes.outcome = 'rejected'"
    )


def tally(tx: engine.Tx, source: str) -> dict[str, int]:
    """Return how many events of a source have each outcome."""
    query = (
        sa.select(_OUTCOMES.c.outcome, sa.func.count().label("events"))
        .where(_OUTCOMES.c.source == source)
        .group_by(_OUTCOMES.c.outcome)
    )
    return {row.outcome: row.events for row in tx.execute(query)}


def rejected(tx: engine.Tx, source: str, *, after: str = "", limit: int = 1_000) -> list[Outcome]:
    """Return the next rejected events of a source, by id; for the next page pass the last one's id."""
    query = sa.select(_OUTCOMES).where(
        _OUTCOMES.c.source == source, _OUTCOMES.c.event_id > after, _OUTCOMES.c.outcome == "rejected"
    )
    return [_outcome(row) for row in tx.execute(query.order_by(_OUTCOMES.c.event_id).limit(limit))]


def purge(tx: engine.Tx, older_than_days: int = KEEP_DAYS, limit: int = PURGED_MAX) -> int:
    """Forget at most `limit` outcomes of that age; return how many. Call again until fewer than `limit` were left."""
    oldest = (
        sa.select(*(_OUTCOMES.c[name] for name in _KEY))
        .where(_OUTCOMES.c.at_ms < tx.now_ms - older_than_days * _DAY_MS)
        .order_by(_OUTCOMES.c.at_ms)
        .limit(limit)
    )
    old = sa.tuple_(*(_OUTCOMES.c[name] for name in _KEY)).in_(tx.lock_rows(oldest, skip_locked=True))
    return tx.execute(sa.delete(_OUTCOMES).where(old)).rowcount


def _outcome(row: sa.Row[tuple[object, ...]]) -> Outcome:
    return Outcome(
        source=row.source,
        id=row.event_id,
        digest=row.digest,
        outcome=row.outcome,
        reason=row.reason,
        message=row.message,
        uri=row.uri,
        version=row.version,
        revision=row.revision,
        indexed_as=row.indexed_as,
    )
