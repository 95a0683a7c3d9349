"""Routes of documents and of the events that wrote them."""

from typing import Any
from urllib.parse import quote, unquote_to_bytes

from starlette.responses import Response

from facetline.facets.api import models, replies, reply_models, request_parsing
from facetline.facets.api.problems import Problem
from facetline.facets.api.routing import RequestContext, RouteSpec
from facetline.facets.backend import Freshness

PREFIX = "/v1/documents/"
PATH = PREFIX + "{uri:path}"
SOON = {"Retry-After": "1"}
_WRITE_FIELDS = {"body": "invalid_body", "state": "invalid_state"}


def uri_of(context: RequestContext) -> str:
    """Return the document's uri as it was sent, percent-decoded once; the server's decoding would replace bad UTF-8.

    Raises:
        Problem: `write-refused` with `invalid_uri`: the path is not UTF-8.
    """
    sent: bytes = context.request.scope.get("raw_path") or quote(context.request.scope["path"]).encode()
    try:
        return unquote_to_bytes(sent.partition(PREFIX.encode())[2]).decode()
    except UnicodeDecodeError:
        raise Problem("write-refused", "the uri is not UTF-8, percent-encoded", reason="invalid_uri") from None


def freshness(given: models.Fresh) -> Freshness:
    """Return the freshness that the parameters require."""
    return Freshness(tuple(given.at_least), given.wait_ms)


async def put(context: RequestContext) -> Response:
    """Write a document."""
    waited = context.parameters(models.Waited)
    key = request_parsing.idempotency_key(context.request)
    given = _write_of(await request_parsing.json_object(context.request))
    reply = await context.node.write(
        context.caller,
        uri_of(context),
        body=given.body,
        state=given.state,
        event_id=key,
        wait=waited.wait,
        timeout_s=waited.timeout_s,
    )
    return _written(reply, waited)


async def delete(context: RequestContext) -> Response:
    """Delete a document."""
    waited = context.parameters(models.Waited)
    key = request_parsing.idempotency_key(context.request)
    reply = await context.node.delete(
        context.caller, uri_of(context), event_id=key, wait=waited.wait, timeout_s=waited.timeout_s
    )
    return _written(reply, waited)


async def get(context: RequestContext) -> Response:
    """Show a document."""
    fresh = freshness(context.parameters(models.Fresh))
    return replies.tagged(context.request, await context.node.get(context.caller, uri_of(context), fresh))


async def event(context: RequestContext) -> Response:
    """Show the outcome of an event."""
    context.parameters(models.Nothing)
    return replies.json_reply(await context.node.event(context.caller, context.path["event_id"]))


def _write_of(values: dict[str, Any]) -> models.Write:
    """Return the write of a JSON body; a value of the wrong type gets the same reason as in the pipeline."""
    try:
        return request_parsing.checked_body(models.Write, values)
    except Problem as problem:
        if problem.kind.name != "invalid-request":
            raise
        field = problem.detail.partition(":")[0]
        raise Problem("write-refused", problem.detail, reason=_WRITE_FIELDS.get(field, "invalid_body")) from None


def _written(reply: dict[str, Any], waited: models.Waited) -> Response:
    if "status" not in reply:  # acknowledged by the log, not known to be applied yet
        return replies.json_reply(reply, 202, {**SOON, "Location": f"/v1/events/{quote(reply['event_id'], safe='')}"})
    if waited.wait == "answered" and reply["status"] == "pending":
        return replies.json_reply(reply, 202, SOON)
    return replies.json_reply(reply)


_REFUSALS = ("unknown-collection", "write-refused", "key-reused", "too-large", "write-in-doubt", "broker-unavailable")
ROUTES = (
    RouteSpec(
        "PUT",
        PATH,
        "put_document",
        put,
        "write",
        "Write a document, which clears its facets",
        {200: {replies.JSON: reply_models.Written}, 202: {replies.JSON: reply_models.Accepted}},
        parameters=models.Waited,
        body=models.Write,
        problems=("invalid-json", "invalid-request", "unsupported-media-type", *_REFUSALS),
        request_headers=("Idempotency-Key",),
    ),
    RouteSpec(
        "GET",
        PATH,
        "get_document",
        get,
        "read",
        "Show a document with its text, state and answers",
        {200: {replies.JSON: reply_models.Document}, 304: {}},
        parameters=models.Fresh,
        missing="document-not-found",
        problems=("document-not-found", "unknown-collection", "write-refused", "cursor-mismatch", "not-caught-up"),
        request_headers=("If-None-Match",),
    ),
    RouteSpec(
        "DELETE",
        PATH,
        "delete_document",
        delete,
        "write",
        "Delete a document; succeeds if it does not exist",
        {200: {replies.JSON: reply_models.Written}, 202: {replies.JSON: reply_models.Accepted}},
        parameters=models.Waited,
        problems=_REFUSALS,
        request_headers=("Idempotency-Key",),
    ),
    RouteSpec(
        "GET",
        "/v1/events/{event_id}",
        "get_event",
        event,
        "write",
        "Show the outcome of a write, to the token that wrote it",
        {200: {replies.JSON: reply_models.Event}},
        parameters=models.Nothing,
        missing="event-not-found",
        problems=("event-not-found",),
    ),
)
