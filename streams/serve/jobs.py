"""Reindex jobs of the node (`facets.backend.JobBackend`), for callers that see all scopes."""

from typing import get_args

from facetline.facets import errors
from facetline.facets.backend import Caller, ReindexRequest
from facetline.facets.job_replies import JobItemsPage, JobPlan, JobReply
from facetline.storage.jobs import jobs, model
from facetline.storage.jobs.decisions import ItemState
from facetline.streams.reindex import requests
from facetline.streams.serve.node_base import NodeBase

LISTED_MAX = 100
ITEMS_MAX = 1_000


class JobNode(NodeBase):
    """Starts, shows and cancels reindex jobs."""

    async def reindex(self, caller: Caller, request: ReindexRequest, *, key: str | None = None) -> JobReply:
        """Start or join a job and return it."""
        self._check_admin(caller, request.collection)
        job = await requests.start(self.pipeline, _job_request(request), credential=caller.name, key=key)
        if self.pipeline.work is not None:
            self.pipeline.work.wake_jobs()
        return await requests.result(self.pipeline, job.id)

    async def plan(self, caller: Caller, request: ReindexRequest) -> JobPlan:
        """Return the estimate of a dry run."""
        self._check_admin(caller, request.collection)
        found = await requests.plan(self.pipeline, _job_request(request))
        return {
            "dry_run": True,
            "documents": found.documents,
            "calls": found.calls,
            "tokens": found.tokens,
            "cost_usd": found.cost_usd,
        }

    async def jobs(self, caller: Caller) -> list[JobReply]:
        """Return the newest jobs, newest first."""
        self._check_admin(caller)
        found = await self.pipeline.store.read(jobs.list_jobs, LISTED_MAX)
        return [await requests.result(self.pipeline, job.id, names_max=requests.LISTED_AMONG_JOBS) for job in found]

    async def job(self, caller: Caller, job_id: str) -> JobReply:
        """Return one job."""
        self._check_admin(caller)
        return await requests.result(self.pipeline, job_id)

    async def job_items(
        self, caller: Caller, job_id: str, *, status: str, cursor: str | None, limit: int
    ) -> JobItemsPage:
        """Return a page of a job's documents with one status, in the order of their uris.

        Raises:
            NotFound: the job does not exist.
            InvalidQuery: the status is unknown, or the limit is out of range.
        """
        self._check_admin(caller)
        state = _item_state(status)
        if not 1 <= limit <= ITEMS_MAX:
            raise errors.InvalidQuery(f"limit is {limit}; it must be from 1 to {ITEMS_MAX}")
        found = await self.pipeline.store.read(jobs.items, job_id, state, cursor or "", limit + 1)
        shown = found[:limit]
        return {
            "items": [{"uri": each.uri, "status": each.state, "reason": each.reason} for each in shown],
            "next_cursor": shown[-1].uri if len(found) > limit else None,
        }

    async def cancel(self, caller: Caller, job_id: str) -> JobReply:
        """Cancel a job and return it."""
        self._check_admin(caller)
        await self.pipeline.store.write(jobs.cancel, job_id)
        return await requests.result(self.pipeline, job_id)


def _job_request(given: ReindexRequest) -> model.JobRequest:
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


def _item_state(status: str) -> ItemState:
    states: tuple[ItemState, ...] = get_args(ItemState)
    for state in states:
        if state == status:
            return state
    hint = errors.nearest(status[:80], states)
    raise errors.InvalidQuery(f"unknown status {status[:80]!r}{hint}; use one of {', '.join(states)}", allowed=states)
