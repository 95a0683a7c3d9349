"""Reindex jobs of the node, for callers that see all scopes."""

from typing import TYPE_CHECKING, Any, get_args

from facetline.facets import errors
from facetline.facets.backend import Caller, ReindexRequest
from facetline.storage.jobs import jobs, model
from facetline.storage.jobs.decisions import ItemState
from facetline.streams.reindex import requests

if TYPE_CHECKING:
    from facetline.streams.pipeline import Pipeline

LISTED_MAX = 100
ITEMS_MAX = 1_000


def request_of(given: ReindexRequest) -> model.JobRequest:
    """Return the request in the store's form.

    Raises:
        InvalidQuery: it contradicts itself.
    """
    if given.force and given.outdated:
        raise errors.InvalidQuery("force includes outdated documents; set only one of both")
    if given.scope == "":
        raise errors.InvalidQuery("scope is empty; name one or omit it")
    mode = "force" if given.force else "outdated" if given.outdated else "missing"
    return model.JobRequest(given.collection, given.scope or "", mode, given.filter)  # type: ignore[arg-type]


async def start(pipeline: "Pipeline", caller: Caller, given: ReindexRequest, key: str | None) -> dict[str, Any]:
    """Start or join a job and return it."""
    job = await requests.start(pipeline, request_of(given), credential=caller.name, key=key)
    if pipeline.work is not None:
        pipeline.work.wake_jobs()
    return await requests.result(pipeline, job.id)


async def plan(pipeline: "Pipeline", given: ReindexRequest) -> dict[str, Any]:
    """Return the estimate of a dry run."""
    found = await requests.plan(pipeline, request_of(given))
    numbers = {"documents": found.documents, "calls": found.calls, "tokens": found.tokens, "cost_usd": found.cost_usd}
    return {"dry_run": True, **numbers}


async def listed(pipeline: "Pipeline") -> list[dict[str, Any]]:
    """Return the newest jobs, newest first."""
    found = await pipeline.store.read(jobs.list_jobs, LISTED_MAX)
    return [await requests.result(pipeline, job.id, names_max=requests.LISTED_AMONG_JOBS) for job in found]


async def items(pipeline: "Pipeline", job_id: str, *, status: str, cursor: str | None, limit: int) -> dict[str, Any]:
    """Return a page of a job's documents of one state, in the order of their uris.

    Raises:
        NotFound: the job does not exist.
        InvalidQuery: the status is unknown, or the limit is out of range.
    """
    states: tuple[ItemState, ...] = get_args(ItemState)
    state = next((each for each in states if each == status), None)
    if state is None:
        hint = errors.nearest(status[:80], states)
        raise errors.InvalidQuery(
            f"unknown status {status[:80]!r}{hint}; use one of {', '.join(states)}", allowed=states
        )
    if not 1 <= limit <= ITEMS_MAX:
        raise errors.InvalidQuery(f"limit is {limit}; it must be from 1 to {ITEMS_MAX}")
    found = await pipeline.store.read(jobs.items, job_id, state, cursor or "", limit + 1)
    shown = found[:limit]
    return {
        "items": [{"uri": each.uri, "status": each.state, "reason": each.reason} for each in shown],
        "next_cursor": shown[-1].uri if len(found) > limit else None,
    }
