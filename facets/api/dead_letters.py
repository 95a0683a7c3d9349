"""The routes of dead letters: events that could not be applied."""

from starlette.responses import Response

from facetline.facets.api import models, replies, reply_models
from facetline.facets.api.routing import Call, Declared

PATH = "/v1/dead-letters"
_ONE = PATH + "/{id}"


async def listed(call: Call) -> Response:
    """List the letters that wait, page by page."""
    given = call.parameters(models.DeadLetters)
    found = await call.node.dead_letters(call.caller, reason=given.reason, cursor=given.cursor, limit=given.limit)
    return replies.json_reply(found)


async def shown(call: Call) -> Response:
    """Show a letter with its record."""
    call.parameters(models.Nothing)
    return replies.json_reply(await call.node.dead_letter(call.caller, call.path["id"]))


async def redrive(call: Call) -> Response:
    """Send a letter again."""
    call.parameters(models.Nothing)
    return replies.json_reply(await call.node.redrive(call.caller, call.path["id"]))


async def discard(call: Call) -> Response:
    """Close a letter for good without sending it."""
    call.parameters(models.Nothing)
    return replies.json_reply(await call.node.discard(call.caller, call.path["id"]))


_MISSING = "dead-letter-not-found"
ROUTES = (
    Declared(
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
    Declared(
        "GET",
        _ONE,
        "get_dead_letter",
        shown,
        "admin",
        "Show a dead letter",
        {200: {replies.JSON: reply_models.DeadLetterWhole}},
        parameters=models.Nothing,
        everywhere=True,
        missing=_MISSING,
        problems=(_MISSING,),
    ),
    Declared(
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
    Declared(
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
