"""Reindex jobs: asking again about documents, turn by turn, so that the collection never goes dark.

A job's items are written when it is made, in bounded chunks. A turn locks some of their documents and checks, clears
and makes them pending in one transaction; no more than a bound are ever cleared and unanswered. A job is worked on
under a lease, and the process that takes it over goes on from there. Locks: the job, then documents by uri, then items.

A canceled job's waiting items stay as they are and are reported as canceled: ending a job costs the same for ten
documents and for a million.
"""

import functools
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from facetline.facets import errors
from facetline.storage.db import engine, models
from facetline.storage.jobs import decisions
from facetline.storage.jobs import items as job_items
from facetline.storage.jobs.model import ACTIVE, DAY_MS, Item, Job, JobRequest, JobState, Plan, Turn
from facetline.storage.queue import answer_cache

CREATE_TRIES_MAX = 3
"""How often a job is created again because the conflicting one has just ended."""

_JOBS = models.JOBS
_ITEMS = models.JOB_ITEMS
_DOCUMENTS = models.DOCUMENTS
_DEFINITIONS = models.DEFINITIONS
_D = _DOCUMENTS.c


def create(tx: engine.Tx, id: str, request: JobRequest) -> tuple[Job, bool]:  # noqa: A002 (a job's id is its name)
    """Make a job, or join the active one if it is the same request (True); its items are written by `fill`.

    Raises:
        UnknownCollection: there is no active definition of that name.
        Conflict: another request is active for the collection and scope; the message names its job.
    """
    _known(tx, request.collection)
    insert = sqlite.insert(_JOBS) if tx.dialect == "sqlite" else postgresql.insert(_JOBS)
    row = {
        "id": id,
        "collection": request.collection,
        "scope": request.scope,
        "mode": request.mode,
        "filter": request.filter,
        "state": "queued",
        "cancel_requested": False,
        "filled_to": "",
        "total": 0,
        "created_ms": tx.now_ms,
    }
    for _ in range(CREATE_TRIES_MAX):
        tx.execute(insert.on_conflict_do_nothing(), row)
        same_place = sa.and_(_JOBS.c.collection == request.collection, _JOBS.c.scope == request.scope)
        in_place = sa.select(_JOBS).where(sa.or_(_JOBS.c.id == id, sa.and_(same_place, _JOBS.c.state.in_(ACTIVE))))
        found = [_job(each) for each in tx.execute(in_place)]
        for job in sorted(found, key=lambda each: each.id != id):
            _refuse_other(job, request)
            return job, job.id != id
    raise errors.Conflict(f"jobs for {_named(request)} keep starting and ending; try again")


def refuse_beside_another(tx: engine.Tx, request: JobRequest) -> None:
    """Find out whether `create` would refuse the request now, before anything is made ready for it.

    Raises:
        Conflict: another request is active for the collection and scope; the message names its job.
    """
    same_place = sa.and_(_JOBS.c.collection == request.collection, _JOBS.c.scope == request.scope)
    for row in tx.execute(sa.select(_JOBS).where(same_place, _JOBS.c.state.in_(ACTIVE))):
        _refuse_other(_job(row), request)


def _refuse_other(job: Job, request: JobRequest) -> None:
    if job.request != request:
        raise errors.Conflict(
            f"job {job.id} is reindexing {_named(job.request)}: wait for it, or: facetline jobs cancel {job.id}"
        )


def fill(tx: engine.Tx, job_id: str, limit: int, uris: Sequence[str] | None = None) -> Job:
    """Write the items among the next `limit` documents; call again until `filled_to` is None.

    With a filter the caller finds the documents: `uris` are the next ones above `filled_to` in ascending order, an
    empty sequence says that there are no more. Any process may go on where another stopped.

    Raises:
        NotFound: there is no such job.
    """
    job = _locked(tx, job_id)
    if job.state not in ACTIVE or job.filled_to is None:
        return job
    written, filled_to = job_items.write_next(tx, job, _known(tx, job.request.collection), limit, uris)
    filled = {"total": job.total + written, "filled_to": filled_to}
    tx.execute(sa.update(_JOBS).where(_JOBS.c.id == job_id).values(filled))
    return get(tx, job_id)


def plan(tx: engine.Tx, request: JobRequest, uris: Collection[str] | None = None) -> Plan:
    """Say what a job would ask for if it were made now; `uris` are what the filter found, None without a filter.

    Raises:
        UnknownCollection: there is no active definition of that name.
    """
    return Plan(*job_items.calls(tx, request, _known(tx, request.collection), uris))


def get(tx: engine.Tx, job_id: str) -> Job:
    """Return a job.

    Raises:
        NotFound: there is none of that id.
    """
    row = tx.execute(sa.select(_JOBS).where(_JOBS.c.id == job_id)).first()
    if row is None:
        raise errors.NotFound(f"there is no job '{job_id}'")
    return _job(row)


def list_jobs(tx: engine.Tx, limit: int = 100) -> list[Job]:
    """Return the newest jobs, newest first."""
    query = sa.select(_JOBS).order_by(_JOBS.c.created_ms.desc(), _JOBS.c.id).limit(limit)
    return [_job(row) for row in tx.execute(query)]


def remembered(tx: engine.Tx, job_id: str) -> int:
    """Count the documents whose answer for a job came from memory, as far as they still have it."""
    answered = sa.and_(_ITEMS.c.uri == _D.uri, _ITEMS.c.indexed_as == _D.indexed_as)
    found = sa.select(sa.func.count()).select_from(_ITEMS.join(_DOCUMENTS, answered))
    closed = (_ITEMS.c.job_id == job_id, _ITEMS.c.state == "reindexed", answer_cache.cached(tx.dialect))
    return int(tx.execute(found.where(*closed)).scalar_one())


def take(tx: engine.Tx, owner: str, lease_ms: int, collections: Collection[str]) -> Job | None:
    """Take the oldest job of some collections that no process works on, under a lease; None when there is none."""
    given = {"collections": sorted(collections), "now": tx.now_ms, "longest": tx.now_ms + lease_ms}
    job_id = tx.execute(_finding_free(tx.dialect), given).scalar_one_or_none()
    if job_id is None:
        return None
    taken = {"state": "running", "owner": owner, "lease_until_ms": tx.now_ms + lease_ms}
    tx.execute(sa.update(_JOBS).where(_JOBS.c.id == job_id).values(taken))
    return get(tx, job_id)


def renew(tx: engine.Tx, job_id: str, owner: str, lease_ms: int) -> bool:
    """Prolong the lease; False when the job has ended or is another's by now."""
    ours = (_JOBS.c.id == job_id, _JOBS.c.owner == owner, _JOBS.c.state == "running")
    renewed = sa.update(_JOBS).where(*ours).values(lease_until_ms=tx.now_ms + lease_ms).returning(_JOBS.c.id)
    return tx.execute(renewed).first() is not None


def give_up(tx: engine.Tx, job_id: str, owner: str) -> None:
    """End the lease now, so that another process goes on at once."""
    ours = (_JOBS.c.id == job_id, _JOBS.c.owner == owner, _JOBS.c.state == "running")
    tx.execute(sa.update(_JOBS).where(*ours).values(owner=None, lease_until_ms=None))


def cancel(tx: engine.Tx, job_id: str) -> Job:
    """End a job: no more turns; what was asked about ends as usual. A job that has ended stays as it is.

    Raises:
        NotFound: there is none of that id.
    """
    ended = {"state": "canceled", "cancel_requested": True, "finished_ms": tx.now_ms}
    tx.execute(sa.update(_JOBS).where(_JOBS.c.id == job_id, _JOBS.c.state.in_(ACTIVE)).values(ended))
    return get(tx, job_id)


def turn(tx: engine.Tx, job_id: str, owner: str, unanswered_max: int, limit: int) -> Turn:
    """Give turns to at most `limit` waiting items, so that at most `unanswered_max` are asked and unanswered.

    1. Lock the job: only its owner, under a running lease, gives turns. 2. Close items whose answers have come in
    another way. 3. Lock the next documents, decide, and clear them or take their coming answers over. 4. End the job
    when nothing waits or is unanswered.
    """
    job = _locked(tx, job_id)  # 1
    if job.state != "running" or job.owner != owner or (job.lease_until_ms or 0) <= tx.now_ms:
        return Turn(0, 0, 0, waiting=False, state=job.state, held=False)
    closed = job_items.close_ended(tx, job_id)  # 2
    room = unanswered_max - job_items.count(tx, job_id, "asked")
    decided = job_items.lock_next(tx, job, _known(tx, job.request.collection), room, limit)  # 3
    job_items.carry_out(tx, job, decided)
    waiting = job.filled_to is not None or job_items.any_waiting(tx, job_id)
    state: JobState = "running"
    if not waiting and not job_items.count(tx, job_id, "asked"):  # 4
        state = "failed" if _only_failed(tx, job_id) else "succeeded"
        ended = {"state": state, "finished_ms": tx.now_ms}
        tx.execute(sa.update(_JOBS).where(_JOBS.c.id == job_id).values(ended))
    cleared = sum(each.action == "clear" for each in decided)
    adopted = sum(each.action == "adopt" for each in decided)
    return Turn(cleared, adopted, closed + len(decided) - cleared - adopted, waiting, state)


def _only_failed(tx: engine.Tx, job_id: str) -> bool:
    """Say whether documents failed and none was answered; those that a later write took over are no answers."""
    return job_items.count(tx, job_id, "failed") > 0 and job_items.count(tx, job_id, "reindexed") == 0


def progress(tx: engine.Tx, job_id: str) -> dict[decisions.ItemState, int]:
    """Count a job's items by state."""
    job = get(tx, job_id)
    counted = sa.select(_ITEMS.c.state, sa.func.count().label("items")).where(_ITEMS.c.job_id == job_id)
    found: dict[decisions.ItemState, int] = {}
    for row in tx.execute(counted.group_by(_ITEMS.c.state)):
        found[_effective(row.state, job)] = row.items
    return found


def items(tx: engine.Tx, job_id: str, state: decisions.ItemState, after: str = "", limit: int = 1_000) -> list[Item]:
    """Return a job's items of one state in uri order, those above `after`."""
    job = get(tx, job_id)
    stored = "waiting" if state == "canceled" else state
    if _effective(stored, job) != state:
        return []
    query = (
        sa.select(_ITEMS.c.uri, _D.key, _D.scope, _D.reason)
        .join(_DOCUMENTS, _D.uri == _ITEMS.c.uri)
        .where(_ITEMS.c.job_id == job_id, _ITEMS.c.state == stored, _ITEMS.c.uri > after)
        .order_by(_ITEMS.c.uri)
        .limit(limit)
    )
    return [
        Item(row.uri, row.key, row.scope, state, row.reason if state == "failed" else None) for row in tx.execute(query)
    ]


def purge(tx: engine.Tx, older_than_days: int = 30, limit: int = 5_000) -> int:
    """Forget jobs that ended long ago, at most `limit` items in one transaction; return how many rows went."""
    before_ms = tx.now_ms - older_than_days * DAY_MS
    old = sa.select(_JOBS.c.id).where(_JOBS.c.finished_ms < before_ms).order_by(_JOBS.c.finished_ms, _JOBS.c.id)
    job_id = tx.execute(old.limit(1)).scalar_one_or_none()
    if job_id is None:
        return 0
    some = sa.select(_ITEMS.c.uri).where(_ITEMS.c.job_id == job_id).limit(limit)
    uris = tx.execute(some).scalars().all()
    tx.execute(sa.delete(_ITEMS).where(_ITEMS.c.job_id == job_id, _ITEMS.c.uri.in_(uris)))
    if len(uris) < limit:
        tx.execute(sa.delete(_JOBS).where(_JOBS.c.id == job_id))
    return len(uris) + (len(uris) < limit)


@functools.cache
def _finding_free(dialect: engine.Dialect) -> sa.Select[Any]:
    """The query that every process makes each second, built once."""
    collections: sa.BindParameter[Any] = sa.bindparam("collections", expanding=True)
    # A lease that ends later than ours would is of before the clock went back: all have one length.
    over = sa.or_(_JOBS.c.lease_until_ms <= sa.bindparam("now"), _JOBS.c.lease_until_ms > sa.bindparam("longest"))
    free = sa.or_(_JOBS.c.owner.is_(None), over)
    query = (
        sa.select(_JOBS.c.id)
        .where(_JOBS.c.state.in_(ACTIVE), _JOBS.c.collection.in_(collections), free)
        .order_by(_JOBS.c.created_ms, _JOBS.c.id)
        .limit(1)
    )
    return engine.lock_rows(dialect, query, skip_locked=True)


def _known(tx: engine.Tx, collection: str) -> str:
    """Return the collection's active fingerprint."""
    query = sa.select(_DEFINITIONS.c.fingerprint).where(_DEFINITIONS.c.name == collection)
    fingerprint = tx.execute(query).scalar_one_or_none()
    if fingerprint is None:
        raise errors.UnknownCollection(f"there is no active collection '{collection}'")
    return str(fingerprint)


def _locked(tx: engine.Tx, job_id: str) -> Job:
    row = tx.execute(tx.lock_rows(sa.select(_JOBS).where(_JOBS.c.id == job_id))).first()
    if row is None:
        raise errors.NotFound(f"there is no job '{job_id}'")
    return _job(row)


def _job(row: sa.Row[Any]) -> Job:
    return Job(
        id=row.id,
        request=JobRequest(row.collection, row.scope, row.mode, row.filter),
        state=row.state,
        filled_to=row.filled_to,
        total=row.total,
        owner=row.owner,
        lease_until_ms=row.lease_until_ms,
        created_ms=row.created_ms,
        finished_ms=row.finished_ms,
    )


def _effective(state: decisions.ItemState, job: Job) -> decisions.ItemState:
    return "canceled" if state == "waiting" and job.state == "canceled" else state


def _named(request: JobRequest) -> str:
    scope = f", scope '{request.scope}'" if request.scope else ""
    chosen = f", filter {request.filter!r}" if request.filter else ""
    return f"collection '{request.collection}'{scope} ({request.mode}{chosen})"
