"""The routes of documents and of the events that wrote them."""

from typing import Any
from urllib.parse import quote, unquote_to_bytes

from starlette.responses import Response

from facetline.facets.api import models, replies, reply_models, request_parsing
from facetline.facets.api.problems import Problem
from facetline.facets.api.routing import Call, Declared
from facetline.facets.backend import Freshness

PREFIX = "/v1/documents/"
PATH = PREFIX + "{uri:path}"
SOON = {"Retry-After": "1"}
_WRITE_FIELDS = {"body": "invalid_body", "state": "invalid_state"}


def uri_of(call: Call) -> str:
    """Return the document's uri as it was sent, percent-decoded once; the server's own decoding would mend bad UTF-8.

    Raises:
        Problem: `write-refused` with `invalid_uri`: the address is not UTF-8.
    """
    sent: bytes = call.request.scope.get("raw_path") or quote(call.request.scope["path"]).encode()
    try:
        return unquote_to_bytes(sent.partition(PREFIX.encode())[2]).decode()
    except UnicodeDecodeError:
        raise Problem("write-refused", "the uri is not UTF-8, percent-encoded", reason="invalid_uri") from None


def freshness(given: models.Fresh) -> Freshness:
    """Return how new a reply must be."""
    return Freshness(tuple(given.at_least), given.wait_ms)


async def put(call: Call) -> Response:
    """Write a document."""
    waited = call.parameters(models.Waited)
    key = request_parsing.idempotency_key(call.request)
    given = _write_of(await request_parsing.json_object(call.request))
    reply = await call.node.write(
        call.caller,
        uri_of(call),
        body=given.body,
        state=given.state,
        event_id=key,
        wait=waited.wait,
        timeout_s=waited.timeout_s,
    )
    return _written(reply, waited)


async def delete(call: Call) -> Response:
    """Delete a document."""
    waited = call.parameters(models.Waited)
    key = request_parsing.idempotency_key(call.request)
    reply = await call.node.delete(
        call.caller, uri_of(call), event_id=key, wait=waited.wait, timeout_s=waited.timeout_s
    )
    return _written(reply, waited)


async def get(call: Call) -> Response:
    """Show a document."""
    fresh = freshness(call.parameters(models.Fresh))
    return replies.tagged(call.request, await call.node.get(call.caller, uri_of(call), fresh))


async def event(call: Call) -> Response:
    """Show what became of an event."""
    call.parameters(models.Nothing)
    return replies.json_reply(await call.node.event(call.caller, call.path["event_id"]))


def _write_of(values: dict[str, Any]) -> models.Write:
    """Return what to write; what is of a wrong type is refused for the reason that the pipeline would give."""
    try:
        return request_parsing.checked_body(models.Write, values)
    except Problem as problem:
        if problem.kind.name != "invalid-request":
            raise
        field = problem.detail.partition(":")[0]
        raise Problem("write-refused", problem.detail, reason=_WRITE_FIELDS.get(field, "invalid_body")) from None


def _written(reply: dict[str, Any], waited: models.Waited) -> Response:
    if "status" not in reply:  # acknowledged by the log, and not known to be applied
        return replies.json_reply(reply, 202, {**SOON, "Location": f"/v1/events/{quote(reply['event_id'], safe='')}"})
    if waited.wait == "answered" and reply["status"] == "pending":
        return replies.json_reply(reply, 202, SOON)
    return replies.json_reply(reply)


_REFUSALS = ("unknown-collection", "write-refused", "key-reused", "too-large", "write-in-doubt", "broker-unavailable")
ROUTES = (
    Declared(
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
    Declared(
        "GET",
        PATH,
        "get_document",
        get,
        "read",
        "Show a document whole",
        {200: {replies.JSON: reply_models.Document}, 304: {}},
        parameters=models.Fresh,
        missing="document-not-found",
        problems=("document-not-found", "unknown-collection", "write-refused", "cursor-mismatch", "not-caught-up"),
        request_headers=("If-None-Match",),
    ),
    Declared(
        "DELETE",
        PATH,
        "delete_document",
        delete,
        "write",
        "Delete a document; an absent one is deleted already",
        {200: {replies.JSON: reply_models.Written}, 202: {replies.JSON: reply_models.Accepted}},
        parameters=models.Waited,
        problems=_REFUSALS,
        request_headers=("Idempotency-Key",),
    ),
    Declared(
        "GET",
        "/v1/events/{event_id}",
        "get_event",
        event,
        "write",
        "Show what became of a write, to the credential that wrote it",
        {200: {replies.JSON: reply_models.Event}},
        parameters=models.Nothing,
        missing="event-not-found",
        problems=("event-not-found",),
    ),
)
