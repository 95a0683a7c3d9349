"""Requests for jobs that may come twice: a key of its sender makes one job, however often the request is sent.

A key is kept for a day at least, and as long as its job. Locks: the job's (`storage.jobs.jobs`), then the key's row.
"""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from facetline.facets import errors
from facetline.storage.db import engine, models
from facetline.storage.jobs import jobs, model
from facetline.storage.jobs.model import Job, JobRequest

KEPT_MS = model.DAY_MS
PURGED_MAX = 5_000

_KEYS = models.JOB_KEYS
_JOBS = models.JOBS
_K = _KEYS.c


def create(tx: engine.Tx, id: str, request: JobRequest, credential: str, key: str) -> tuple[Job, bool]:  # noqa: A002 (a job's id is its name)
    """Make or join a job as `jobs.create` does; the same request under the same key again gets the job that it got.

    Raises:
        KeyReused: the key came with another request.
        UnknownCollection, Conflict: as `jobs.create`.
    """
    known = _found(tx, credential, key)
    if known is None:
        job, joined = jobs.create(tx, id, request)
        insert = sqlite.insert(_KEYS) if tx.dialect == "sqlite" else postgresql.insert(_KEYS)
        row = {
            "credential": credential,
            "key": key,
            "job_id": job.id,
            "collection": request.collection,
            "scope": request.scope,
            "mode": request.mode,
            "filter": request.filter,
            "at_ms": tx.now_ms,
        }
        tx.execute(insert.on_conflict_do_nothing(), row)
        known = _found(tx, credential, key)  # another process may have been first, with another request
        if known is None or known[1] == request:
            return job, joined
    job_id, earlier = known
    if earlier != request:
        raise errors.KeyReused(
            f"Idempotency-Key {key[:80]!r} was sent with another request, which made job {job_id}; use a new key"
        )
    return jobs.get(tx, job_id), True


def _found(tx: engine.Tx, credential: str, key: str) -> tuple[str, JobRequest] | None:
    row = tx.execute(sa.select(_KEYS).where(_K.credential == credential, _K.key == key)).first()
    return None if row is None else (row.job_id, JobRequest(row.collection, row.scope, row.mode, row.filter))


def purge(tx: engine.Tx, limit: int = PURGED_MAX) -> int:
    """Forget at most `limit` keys that are a day old and whose job is gone or over; return how many."""
    active = sa.select(_JOBS.c.id).where(_JOBS.c.id == _K.job_id, _JOBS.c.state.in_(model.ACTIVE)).exists()
    old = sa.select(_K.credential, _K.key).where(_K.at_ms < tx.now_ms - KEPT_MS, ~active).limit(limit)
    gone = sa.delete(_KEYS).where(sa.tuple_(_K.credential, _K.key).in_(old))
    return tx.execute(gone).rowcount
