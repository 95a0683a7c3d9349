"""Pages of reindex jobs: estimate, start, progress and cancellation."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from facetline.facets import errors
from facetline.facets.backend import ReindexRequest
from facetline.facets.explorer.base import Site, Visitor
from facetline.facets.job_replies import JobPlan, JobReply

# Which documents to classify again, cheapest first.
MODES = {
    "missing": "Documents without answers (waiting or failed)",
    "outdated": "Those, and answers to older questions or from an older model",
    "force": "All documents, including answered ones",
}
JOBS_SHOWN = 5


class ReindexPages:
    """Handlers of jobs; all require the right `admin`."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._node = site.node

    async def dialog(self, request: Request, visitor: Visitor) -> Response:
        """Show an estimate of a job, and the last jobs."""
        _check(visitor)
        asked = _asked(request.path_params["collection"], request.query_params)
        problem = None
        plan: JobPlan | None = None
        try:
            plan = await self._node.plan(visitor.caller, asked)
        except errors.InvalidFilter as error:
            problem = error.message
        jobs = [each for each in await self._node.jobs(visitor.caller) if each["collection"] == asked.collection]
        return self._site.render(
            request,
            "reindex.html",
            visitor,
            collection=asked.collection,
            mode=_mode(asked),
            modes=MODES,
            filter=asked.filter or "",
            plan=plan,
            problem=problem,
            jobs=[_shown(job) for job in jobs[:JOBS_SHOWN]],
        )

    async def start(self, request: Request, visitor: Visitor) -> Response:
        """Start or join a job and show it."""
        _check(visitor)
        asked = _asked(request.path_params["collection"], await self._site.form(request))
        job = await self._node.reindex(visitor.caller, asked)
        return self._site.go(f"/-/job/{job['id']}")

    async def job(self, request: Request, visitor: Visitor) -> Response:
        """Show the progress of a job; the page polls while it runs."""
        _check(visitor)
        job = await self._node.job(visitor.caller, request.path_params["id"])
        return self._site.render(request, "job.html", visitor, collection=job["collection"], job=_shown(job))

    async def cancel(self, request: Request, visitor: Visitor) -> Response:
        """Cancel a job and show it."""
        _check(visitor)
        job = await self._node.cancel(visitor.caller, request.path_params["id"])
        return self._site.go(f"/-/job/{job['id']}")


def _check(visitor: Visitor) -> None:
    if not visitor.may_reindex:
        raise errors.Forbidden("jobs require a token with the right 'admin' and without a scope")


def _asked(collection: str, fields: Any) -> ReindexRequest:
    mode = fields.get("mode") or "missing"
    if mode not in MODES:
        raise errors.InvalidQuery(
            f"unknown mode {mode[:20]!r}{errors.nearest(mode[:20], MODES)}; use one of {', '.join(MODES)}"
        )
    text = (fields.get("filter") or "").strip() or None
    return ReindexRequest(collection, force=mode == "force", outdated=mode == "outdated", filter=text)


def _mode(asked: ReindexRequest) -> str:
    return "force" if asked.force else "outdated" if asked.outdated else "missing"


def _shown(job: JobReply) -> dict[str, Any]:
    progress = job["progress"]
    total, done = progress["total"], progress["done"]
    return {
        "id": job["id"],
        "state": job["state"],
        "active": job["state"] in {"queued", "running"},
        "mode": job["mode"],
        "filter": job["filter"] or "",
        "total": total,
        "done": done,
        "share": round(100 * done / total, 1) if total else 0 if job["state"] == "queued" else 100,
        "parts": [(name, number) for name, number in progress.items() if name not in {"total", "done"} and number],
        "failed": job["failed"][:20],
    }
