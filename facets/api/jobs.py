"""The routes of reindex jobs."""

from urllib.parse import quote

from starlette.responses import Response

from facetline.facets.api import models, replies, reply_models, request_parsing
from facetline.facets.api.routing import Call, Declared
from facetline.facets.backend import ReindexRequest

PATH = "/v1/jobs"
SOON = {"Retry-After": "1"}


async def reindex(call: Call) -> Response:
    """Start a job or join the one that does the same; or say what it would take."""
    call.parameters(models.Nothing)
    key = request_parsing.idempotency_key(call.request)
    given = await call.body(models.Reindex, needed=False)
    request = ReindexRequest(
        call.path["collection"], force=given.force, outdated=given.outdated, filter=given.filter, scope=given.scope
    )
    if given.dry_run:
        return replies.json_reply(await call.node.plan(call.caller, request))
    job = await call.node.reindex(call.caller, request, key=key)
    return replies.json_reply(job, 202, {**SOON, "Location": f"{PATH}/{quote(str(job['id']), safe='')}"})


async def listed(call: Call) -> Response:
    """List the newest jobs."""
    call.parameters(models.Nothing)
    return replies.json_reply({"jobs": await call.node.jobs(call.caller)})


async def shown(call: Call) -> Response:
    """Show a job."""
    call.parameters(models.Nothing)
    return replies.json_reply(await call.node.job(call.caller, call.path["job_id"]))


async def items(call: Call) -> Response:
    """List a job's documents, page by page."""
    given = call.parameters(models.Items)
    found = await call.node.job_items(
        call.caller, call.path["job_id"], status=given.status, cursor=given.cursor, limit=given.limit
    )
    return replies.json_reply(found)


async def cancel(call: Call) -> Response:
    """Cancel a job; one that has ended stays as it is."""
    call.parameters(models.Nothing)
    return replies.json_reply(await call.node.cancel(call.caller, call.path["job_id"]))


_FOUND = ("job-not-found",)
ROUTES = (
    Declared(
        "POST",
        "/v1/collections/{collection}/reindex",
        "reindex",
        reindex,
        "admin",
        "Ask again, in a job",
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
    Declared(
        "GET",
        PATH,
        "list_jobs",
        listed,
        "admin",
        "List the newest jobs",
        {200: {replies.JSON: reply_models.Jobs}},
        parameters=models.Nothing,
    ),
    Declared(
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
    Declared(
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
    Declared(
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
