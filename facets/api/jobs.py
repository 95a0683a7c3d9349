"""Routes of reindex jobs."""

from urllib.parse import quote

from starlette.responses import Response

from facetline.facets.api import models, replies, reply_models, request_parsing
from facetline.facets.api.routing import RequestContext, RouteSpec
from facetline.facets.backend import ReindexRequest

PATH = "/v1/jobs"
SOON = {"Retry-After": "1"}


async def reindex(context: RequestContext) -> Response:
    """Start a job, or join a running one with the same request; or estimate it (dry run)."""
    context.parameters(models.Nothing)
    key = request_parsing.idempotency_key(context.request)
    given = await context.body(models.Reindex, needed=False)
    request = ReindexRequest(
        context.path["collection"], force=given.force, outdated=given.outdated, filter=given.filter, scope=given.scope
    )
    if given.dry_run:
        return replies.json_reply(await context.node.plan(context.caller, request))
    job = await context.node.reindex(context.caller, request, key=key)
    return replies.json_reply(job, 202, {**SOON, "Location": f"{PATH}/{quote(str(job['id']), safe='')}"})


async def listed(context: RequestContext) -> Response:
    """List the newest jobs."""
    context.parameters(models.Nothing)
    return replies.json_reply({"jobs": await context.node.jobs(context.caller)})


async def shown(context: RequestContext) -> Response:
    """Show a job."""
    context.parameters(models.Nothing)
    return replies.json_reply(await context.node.job(context.caller, context.path["job_id"]))


async def items(context: RequestContext) -> Response:
    """List a job's documents, page by page."""
    given = context.parameters(models.Items)
    found = await context.node.job_items(
        context.caller, context.path["job_id"], status=given.status, cursor=given.cursor, limit=given.limit
    )
    return replies.json_reply(found)


async def cancel(context: RequestContext) -> Response:
    """Cancel a job; one that has ended is returned unchanged."""
    context.parameters(models.Nothing)
    return replies.json_reply(await context.node.cancel(context.caller, context.path["job_id"]))


_FOUND = ("job-not-found",)
ROUTES = (
    RouteSpec(
        "POST",
        "/v1/collections/{collection}/reindex",
        "reindex",
        reindex,
        "admin",
        "Start a reindex job",
        {202: {replies.JSON: reply_models.Job}, 200: {replies.JSON: reply_models.Plan}},
        parameters=models.Nothing,
        body=models.Reindex,
        body_needed=False,
        problems=(
            *("invalid-json", "invalid-request", "unsupported-media-type", "unknown-collection"),
            *("invalid-query", "filter-syntax", "unknown-value", "conflict", "key-reused"),
        ),
        request_headers=("Idempotency-Key",),
    ),
    RouteSpec(
        "GET",
        PATH,
        "list_jobs",
        listed,
        "admin",
        "List the newest jobs",
        {200: {replies.JSON: reply_models.Jobs}},
        parameters=models.Nothing,
    ),
    RouteSpec(
        "GET",
        PATH + "/{job_id}",
        "get_job",
        shown,
        "admin",
        "Show a job",
        {200: {replies.JSON: reply_models.Job}},
        parameters=models.Nothing,
        missing="job-not-found",
        problems=_FOUND,
    ),
    RouteSpec(
        "GET",
        PATH + "/{job_id}/items",
        "list_job_items",
        items,
        "admin",
        "List a job's documents by their state",
        {200: {replies.JSON: reply_models.ItemsReply}},
        parameters=models.Items,
        missing="job-not-found",
        problems=(*_FOUND, "invalid-query", "cursor-mismatch"),
    ),
    RouteSpec(
        "POST",
        PATH + "/{job_id}/cancel",
        "cancel_job",
        cancel,
        "admin",
        "Cancel a job",
        {200: {replies.JSON: reply_models.Job}},
        parameters=models.Nothing,
        missing="job-not-found",
        problems=_FOUND,
    ),
)
