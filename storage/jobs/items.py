"""The documents of a reindex job: written in chunks, cleared or taken over in turns, closed one by one.

`storage.jobs.jobs` says when; the caller has locked the job's row. What a turn decides is in `storage.jobs.decisions`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from facetline.storage.db import batch_parameters, engine, models
from facetline.storage.jobs import decisions, model
from facetline.storage.queue import due_documents

_ITEMS = models.JOB_ITEMS
_DOCUMENTS = models.DOCUMENTS
_BODIES = models.BODIES
_MEMO = models.MEMO
_D = _DOCUMENTS.c
_I = _ITEMS.c
_CLEARED: dict[str, Any] = {
    **dict.fromkeys(("reason", "reason_message", "facets", "evaluation", "fingerprint", "classified_ms", "feed_seq")),
    **dict.fromkeys(("owner", "lease_until_ms", "claimed_ms", "claimed_fingerprint")),
    **dict.fromkeys(("calls_made", "retries", "crashes", "tries", "retry_wait_ms"), 0),
    "status": "pending",
    "lane": due_documents.REINDEX,
}


@dataclass(frozen=True, slots=True)
class Decided:
    """What a turn does with one document, and the `indexed_as` that it has now."""

    uri: str
    action: decisions.Action
    indexed_as: int


def wanted(request: "model.JobRequest", active: str, *, by_uri: bool = False) -> sa.ColumnElement[bool]:
    """Return the condition that a document is one to ask again about; `by_uri`: others say which ones to look at."""
    collection: sa.ColumnElement[str] = _D.collection
    scope: sa.ColumnElement[str] = _D.scope
    if by_uri:
        collection, scope = batch_parameters.unindexed(collection), batch_parameters.unindexed(scope)
    of_scope = scope == request.scope if request.scope else sa.true()
    mode = {
        "missing": _D.status.in_(("pending", "failed")),
        "outdated": sa.and_(_D.status == "indexed", _D.fingerprint.is_distinct_from(active)),
        "force": _D.status.not_in(("deleted", "empty")),
    }[request.mode]
    return sa.and_(collection == request.collection, of_scope, mode)


def write_next(
    tx: engine.Tx, job: "model.Job", active: str, limit: int, uris: Sequence[str] | None
) -> tuple[int, str | None]:
    """Write the items among the next `limit` documents, or among `uris`; return how many, and where it got to.

    A document that was cleared after the job was made is not an item: it has been, or is being, asked about since.
    """
    last: str | None
    # What was cleared in the future was cleared before the clock went back, and so before the job.
    earlier = sa.or_(_D.cleared_ms <= job.created_ms, _D.cleared_ms > tx.now_ms)
    still = sa.and_(wanted(job.request, active, by_uri=uris is not None), earlier)
    if uris is not None:
        given = sorted(uri for uri in uris if uri > (job.filled_to or ""))[:limit]
        rows = [{"uri": uri} for uri in given]
        listed = batch_parameters.table(tx, "listed", {"uri": "text"}, rows)
        # Looked up before someone else went on with the job: says nothing about what comes after `filled_to`.
        last = job.filled_to if uris else None
        return _insert(tx, job.id, sa.and_(still, _D.uri == listed.c.uri)), given[-1] if given else last
    after = _after(job)
    page = sa.select(_D.uri).where(_in_collection(job.request), after).order_by(_D.scope, _D.uri)
    last = tx.execute(page.limit(1).offset(limit - 1)).scalar_one_or_none()
    if last is None:
        return _insert(tx, job.id, sa.and_(still, after)), None
    up_to = sa.tuple_(_D.scope, _D.uri) <= sa.tuple_(sa.literal(_scope_of(last)), sa.literal(last))
    return _insert(tx, job.id, sa.and_(still, after, up_to)), last


def lock_next(tx: engine.Tx, job: "model.Job", active: str, room: int, limit: int) -> list[Decided]:
    """Lock the documents of the next waiting items and decide, until `room` are to be asked about."""
    decided: list[Decided] = []
    after, page = "", min(room, limit)
    while room > 0 and len(decided) < limit:
        found = _lock_page(tx, job.id, after, min(page, limit - len(decided), batch_parameters.ROWS_MAX))
        for row in found:
            action = decisions.decide(job.request.mode, job.created_ms, active, _standing(row, tx.now_ms))
            if action in decisions.ASKING:
                if room == 0:
                    return decided
                room -= 1
            decided.append(Decided(row.uri, action, row.indexed_as))
        if not found:
            return decided
        after, page = found[-1].uri, page * 2
    return decided


def carry_out(tx: engine.Tx, job: "model.Job", decided: Sequence[Decided]) -> None:
    """Do what was decided: documents first, then their items."""
    memo_after_ms = job.created_ms if job.request.mode == "force" else None
    identities = {each.uri: each.indexed_as for each in decided}
    identities |= _clear(tx, [each.uri for each in decided if each.action == "clear"], memo_after_ms)
    if memo_after_ms is not None:
        _forget_before(tx, [each.uri for each in decided if each.action == "adopt"], memo_after_ms)
    rows = [
        {
            "uri": each.uri,
            "state": "asked" if each.action in decisions.ASKING else each.action,
            "indexed_as": identities[each.uri],
            "adopted": each.action == "adopt",
        }
        for each in decided
    ]
    _set(tx, job.id, "waiting", rows)


def close_ended(tx: engine.Tx, job_id: str) -> int:
    """Close items whose answer has come, has failed or was superseded without the item; return how many."""
    query = (
        sa.select(_I.uri, _I.indexed_as, _I.adopted, _D.indexed_as.label("current"), _D.status)
        .join(_DOCUMENTS, _D.uri == _I.uri)
        .where(_I.job_id == job_id, _I.state == "asked")
        .order_by(_I.uri)
    )
    rows = []
    for row in tx.execute(query):
        state = decisions.outcome(row.indexed_as, row.current, row.status)
        if state is not None:
            rows.append({"uri": row.uri, "state": state, "indexed_as": row.indexed_as, "adopted": row.adopted})
    _set(tx, job_id, "asked", rows)
    return len(rows)


def count(tx: engine.Tx, job_id: str, state: decisions.ItemState) -> int:
    """Count the items of one state; cheap for `asked`, of which there are never many."""
    query = sa.select(sa.func.count()).where(_I.job_id == job_id, _I.state == state)
    return int(tx.execute(query).scalar_one())


def any_waiting(tx: engine.Tx, job_id: str) -> bool:
    """Say whether an item waits for its turn."""
    return tx.execute(sa.select(_I.uri).where(_I.job_id == job_id, _I.state == "waiting").limit(1)).first() is not None


def calls(
    tx: engine.Tx, request: "model.JobRequest", active: str, uris: Collection[str] | None
) -> tuple[int, int, int]:
    """Count documents, calls and the bytes of the bodies of those calls, if this were asked for now.

    Equal bodies are one call; a remembered answer is none (unless forced), nor is one that is awaited anyway.
    """
    found = wanted(request, active, by_uri=uris is not None)
    if uris is not None:
        listed = batch_parameters.table(tx, "listed", {"uri": "text"}, [{"uri": uri} for uri in uris])
        found = sa.and_(found, _D.uri.in_(sa.select(listed.c.uri)))
    documents = int(tx.execute(sa.select(sa.func.count()).select_from(_DOCUMENTS).where(found)).scalar_one())
    awaited = sa.and_(_D.status == "pending", _D.owner.is_not(None), _D.claimed_fingerprint == active)
    asked = found
    if request.mode != "force":
        key = (_MEMO.c.scope == _D.scope, _MEMO.c.body_hash == _D.body_hash, _MEMO.c.fingerprint == active)
        usable = _MEMO.c.created_ms > sa.func.coalesce(_D.memo_after_ms, -1)
        asked = sa.and_(found, ~sa.exists().where(*key, usable), ~awaited)
    keys = sa.select(sa.func.min(_D.uri).label("uri")).where(asked).group_by(_D.scope, _D.body_hash).subquery()
    size = sa.func.octet_length(_BODIES.c.body)
    if tx.dialect == "sqlite":
        size = sa.func.length(sa.cast(_BODIES.c.body, sa.LargeBinary))
    sums = sa.select(sa.func.count().label("calls"), sa.func.coalesce(sa.func.sum(size), 0).label("bytes"))
    row = tx.execute(sums.select_from(keys.join(_BODIES, _BODIES.c.uri == keys.c.uri))).one()
    return documents, int(row.calls), int(row.bytes)


def _after(job: "model.Job") -> sa.ColumnElement[bool]:
    last = job.filled_to or ""
    return sa.tuple_(_D.scope, _D.uri) > sa.tuple_(sa.literal(_scope_of(last)), sa.literal(last))


def _scope_of(uri: str) -> str:
    return uri[1:].partition("/")[0] if uri.startswith("@") else ""


def _in_collection(request: "model.JobRequest") -> sa.ColumnElement[bool]:
    scope = _D.scope == request.scope if request.scope else sa.true()
    return sa.and_(_D.collection == request.collection, scope)


def _insert(tx: engine.Tx, job_id: str, condition: sa.ColumnElement[bool]) -> int:
    insert = sqlite.insert(_ITEMS) if tx.dialect == "sqlite" else postgresql.insert(_ITEMS)
    found = sa.select(sa.literal(job_id), _D.uri, sa.literal("waiting"), sa.false()).where(condition)
    columns = ["job_id", "uri", "state", "adopted"]
    written = insert.from_select(columns, found).on_conflict_do_nothing()
    return tx.execute(written.execution_options(preserve_rowcount=True)).rowcount


def _lock_page(tx: engine.Tx, job_id: str, after: str, limit: int) -> Sequence[sa.Row[Any]]:
    waiting = sa.select(_I.uri).where(_I.job_id == job_id, _I.state == "waiting", _I.uri > after)
    uris = tx.execute(waiting.order_by(_I.uri).limit(limit)).scalars().all()
    names = ("uri", "indexed_as", "status", "lane", "fingerprint", "cleared_ms", "owner", "crashes")
    query = sa.select(*(_D[name] for name in names), _D.claimed_fingerprint).where(_D.uri.in_(uris)).order_by(_D.uri)
    return tx.execute(tx.lock_rows(query)).all() if uris else []


def _standing(row: sa.Row[Any], now_ms: int) -> decisions.DocumentSnapshot:
    return decisions.DocumentSnapshot(
        status=row.status,
        lane=row.lane,
        fingerprint=row.fingerprint,
        cleared_ms=row.cleared_ms if row.cleared_ms <= now_ms else 0,  # else it was before the clock went back
        owner=row.owner,
        crashes=row.crashes,
        claimed_fingerprint=row.claimed_fingerprint,
    )


def _clear(tx: engine.Tx, uris: Sequence[str], memo_after_ms: int | None) -> dict[str, int]:
    if not uris:
        return {}
    counters = {"version": _D.version + 1, "indexed_as": _D.version + 1}
    times = {"cleared_ms": tx.now_ms, "due_ms": tx.now_ms, "memo_after_ms": memo_after_ms}
    cleared = sa.update(_DOCUMENTS).where(_D.uri.in_(uris)).values({**_CLEARED, **counters, **times})
    return {row.uri: row.indexed_as for row in tx.execute(cleared.returning(_D.uri, _D.indexed_as))}


def _forget_before(tx: engine.Tx, uris: Sequence[str], memo_after_ms: int) -> None:
    if uris:
        later = sa.case((_D.memo_after_ms > memo_after_ms, _D.memo_after_ms), else_=memo_after_ms)
        tx.execute(sa.update(_DOCUMENTS).where(_D.uri.in_(uris)).values(memo_after_ms=later))


def _set(tx: engine.Tx, job_id: str, state: str, rows: Iterable[Mapping[str, Any]]) -> None:
    kinds: dict[str, batch_parameters.Kind] = {"job_id": "text", "uri": "text", "state": "text", "indexed_as": "bigint"}
    for chunk in batch_parameters.chunks([{"job_id": job_id, **row} for row in rows]):
        # Job and uri both come from the rows: the only way to these items is then their primary key.
        given = batch_parameters.table(tx, "given", {**kinds, "adopted": "boolean"}, chunk)
        same = sa.and_(_I.job_id == given.c.job_id, _I.uri == given.c.uri, _I.state == state)
        values = {name: given.c[name] for name in ("state", "indexed_as", "adopted")}
        tx.execute(sa.update(_ITEMS).where(same).values(values))
