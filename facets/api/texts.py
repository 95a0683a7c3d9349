"""Routes over texts: lines with a pattern (grep), and uris that fit a glob."""

from typing import Any

from starlette.responses import Response

from facetline.facets.api import models, replies, reply_models
from facetline.facets.api.documents import freshness
from facetline.facets.api.routing import RequestContext, RouteSpec
from facetline.facets.search.selection import Selection, selection_of

PATH = "/v1/collections/{collection}"


async def grep(context: RequestContext) -> Response:
    """Return lines with a pattern."""
    given = context.parameters(models.GrepParameters)
    selection = _selection(context, given, grep=given.pattern)
    async with context.service.searches.one(context.caller.name):
        found = await context.node.grep(
            context.caller, selection, freshness(given), limit=given.limit, context=given.context
        )
    return replies.json_reply(found)


async def glob(context: RequestContext) -> Response:
    """Return uris that fit a pattern."""
    given = context.parameters(models.GlobParameters)
    selection = _selection(context, given, glob=given.pattern)
    async with context.service.searches.one(context.caller.name):
        uris = await context.node.uris(context.caller, selection, freshness(given), limit=given.limit + 1)
    return replies.json_reply({"uris": uris[: given.limit], "truncated": len(uris) > given.limit})


_APART = set(models.Fresh.model_fields) | {"f", "pattern", "limit", "context"}


def _selection(context: RequestContext, given: models.GrepParameters | models.GlobParameters, **own: Any) -> Selection:
    fields = given.model_dump(exclude=_APART, exclude_unset=True)
    return selection_of({**fields, **own, "facets": given.f, "collection": context.path["collection"]})


_PROBLEMS = (
    *("unknown-collection", "invalid-query", "unknown-facet", "unknown-value", "filter-syntax", "search-timeout"),
    "not-caught-up",
)
ROUTES = (
    RouteSpec(
        "GET",
        PATH + "/grep",
        "grep",
        grep,
        "read",
        "Find lines that match a pattern",
        {200: {replies.JSON: reply_models.LinesReply}},
        parameters=models.GrepParameters,
        problems=_PROBLEMS,
    ),
    RouteSpec(
        "GET",
        PATH + "/glob",
        "glob",
        glob,
        "read",
        "List uris that match a pattern",
        {200: {replies.JSON: reply_models.UrisReply}},
        parameters=models.GlobParameters,
        problems=_PROBLEMS,
    ),
)
