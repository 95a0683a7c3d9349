"""Documents that a claim may take: which are due, which leases have run out, and when there will be more.

Every query here begins with a collection and meets one of the two partial indexes, so a claim costs the same whatever
else is pending: other collections, retries in the future, other processes' claims. Rows that someone has locked are
passed over.
"""

import functools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from facetline.storage.db import batch_parameters, engine, models

LIVE = 0
"""The lane of written documents."""
REINDEX = 1
"""The lane of documents that a reindex job asks about again."""
LANES = (LIVE, REINDEX)

TAKEOVERS_MAX = 500
"""Expired leases taken over in one transaction."""

_DOCUMENTS = models.DOCUMENTS
_DEFINITIONS = models.DEFINITIONS
_C = _DOCUMENTS.c
_NAME = _DEFINITIONS.c.name
# Written out: a partial index is used only when its condition stands in the query as it is.
PENDING = _C.status == sa.literal_column("'pending'")
_FREE = sa.and_(PENDING, _C.owner.is_(None))
_LEASED = _C.owner.is_not(None)
_COLLECTION = batch_parameters.unindexed(_C.collection)
_COLUMNS = (
    _C.uri,
    _C.collection,
    _C.scope,
    _C.key,
    _C.body_hash,
    _C.indexed_as,
    _C.lane,
    _C.due_ms,
    _C.attempt,
    _C.tries,
    _C.retry_wait_ms,
    _C.retries,
    _C.crashes,
    _C.memo_after_ms,
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A free, due document, locked by the transaction that found it."""

    uri: str
    collection: str
    scope: str
    key: str
    body_hash: str
    indexed_as: int
    lane: int
    due_ms: int
    attempt: int
    tries: int
    retry_wait_ms: int
    retries: int
    crashes: int
    memo_after_ms: int | None


def due(
    tx: engine.Tx, collection: str, lane: int, limit: int, *, without: Collection[tuple[str, str]]
) -> list[Candidate]:
    """Lock and return the documents that have been due longest, but none about a (scope, body hash) in `without`."""
    given: dict[str, Any] = {"collection": collection, "lane": lane, "now": tx.now_ms, "most": limit}
    if without:
        given["without"] = sorted(without)
    return [Candidate(*tuple(row)) for row in tx.execute(_finding_due(tx.dialect, bool(without)), given)]


def heads(tx: engine.Tx, collection: str, lane: int, after: str, limit: int) -> dict[str, str]:
    """Return the longest due document of each scope, by scope, going around from the scope after `after`.

    Costs two looks at an index for each scope that it visits, `limit` at most, however much of each is pending.
    """
    given = {"collection": collection, "lane": lane, "now": tx.now_ms, "scopes": limit, "after": after}
    return {row.scope: row.uri for row in tx.execute(_finding_heads(), given) if row.uri is not None}


def chosen(tx: engine.Tx, uris: Sequence[str], *, without: Collection[tuple[str, str]]) -> list[Candidate]:
    """Lock and return those of these documents that are free and due, but none about a key in `without`."""
    given: dict[str, Any] = {"uris": list(uris), "now": tx.now_ms}
    if without:
        given["without"] = sorted(without)
    return [Candidate(*tuple(row)) for row in tx.execute(_finding_chosen(tx.dialect, bool(without)), given)]


def take_over(tx: engine.Tx, collections: Iterable[str]) -> int:
    """Free documents whose lease has run out, each recorded as a crash; return how many.

    The former holder can no longer postpone, fail or release the document: it has no owner, or another attempt.
    """
    given = {"now": tx.now_ms, "collections": sorted(collections)}
    uris = tx.execute(_finding_expired(tx.dialect), given).scalars().all()
    if uris:
        freed = sa.update(_DOCUMENTS).where(_C.uri.in_(uris))
        tx.execute(freed.values(owner=None, lease_until_ms=None, crashes=_C.crashes + 1))
    return len(uris)


def correct_clock(tx: engine.Tx, collections: Iterable[str], *, wait_max_ms: int, lease_ms: int) -> int:
    """Bring times back that lie further ahead than any wait of ours, because the clock went back; return how many.

    A free document that is due later than `wait_max_ms` from now is due now. A lease that was taken in the future, and
    that ends later than one of `lease_ms` would, begins now: its holder, if alive, has time for its call, which is
    not made twice; a dead holder is taken over when it ends. Costs one look at two indexes while there is none.
    """
    given = {
        "now": tx.now_ms,
        "due": tx.now_ms + wait_max_ms,
        "lease": tx.now_ms + lease_ms,
        "collections": sorted(collections),
    }
    if not tx.execute(_finding_ahead(), given).scalar_one():
        return 0
    due = tx.execute(_finding_due_ahead(tx.dialect), given).scalars().all()
    leased = tx.execute(_finding_leased_ahead(tx.dialect), given).scalars().all()
    cleared_ms = sa.case((_C.cleared_ms > tx.now_ms, tx.now_ms), else_=_C.cleared_ms)  # its age counts from now on
    if due:
        tx.execute(sa.update(_DOCUMENTS).where(_C.uri.in_(due)).values(due_ms=tx.now_ms, cleared_ms=cleared_ms))
    if leased:
        until_ms = tx.now_ms + _C.lease_until_ms - _C.claimed_ms
        # Due as well: when the lease ends it is free, and must not wait then.
        again = {"claimed_ms": tx.now_ms, "lease_until_ms": until_ms, "due_ms": tx.now_ms, "cleared_ms": cleared_ms}
        tx.execute(sa.update(_DOCUMENTS).where(_C.uri.in_(leased)).values(**again))
    return len(due) + len(leased)


def next_event_ms(tx: engine.Tx, collections: Sequence[str]) -> int | None:
    """Return when the next retry is due or the next lease runs out, None when nothing is waited for."""
    moments = [
        tx.execute(_finding_earliest(), {"collection": collection, "lane": lane, "now": tx.now_ms}).scalar_one_or_none()
        for collection in collections
        for lane in LANES
    ]
    moments.append(tx.execute(_finding_next_lease(), {"collections": list(collections)}).scalar_one())
    return min((moment for moment in moments if moment is not None), default=None)


def any_due(tx: engine.Tx, collection: str, lane: int, *, without: Collection[tuple[str, str]]) -> bool:
    """Return whether `due` would find something without any locks."""
    given: dict[str, Any] = {"collection": collection, "lane": lane, "now": tx.now_ms}
    if without:
        given["without"] = sorted(without)
    return tx.execute(_finding_any_due(bool(without)), given).first() is not None


# The queries of every claim, each built once: that takes ten times as long as running it.


@functools.cache
def _finding_due(dialect: engine.Dialect, without: bool) -> sa.Select[Any]:
    query = _among_due(sa.select(*_COLUMNS), without).order_by(_C.due_ms, _C.uri).limit(sa.bindparam("most"))
    return engine.lock_rows(dialect, query, skip_locked=True)


@functools.cache
def _finding_heads() -> sa.Select[Any]:
    """Skip from scope to scope: each step asks the index for the next one, and for its longest due document."""

    def next_after(scope: Any) -> sa.ScalarSelect[Any]:
        document = sa.alias(_DOCUMENTS).c
        free = sa.and_(
            document.status == sa.literal_column("'pending'"),
            document.owner.is_(None),
            document.collection == sa.bindparam("collection"),
            document.lane == sa.bindparam("lane"),
        )
        return (
            sa.select(document.scope)
            .where(free, document.scope > scope)
            .order_by(document.scope, document.due_ms)  # as the index without claimed ones
            .limit(1)
            .scalar_subquery()
        )

    around = sa.func.coalesce(next_after(sa.bindparam("after")), next_after(sa.literal_column("''")))
    start = sa.select(around.label("scope")).subquery()
    first = sa.select(start.c.scope, start.c.scope.label("start"), sa.literal_column("1").label("place"))
    turns = first.cte("turns", recursive=True)
    is_new = sa.and_(turns.c.scope.is_not(None), sa.or_(turns.c.place == 1, turns.c.scope != turns.c.start))
    following = sa.func.coalesce(next_after(turns.c.scope), next_after(sa.literal_column("''")))
    more = sa.and_(is_new, turns.c.place < sa.bindparam("scopes"))
    turns = turns.union_all(sa.select(following, turns.c.start, turns.c.place + 1).where(more))
    is_new = sa.and_(turns.c.scope.is_not(None), sa.or_(turns.c.place == 1, turns.c.scope != turns.c.start))
    due = sa.select(_C.uri).where(*_free_in_lane(), _C.scope == turns.c.scope, _C.due_ms <= sa.bindparam("now"))
    head = due.order_by(_C.due_ms, _C.uri).limit(1).scalar_subquery().label("uri")
    return sa.select(turns.c.scope, head).where(is_new).order_by(turns.c.place)


@functools.cache
def _finding_chosen(dialect: engine.Dialect, without: bool) -> sa.Select[Any]:
    uris: sa.BindParameter[Any] = sa.bindparam("uris", expanding=True)
    query = sa.select(*_COLUMNS).where(_C.uri.in_(uris), _FREE, _C.due_ms <= sa.bindparam("now"))
    if without:
        query = query.where(sa.tuple_(_C.scope, _C.body_hash).not_in(sa.bindparam("without", expanding=True)))
    return engine.lock_rows(dialect, query.order_by(_C.uri), skip_locked=True)


@functools.cache
def _finding_any_due(without: bool) -> sa.Select[Any]:
    return _among_due(sa.select(_C.uri), without).limit(1)


def _among_due(query: sa.Select[Any], without: bool) -> sa.Select[Any]:
    query = query.where(*_free_in_lane(), _C.due_ms <= sa.bindparam("now"))
    if without:
        query = query.where(sa.tuple_(_C.scope, _C.body_hash).not_in(sa.bindparam("without", expanding=True)))
    return query


def _free_in_lane() -> tuple[sa.ColumnElement[bool], ...]:
    return _FREE, _C.collection == sa.bindparam("collection"), _C.lane == sa.bindparam("lane")


@functools.cache
def _finding_expired(dialect: engine.Dialect) -> sa.Select[Any]:
    collections: sa.BindParameter[Any] = sa.bindparam("collections", expanding=True)
    query = (
        sa.select(_C.uri)
        .where(_LEASED, PENDING, _C.lease_until_ms <= sa.bindparam("now"), _COLLECTION.in_(collections))
        .order_by(_C.lease_until_ms)
        .limit(TAKEOVERS_MAX)
    )
    return engine.lock_rows(dialect, query, skip_locked=True)


def _due_ahead() -> sa.ColumnElement[bool]:
    collections: sa.BindParameter[Any] = sa.bindparam("collections", expanding=True)
    lanes = _C.lane.in_([sa.literal_column(str(lane)) for lane in LANES])  # so that the whole index key is given
    return sa.and_(_FREE, _C.collection.in_(collections), lanes, _C.due_ms > sa.bindparam("due"))


def _leased_ahead() -> sa.ColumnElement[bool]:
    collections: sa.BindParameter[Any] = sa.bindparam("collections", expanding=True)
    ahead = sa.and_(_C.lease_until_ms > sa.bindparam("lease"), _C.claimed_ms > sa.bindparam("now"))
    return sa.and_(_LEASED, PENDING, ahead, _COLLECTION.in_(collections))


@functools.cache
def _finding_ahead() -> sa.Select[Any]:
    """Say whether there is any: by the latest of each collection and lane, which is one row of an index.

    PostgreSQL plans a repeated statement for any value, and then expects a third of all documents to be due later than
    a moment: it would look for the first of them through the whole table.
    """
    names: sa.BindParameter[Any] = sa.bindparam("collections", expanding=True)
    due = sa.exists().where(_NAME.in_(names), sa.or_(*(_latest_due(lane) > sa.bindparam("due") for lane in LANES)))
    return sa.select(sa.or_(due.correlate(None), sa.exists().where(_leased_ahead()).correlate(None)))


def _latest_due(lane: int) -> sa.ScalarSelect[int]:
    """Return when the last free document of a collection in `definitions` is due."""
    free = (_FREE, _C.collection == _NAME, _C.lane == sa.literal_column(str(lane)))
    return (
        sa.select(_C.due_ms).where(*free).order_by(_C.due_ms.desc()).limit(1).correlate(_DEFINITIONS).scalar_subquery()
    )


@functools.cache
def _finding_due_ahead(dialect: engine.Dialect) -> sa.Select[Any]:
    query = sa.select(_C.uri).where(_due_ahead()).order_by(_C.uri).limit(TAKEOVERS_MAX)
    return engine.lock_rows(dialect, query, skip_locked=True)


@functools.cache
def _finding_leased_ahead(dialect: engine.Dialect) -> sa.Select[Any]:
    query = sa.select(_C.uri).where(_leased_ahead()).order_by(_C.uri).limit(TAKEOVERS_MAX)
    return engine.lock_rows(dialect, query, skip_locked=True)


@functools.cache
def _finding_earliest() -> sa.Select[Any]:
    later = sa.select(_C.due_ms).where(*_free_in_lane(), _C.due_ms > sa.bindparam("now"))
    return later.order_by(_C.due_ms).limit(1)


@functools.cache
def _finding_next_lease() -> sa.Select[Any]:
    collections: sa.BindParameter[Any] = sa.bindparam("collections", expanding=True)
    return sa.select(sa.func.min(_C.lease_until_ms)).where(_LEASED, PENDING, _COLLECTION.in_(collections))
