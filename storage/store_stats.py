"""Statistics of the store for monitoring: positions, how much waits, and since when.

`glance` costs the same however much the store holds. The counts read what they count: `waiting` the entries of the
queue's indexes (a tenth of a second for 200,000), `open_letters` every dead letter, `by_status` every document (for a
million half a second on PostgreSQL, three on SQLite). All of them run under a limit in time; nothing is ever locked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa

from facetline.storage import counters, definitions, feed, publications, usage_ledger
from facetline.storage.db import batch_parameters, engine, models
from facetline.storage.log import dead_letters, documents, positions
from facetline.storage.queue import due_documents

LIMIT_S = 5.0
"""How long one question may take; what takes longer is not known this time."""
COUNT_LIMIT_S = 10.0
"""The same for what reads whole tables; a stop waits for it."""
OLDEST_MAX = 1_000
"""Documents looked at in each queue for the one that has waited longest. In the order in which they are due, it is
among the first, unless so many retries were put off: then a document is named that has waited a little less."""

_DOCUMENTS = models.DOCUMENTS
_LETTERS = models.DEAD_LETTERS
_JOBS = models.JOBS
_STORES = models.STORE
_ASIDE = models.SET_ASIDE
_C = _DOCUMENTS.c
_FREE = sa.and_(due_documents.PENDING, _C.owner.is_(None))
_CLAIMED = sa.and_(due_documents.PENDING, _C.owner.is_not(None))
# Written out, as in `candidates`: a partial index is used only when its condition stands in the query as it is.
_ACTIVE_JOB = _JOBS.c.state.in_([sa.literal_column("'queued'"), sa.literal_column("'running'")])


@dataclass(frozen=True, slots=True)
class StoreSummary:
    """How far everything has come.

    `fingerprints` are the active ones by collection, `oldest_ms` when the longest pending document of a collection was
    cleared. `next_offsets` are the positions of record by partition. `published` is how far the feed, which ends at
    `feed_end`, has been sent; None before the first time. `spent` is what all calls used up by (collection, evaluator),
    `spent_today` what those of this UTC day did by evaluator.
    """

    store_id: str
    now_ms: int
    fingerprints: Mapping[str, str]
    oldest_ms: Mapping[str, int]
    tallies: Mapping[str, int]
    next_offsets: Mapping[int, int]
    feed_end: int
    published: int | None
    set_aside: int
    jobs: Mapping[str, int]
    spent: Mapping[tuple[str, str], usage_ledger.Spent] = field(default_factory=dict)
    spent_today: Mapping[str, usage_ledger.Spent] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Pending documents by collection: due now, due later (retries), asked about right now.

    `unnumbered` changes have no place in the feed yet, `unsent` dead letters are not on their topic yet.
    """

    due: Mapping[str, int]
    later: Mapping[str, int]
    claimed: Mapping[str, int]
    unnumbered: int
    unsent: int


def glance(tx: engine.Tx, documents_topic: str, facets_topic: str) -> StoreSummary:
    """Return what is known without counting.

    Raises:
        StoreUnavailable: it took longer than `LIMIT_S`.
    """
    with tx.limited(LIMIT_S):
        store = tx.execute(sa.select(_STORES.c.store_id, _STORES.c.feed_seq)).one()
        fingerprints = definitions.fingerprints(tx)
        return StoreSummary(
            store_id=store.store_id,
            now_ms=tx.now_ms,
            fingerprints=fingerprints,
            oldest_ms=oldest_pending(tx, fingerprints),
            tallies=counters.all(tx),
            next_offsets={number: state.next_offset for number, state in positions.get(tx, documents_topic).items()},
            feed_end=store.feed_seq,
            published=publications.known_position(tx, facets_topic),
            set_aside=_count(tx, _ASIDE.c.topic == facets_topic, _ASIDE),
            jobs=_jobs(tx),
            spent=usage_ledger.by_collection(tx),
            spent_today=usage_ledger.today_by_evaluator(tx),
        )


def waiting(tx: engine.Tx) -> Waiting:
    """Count what waits, from the indexes that hold nothing else.

    Raises:
        StoreUnavailable: it took longer than `LIMIT_S`.
    """
    with tx.limited(LIMIT_S):
        is_due = _C.due_ms <= tx.now_ms
        counts = sa.func.count().filter(is_due).label("due"), sa.func.count().label("free")
        free = tx.execute(sa.select(_C.collection, *counts).where(_FREE).group_by(_C.collection)).all()
        collection = batch_parameters.unindexed(_C.collection).label("collection")
        leased = sa.select(collection, sa.func.count().label("claimed")).where(_CLAIMED).group_by(collection)
        return Waiting(
            due={row.collection: row.due for row in free},
            later={row.collection: row.free - row.due for row in free},
            claimed={row.collection: row.claimed for row in tx.execute(leased)},
            unnumbered=_count(tx, feed.UNNUMBERED, _DOCUMENTS),
            unsent=_count(tx, _LETTERS.c.sent_ms.is_(None), _LETTERS),
        )


def by_status(tx: engine.Tx) -> dict[str, dict[str, int]]:
    """Count documents by collection and status.

    Raises:
        StoreUnavailable: it took longer than `COUNT_LIMIT_S`.
    """
    with tx.limited(COUNT_LIMIT_S):
        return documents.counts(tx)


def open_letters(tx: engine.Tx) -> dict[str, int]:
    """Count open dead letters by reason.

    Raises:
        StoreUnavailable: it took longer than `COUNT_LIMIT_S`.
    """
    with tx.limited(COUNT_LIMIT_S):
        return dead_letters.counts(tx)


def oldest_pending(tx: engine.Tx, collections: Mapping[str, str]) -> dict[str, int]:
    """Return when the document that has been pending longest was cleared, by collection; none where nothing waits."""
    collection = batch_parameters.unindexed(_C.collection).label("collection")
    leased = sa.select(collection, sa.func.min(_C.cleared_ms).label("at")).where(_CLAIMED).group_by(collection)
    found: dict[str, list[int]] = {}
    for row in tx.execute(leased):
        found.setdefault(row.collection, []).append(row.at)
    for name in collections:
        for lane in due_documents.LANES:
            for is_due in (_C.due_ms <= tx.now_ms, _C.due_ms > tx.now_ms):
                place = sa.and_(_FREE, _C.collection == name, _C.lane == lane, is_due)
                first = sa.select(_C.cleared_ms).where(place).order_by(_C.due_ms, _C.uri).limit(OLDEST_MAX).subquery()
                at = tx.execute(sa.select(sa.func.min(first.c.cleared_ms))).scalar_one()
                if at is not None:
                    found.setdefault(name, []).append(at)
    return {name: min(moments) for name, moments in sorted(found.items())}


def pending(tx: engine.Tx, most: int) -> int:
    """Count pending documents, due, put off or claimed, up to `most`."""
    found = 0
    for place in (_FREE, _CLAIMED):
        rows = sa.select(sa.literal(1)).select_from(_DOCUMENTS).where(place).limit(most).subquery()
        found += int(tx.execute(sa.select(sa.func.count()).select_from(rows)).scalar_one())
    return min(found, most)


def oldest_of(tx: engine.Tx, collection: str, scope: str | None) -> int | None:
    """Return when the document of a collection, or of one of its scopes, that has been pending longest was cleared.

    Raises:
        StoreUnavailable: it took longer than `LIMIT_S`: a scope is looked for among all that waits.
    """
    with tx.limited(LIMIT_S):
        if scope is None:
            return oldest_pending(tx, {collection: ""}).get(collection)
        of_scope = sa.and_(due_documents.PENDING, _C.collection == collection, _C.scope == scope)
        found: int | None = tx.execute(sa.select(sa.func.min(_C.cleared_ms)).where(of_scope)).scalar_one()
        return found


def age_ms(now_ms: int, since_ms: int) -> int:
    """Return for how long something has waited: never 0 while it waits, also after the clock went back."""
    return max(1, now_ms - since_ms)


def _jobs(tx: engine.Tx) -> dict[str, int]:
    query = sa.select(_JOBS.c.state, sa.func.count().label("jobs")).where(_ACTIVE_JOB).group_by(_JOBS.c.state)
    return {row.state: row.jobs for row in tx.execute(query)}


def _count(tx: engine.Tx, condition: sa.ColumnElement[bool], table: sa.FromClause) -> int:
    return int(tx.execute(sa.select(sa.func.count()).select_from(table).where(condition)).scalar_one())
