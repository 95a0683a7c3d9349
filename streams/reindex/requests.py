"""Requests for reindex jobs, and their results. `streams.reindex.runner` does the work, in every process that runs the
side chain.
"""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass

from facetline.facets import errors
from facetline.facets.job_replies import JobReply
from facetline.storage import usage_ledger
from facetline.storage.jobs import jobs, model, request_keys
from facetline.streams.classify.token_bucket import TOKENS_PER_BYTE
from facetline.streams.pipeline import Pipeline
from facetline.streams.reindex.matching import matching

LISTED_MAX = 1_000
LISTED_AMONG_JOBS = 5
"""Names of one job in a list of jobs, which may be a hundred."""
"""Names in a result's lists; the rest is read by pages."""
PAGE = 5_000


async def start(
    pipeline: Pipeline, request: model.JobRequest, *, credential: str = "", key: str | None = None
) -> model.Job:
    """Create the job, or join the running one that was asked for in the same way.

    With a `key` the same request of that `credential` again returns the same job, also when it is over.

    Raises:
        UnknownCollection, InvalidFilter: the request is wrong.
        Conflict: another reindex of the same documents is running.
        KeyReused: the key came with another request before.
    """
    await _check(pipeline, request)
    if request.filter is not None:
        await matching(pipeline.follower(request.collection), request, "", 1)  # refuse a wrong filter before all else
    job_id = uuid.uuid4().hex[:12]
    if key is None:
        job, _joined = await pipeline.store.write(jobs.create, job_id, request)
    else:
        job, _joined = await pipeline.store.write(request_keys.create, job_id, request, credential, key)
    return job


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a job would ask for now; tokens and cost are estimates. `cost_usd` None: there is nothing to go by.

    `measured`: tokens are worked out from what earlier calls of the collection took, not from the bodies' sizes.
    """

    documents: int
    calls: int
    tokens: int
    cost_usd: float | None
    measured: bool


async def plan(pipeline: Pipeline, request: model.JobRequest) -> Estimate:
    """Say how many documents a job would have, how many calls it would make and what they would take.

    Nothing is changed. Tokens and cost are the mean of the collection's calls of the last `spend.MEAN_DAYS`.
    """
    await _check(pipeline, request)
    if request.filter is None:
        parts = [await pipeline.store.read(jobs.plan, request)]
    else:
        parts = [await pipeline.store.read(jobs.plan, request, uris) async for uris in _pages(pipeline, request)]
    calls = sum(part.calls for part in parts)
    body_bytes = sum(part.body_bytes for part in parts)
    documents = sum(part.documents for part in parts)
    return await estimate(pipeline, request.collection, documents=documents, calls=calls, body_bytes=body_bytes)


async def estimate(pipeline: Pipeline, collection: str, *, documents: int, calls: int, body_bytes: int) -> Estimate:
    """Return what calls about bodies of so many bytes would take, by the collection's calls of the last days."""
    evaluator = (await pipeline.definition(collection)).evaluator
    recent = await pipeline.store.read(usage_ledger.recent, evaluator, collection)
    tokens = body_bytes * TOKENS_PER_BYTE if recent.mean_tokens is None else calls * recent.mean_tokens
    cost_usd = 0.0 if calls == 0 else None if recent.mean_usd is None else calls * recent.mean_usd
    return Estimate(documents, calls, round(tokens), cost_usd, measured=recent.mean_tokens is not None)


async def _check(pipeline: Pipeline, request: model.JobRequest) -> None:
    definition = await pipeline.definition(request.collection)
    if request.scope and not definition.scoped:
        raise errors.InvalidQuery(f"collection '{request.collection}' has no scopes; leave --scope out")


async def _pages(pipeline: Pipeline, request: model.JobRequest) -> AsyncIterator[list[str]]:
    after = ""
    while uris := await matching(pipeline.follower(request.collection), request, after, PAGE):
        yield uris
        after = uris[-1]


async def result(pipeline: Pipeline, job_id: str, *, names_max: int = LISTED_MAX) -> JobReply:
    """Return a job as docs/api.md shows it: state, progress, and the first names of those asked again and failed.

    Names are keys, in a scoped collection uris, of each kind at most `names_max`.

    Raises:
        NotFound: there is no such job.
    """
    job = await pipeline.store.read(jobs.get, job_id)
    counts = await pipeline.store.read(jobs.progress, job_id)
    names: dict[str, list[str]] = {}
    for state in ("reindexed", "failed"):
        items = await pipeline.store.read(jobs.items, job_id, state, limit=names_max)
        names[state] = [item.uri if item.scope else item.key for item in items]
    open_ = counts.get("waiting", 0) + counts.get("asked", 0)
    return {
        "id": job.id,
        "collection": job.request.collection,
        "scope": job.request.scope or None,
        "mode": job.request.mode,
        "filter": job.request.filter,
        "state": job.state,
        "progress": {"total": job.total, "done": job.total - open_, **{str(state): n for state, n in counts.items()}},
        "reindexed": names["reindexed"],
        "failed": names["failed"],
    }


async def remembered(pipeline: Pipeline, job_id: str) -> int:
    """Count the documents of a job that were answered from memory, at no call; cost: the job's documents."""
    return await pipeline.store.read(jobs.remembered, job_id)
