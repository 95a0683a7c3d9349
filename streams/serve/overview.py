"""Overview of a collection's pipeline: counts by status, failures, lag, evaluator state, and cost.

Counts come from the view, so they are cheap and limited to the caller's scope. Values over all scopes (lag, cost, an
evaluator's error message) are hidden from a caller with a scope.
"""

from typing import TYPE_CHECKING, Any, Literal

from facetline.facets.backend import Caller
from facetline.facets.definitions import Definition
from facetline.facets.documents import Status
from facetline.facets.view import overview
from facetline.storage import processes, store_stats, usage_ledger
from facetline.storage.db.engine import Tx
from facetline.storage.log import documents
from facetline.streams.monitor import answering
from facetline.streams.views.live_views import LiveViews

if TYPE_CHECKING:
    from facetline.streams.pipeline import Pipeline

EvaluatorState = Literal["ok", "paused", "stopped", "absent", "unknown"]
"""`absent`: documents wait and no worker is running; `unknown`: no worker is running, and no document waits."""
FAILURES_MAX = 1_000


async def counts(views: LiveViews, definition: Definition, scope: str | None) -> dict[str, Any]:
    """Return the documents by status, the failed ones by reason, and how many are outdated."""
    async with views.using(definition.name) as live:
        [rows] = await views.read(live.view.look, definition.name, lambda table: overview.statuses(table, scope))
    by_status = {status.value: 0 for status in Status if status is not Status.DELETED}
    failed: dict[str, int] = {}
    outdated = 0
    for status, reason, found, old in rows:
        if status in by_status:
            by_status[status] += found
        if status == Status.FAILED:
            failed[str(reason)] = found
        outdated += old if status == Status.INDEXED else 0
    return {"counts": by_status, "failed": dict(sorted(failed.items())), "outdated": outdated}


def shown(definition: Definition) -> dict[str, Any]:
    """Return a definition's part of the reply."""
    stored = definition.model_dump(mode="json")
    names = ("name", "pattern", "scoped", "llm_readable", "questions", "evaluator", "kind", "model", "fingerprint")
    return {**{name: stored[name] for name in names}, "state": stored["state_schema"]}


async def strip(pipeline: "Pipeline", views: LiveViews, definition: Definition, caller: Caller) -> dict[str, Any]:
    """Return the object of `StatusBackend.strip`."""
    found = await counts(views, definition, caller.scope)
    waiting_ms = await pipeline.store.read(_oldest, definition.name, caller.scope)
    everything = caller.scope is None
    stale = views.problem is not None
    pending = found["counts"][Status.PENDING]
    return {
        **found,
        "lag": {
            "events": (views.behind(definition.name) or 0) if everything else 0,
            "seconds": round(views.age_s() or 0.0, 3) if stale else 0.0,
        },
        "oldest_pending_s": None if waiting_ms is None else round(waiting_ms / 1000, 1),
        "evaluator": await _evaluator(pipeline, definition, pending, details=everything),
        "spend": await _spend(pipeline, definition) if everything else dict.fromkeys(_SPENT),
    }


async def failures(
    pipeline: "Pipeline", views: LiveViews, definition: Definition, caller: Caller, limit: int
) -> list[dict[str, Any]]:
    """Return the object of `StatusBackend.failures`."""
    async with views.using(definition.name) as live:
        [rows] = await views.read(
            live.view.look,
            definition.name,
            lambda table: overview.failed(table, caller.scope, min(limit, FAILURES_MAX)),
        )
    messages = await pipeline.store.read(documents.failures, [uri for uri, _ in rows])
    return [{"uri": uri, **messages[uri]} for uri, _ in rows if uri in messages]


_SPENT = ("calls", "tokens", "usd", "usd_max")


async def _evaluator(pipeline: "Pipeline", definition: Definition, pending: int, *, details: bool) -> dict[str, Any]:
    known = {"name": definition.evaluator, "kind": definition.kind, "model": definition.model}
    workers = pipeline.settings.runtime == "kafka"
    if workers and not await pipeline.store.read(processes.living):
        state: EvaluatorState = "absent" if pending else "unknown"
        return {**known, "state": state, "message": answering.START if pending and details else None}
    reason = await pipeline.unavailability(definition.name)
    if reason is None:
        return {**known, "state": "ok", "message": None}
    message = reason.says(None, workers=workers) if details else "unavailable; documents wait"
    return {**known, "state": "stopped" if reason.is_permanent else "paused", "message": message}


async def _spend(pipeline: "Pipeline", definition: Definition) -> dict[str, Any]:
    today = await pipeline.store.read(usage_ledger.today, definition.evaluator)
    limits = pipeline.project.limits if pipeline.project is not None else {}
    most = limits[definition.evaluator].max_usd_per_day if definition.evaluator in limits else None
    tokens = today.input_tokens + today.output_tokens
    return {"calls": today.calls, "tokens": tokens, "usd": today.known_usd, "usd_max": most}


def _oldest(tx: Tx, collection: str, scope: str | None) -> int | None:
    """Return the age of the oldest pending document in milliseconds."""
    at_ms = store_stats.oldest_of(tx, collection, scope)
    return None if at_ms is None else store_stats.age_ms(tx.now_ms, at_ms)
