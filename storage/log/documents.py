"""Documents in the store of record: reading them whole, and storing what folding made of them.

Searching is the view's business.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from facetline.facets.documents import Document, Evaluation, Status
from facetline.storage.db import batch_parameters, bulk_insert, engine, json_rows, models
from facetline.storage.log import folding
from facetline.storage.log.events import Position

_DOCUMENTS = models.DOCUMENTS
_BODIES = models.BODIES
# Of a document, what folding reads and writes: the fields of `folding.Standing` in their order.
_STANDING = (
    *("uri", "collection", "scope", "key", "version", "revision", "indexed_as", "status", "body_hash", "state"),
    *("event_source", "event_id", "traceparent", "fingerprint"),
    *("log_topic", "log_incarnation", "log_partition", "log_offset"),
)
_WRITTEN = (*_STANDING, "written_ms", "cleared_ms", "due_ms")
# What answers that come with a body are, beside their fingerprint.
_ANSWER = ("facets", "evaluation", "classified_ms")
# What a clearing leaves of the answers and of the place in the queue.
_CLEARED = {
    **dict.fromkeys(("reason", "reason_message", *_ANSWER), "NULL"),
    **dict.fromkeys(("feed_seq", "owner", "lease_until_ms", "claimed_ms", "claimed_fingerprint"), "NULL"),
    **dict.fromkeys(("lane", "attempt", "calls_made", "retries", "crashes", "tries", "retry_wait_ms"), "0"),
    "memo_after_ms": "NULL",
}
# What an event sets that clears nothing.
_STAMPED = (
    *("collection", "scope", "key", "version", "state", "event_source", "event_id", "traceparent"),
    *("log_topic", "log_incarnation", "log_partition", "log_offset"),
)


def get(tx: engine.Tx, uri: str) -> Document | None:
    """Return a document; a deleted one too, its status says so. None: there never was one."""
    query = (
        sa.select(_DOCUMENTS, _BODIES.c.body)
        .outerjoin(_BODIES, _BODIES.c.uri == _DOCUMENTS.c.uri)
        .where(_DOCUMENTS.c.uri == uri)
    )
    row = tx.execute(query).first()
    return None if row is None else json_rows.document(row, row.body)


def beginnings(tx: engine.Tx, uris: Sequence[str], chars: int) -> dict[str, tuple[int, str]]:
    """Return the revision and the first characters of the body of those of these documents that have one."""
    found = _texts(tx, uris, sa.func.substr(_BODIES.c.body, 1, chars))
    return {uri: (revision, start or "") for uri, (revision, start) in found.items()}


def bodies(tx: engine.Tx, uris: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Return the revision and the body of those of these documents that have one."""
    return _texts(tx, uris, _BODIES.c.body)


def _texts(tx: engine.Tx, uris: Sequence[str], text: sa.ColumnElement[str]) -> dict[str, tuple[int, str]]:
    found = {}
    query = sa.select(_DOCUMENTS.c.uri, _DOCUMENTS.c.revision, text.label("text")).join(
        _BODIES, _BODIES.c.uri == _DOCUMENTS.c.uri
    )
    for chunk in batch_parameters.chunks(list(uris)):
        for row in tx.execute(query.where(tx.among(_DOCUMENTS.c.uri, chunk))):
            found[row.uri] = (row.revision, row.text)
    return found


def bodies_behind(tx: engine.Tx, collections: Sequence[str], after: str, limit: int) -> list[tuple[str, str, int, str]]:
    """Return collection, uri, revision and body of the next documents of these collections behind a uri.

    Those without a body are left out; the others come in the order of their uris.
    """
    columns = (_DOCUMENTS.c.collection, _DOCUMENTS.c.uri, _DOCUMENTS.c.revision, _BODIES.c.body)
    query = (
        sa.select(*columns)
        .join(_BODIES, _BODIES.c.uri == _DOCUMENTS.c.uri)
        .where(_DOCUMENTS.c.uri > after, _DOCUMENTS.c.collection.in_(list(collections)))
        .order_by(_DOCUMENTS.c.uri)
        .limit(limit)
    )
    return [tuple(row) for row in tx.execute(query)]


def settled(tx: engine.Tx, uri: str, indexed_as: int) -> Document | None:
    """Return the document once the answer for `indexed_as` is there, has failed, or is no longer wanted; else None.

    A higher `indexed_as` in the result says that a later clearing superseded the one asked about.
    """
    waiting = sa.and_(_DOCUMENTS.c.indexed_as == indexed_as, _DOCUMENTS.c.status == Status.PENDING.value)
    row = tx.execute(
        sa.select(_DOCUMENTS.c.uri).where(_DOCUMENTS.c.uri == uri, _DOCUMENTS.c.indexed_as >= indexed_as, ~waiting)
    ).first()
    return None if row is None else get(tx, uri)


def failures(tx: engine.Tx, uris: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return reason, message and time of writing of those of these documents that are failed."""
    found = {}
    columns = (_DOCUMENTS.c[name] for name in ("uri", "reason", "reason_message", "written_ms"))
    query = sa.select(*columns).where(_DOCUMENTS.c.status == Status.FAILED.value)
    for chunk in batch_parameters.chunks(list(uris)):
        for row in tx.execute(query.where(tx.among(_DOCUMENTS.c.uri, chunk))):
            at = json_rows.timestamp(row.written_ms)
            found[row.uri] = {"reason": row.reason, "message": row.reason_message, "at": at}
    return found


def counts(tx: engine.Tx) -> dict[str, dict[str, int]]:
    """Return the number of documents by collection and status; what has none is left out."""
    query = (
        sa.select(_DOCUMENTS.c.collection, _DOCUMENTS.c.status, sa.func.count().label("documents"))
        .group_by(_DOCUMENTS.c.collection, _DOCUMENTS.c.status)
        .order_by(_DOCUMENTS.c.collection, _DOCUMENTS.c.status)
    )
    found: dict[str, dict[str, int]] = {}
    for row in tx.execute(query):
        found.setdefault(row.collection, {})[row.status] = row.documents
    return found


def standing(tx: engine.Tx, uris: set[str]) -> dict[str, folding.DocumentState]:
    """Lock these documents until the transaction ends, in uri order, and return how they stand."""
    found = {}
    columns = [_DOCUMENTS.c[name] for name in _STANDING]
    for chunk in batch_parameters.chunks(sorted(uris)):
        query = sa.select(*columns).where(tx.among(_DOCUMENTS.c.uri, chunk)).order_by(_DOCUMENTS.c.uri)
        for row in tx.execute(tx.lock_rows(query)):
            values = tuple(row)
            found[values[0]] = folding.DocumentState._make((*values[:-4], Position(*values[-4:])))
    return found


def store(tx: engine.Tx, changes: Sequence[folding.Change]) -> None:
    """Store what has become of documents locked before, each at most once, in uri order.

    Raises:
        IntegrityError: another transaction has made one of them since; see `engine.is_race`.
    """
    _store_rows(tx, changes)
    _store_bodies(tx, [change for change in changes if change.cleared])


def _store_rows(tx: engine.Tx, changes: Sequence[folding.Change]) -> None:
    statements = _statements()
    known = [change for change in changes if change.before is not None]
    statements.cleared.run(tx, [_row(tx, change) for change in known if change.cleared and change.answered is None])
    statements.touched.run(tx, [_row(tx, change) for change in known if not change.cleared])
    statements.answered.run(tx, [_answered_row(tx, change) for change in known if change.answered is not None])
    # Plainly: a uri that another transaction has just made must be read again, never overwritten.
    fresh = [change for change in changes if change.before is None]
    statements.new.run(tx, [_row(tx, change) for change in fresh if change.answered is None])
    statements.new_answered.run(tx, [_answered_row(tx, change) for change in fresh if change.answered is not None])


def _store_bodies(tx: engine.Tx, cleared: Sequence[folding.Change]) -> None:
    _statements().body.run(tx, [(each.after.uri, each.body) for each in cleared if each.body is not None])
    gone = [each.after.uri for each in cleared if each.body is None and each.before is not None]
    for chunk in batch_parameters.chunks(gone):
        tx.execute(sa.delete(_BODIES).where(tx.among(_BODIES.c.uri, chunk)))


@dataclass(frozen=True)
class _Statements:
    new: bulk_insert.Insert
    new_answered: bulk_insert.Insert
    cleared: bulk_insert.Insert
    answered: bulk_insert.Insert
    touched: bulk_insert.Insert
    body: bulk_insert.Insert


@functools.cache
def _statements() -> _Statements:
    insert = functools.partial(bulk_insert.Insert, _DOCUMENTS, _WRITTEN, _CLEARED)
    left = {name: value for name, value in _CLEARED.items() if name not in _ANSWER}
    columns = (*_WRITTEN, *_ANSWER)
    answered = functools.partial(bulk_insert.Insert, _DOCUMENTS, columns, left)
    # An event that changed nothing moves the position only.
    moved = "CASE WHEN excluded.version = documents.version THEN documents.{0} ELSE {1} END"
    shown = {
        "written_ms": moved.format("written_ms", "excluded.written_ms"),
        "feed_seq": moved.format("feed_seq", "NULL"),
    }
    return _Statements(
        new=insert(),
        new_answered=answered(),
        answered=answered(bulk_insert.replacing(["uri"], columns[1:], left)),
        cleared=insert(bulk_insert.replacing(["uri"], _WRITTEN[1:], _CLEARED)),
        touched=insert(bulk_insert.replacing(["uri"], _STAMPED, shown)),
        body=bulk_insert.Insert(_BODIES, ("uri", "body"), {}, bulk_insert.replacing(["uri"], ["body"]), rows_max=100),
    )


def _row(tx: engine.Tx, change: folding.Change) -> tuple[Any, ...]:
    """Return the values of `_WRITTEN`."""
    after, now_ms = change.after, tx.now_ms
    at = after.position
    due_ms = now_ms if after.status == Status.PENDING.value else None
    return (*after[:-1], at.topic, at.incarnation, at.partition, at.offset, now_ms, now_ms, due_ms)


def _answered_row(tx: engine.Tx, change: folding.Change) -> tuple[Any, ...]:
    """Return the values of `_WRITTEN` and `_ANSWER`."""
    answered = change.answered
    if answered is None:
        raise ValueError(f"{change.after.uri} has no answers to store")
    at_ms = tx.now_ms if answered.classified_ms is None else answered.classified_ms
    evaluation = Evaluation.model_validate(
        {**answered.evaluation, "fingerprint": answered.fingerprint, "classified_at": json_rows.moment(at_ms)}
    )
    message = json_rows.dumps(evaluation.model_dump(mode="json"))
    return (*_row(tx, change), json_rows.dumps(answered.facets), message, at_ms)
