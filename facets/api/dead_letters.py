"""Routes of dead letters: events that could not be applied."""

from starlette.responses import Response

from facetline.facets.api import models, replies, reply_models
from facetline.facets.api.routing import RequestContext, RouteSpec

PATH = "/v1/dead-letters"
_ONE = PATH + "/{id}"


async def listed(context: RequestContext) -> Response:
    """List open dead letters, page by page."""
    given = context.parameters(models.DeadLetters)
    found = await context.node.dead_letters(context.caller, reason=given.reason, cursor=given.cursor, limit=given.limit)
    return replies.json_reply(found)


async def shown(context: RequestContext) -> Response:
    """Show a dead letter with its record."""
    context.parameters(models.Nothing)
    return replies.json_reply(await context.node.dead_letter(context.caller, context.path["id"]))


async def redrive(context: RequestContext) -> Response:
    """Send a dead letter again."""
    context.parameters(models.Nothing)
    return replies.json_reply(await context.node.redrive(context.caller, context.path["id"]))


async def discard(context: RequestContext) -> Response:
    """Close a dead letter permanently without sending it."""
    context.parameters(models.Nothing)
    return replies.json_reply(await context.node.discard(context.caller, context.path["id"]))


_MISSING = "dead-letter-not-found"
ROUTES = (
    RouteSpec(
        "GET",
        PATH,
        "list_dead_letters",
        listed,
        "admin",
        "List dead letters, newest first",
        {200: {replies.JSON: reply_models.DeadLetters}},
        parameters=models.DeadLetters,
        everywhere=True,
        problems=("invalid-query", "cursor-mismatch"),
    ),
    RouteSpec(
        "GET",
        _ONE,
        "get_dead_letter",
        shown,
        "admin",
        "Show a dead letter",
        {200: {replies.JSON: reply_models.DeadLetterRecord}},
        parameters=models.Nothing,
        everywhere=True,
        missing=_MISSING,
        problems=(_MISSING,),
    ),
    RouteSpec(
        "POST",
        _ONE + "/redrive",
        "redrive_dead_letter",
        redrive,
        "admin",
        "Send a dead letter again",
        {200: {replies.JSON: reply_models.Redriven}},
        parameters=models.Nothing,
        everywhere=True,
        missing=_MISSING,
        problems=(_MISSING, "conflict", "write-in-doubt", "broker-unavailable"),
    ),
    RouteSpec(
        "POST",
        _ONE + "/discard",
        "discard_dead_letter",
        discard,
        "admin",
        "Discard a dead letter",
        {200: {replies.JSON: reply_models.DeadLetter}},
        parameters=models.Nothing,
        everywhere=True,
        missing=_MISSING,
        problems=(_MISSING, "conflict"),
    ),
)
