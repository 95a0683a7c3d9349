"""Routes of collections: list, show and search."""

from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from facetline.facets.api import models, replies, reply_models, row_streams
from facetline.facets.api.documents import freshness
from facetline.facets.api.problems import Problem
from facetline.facets.api.routing import RequestContext, RouteSpec
from facetline.facets.search.selection import Selection, selection_of

PATH = "/v1/collections"
_OF_ONE_PAGE = frozenset({"cursor", "limit", "stream"})
SUFFIXES = {"csv": row_streams.CSV, "ndjson": row_streams.NDJSON}


async def listed(context: RequestContext) -> Response:
    """List the collections."""
    context.parameters(models.Nothing)
    return replies.json_reply({"collections": await context.node.collections(context.caller)})


async def shown(context: RequestContext) -> Response:
    """Show one collection."""
    context.parameters(models.Nothing)
    return replies.json_reply(await context.node.collection(context.caller, context.path["collection"]))


async def search_by_address(context: RequestContext) -> Response:
    """Search by a URL that can be bookmarked, in the media type that the client prefers."""
    media = _wanted(context.request.headers.get("accept", ""))
    given = context.parameters(models.SearchParameters)
    if media != replies.JSON:
        return await _rows(context, given, media)
    if given.stream:
        raise Problem("invalid-parameter", "stream=on is for CSV and NDJSON: search.csv, search.ndjson, or by Accept")
    selection = _selection(context, given)
    reply = await _found(context, selection, given)
    reply["links"] = {
        "self": _address(context.request),
        "csv": _address(context.request, suffix=".csv", drop=_OF_ONE_PAGE),
        "sql": await _sql_of(context, selection),
    }
    cursor = reply["next_cursor"]
    reply["next_url"] = None if cursor is None else _address(context.request, drop=frozenset({"cursor"}), cursor=cursor)
    found = replies.tagged(context.request, reply)
    if reply["next_url"] is not None:
        replies.add_link(found.headers, reply["next_url"], "next")
    replies.add_link(found.headers, reply["links"]["csv"], "alternate")
    return found


async def search_by_body(context: RequestContext) -> Response:
    """Search by a JSON body, for what does not fit into a URL."""
    context.parameters(models.Nothing)
    given = await context.body(models.Search)
    selection = _selection(context, given)
    reply = await _found(context, selection, given)
    as_parameters = _as_parameters(selection, given)
    address = f"{PATH}/{quote(selection.collection)}/search"
    page = urlencode(as_parameters)
    every = urlencode([pair for pair in as_parameters if pair[0] not in _OF_ONE_PAGE])
    cursor = reply["next_cursor"]
    without = [pair for pair in as_parameters if pair[0] != "cursor"]
    reply["next_url"] = None if cursor is None else f"{address}?{urlencode([*without, ('cursor', cursor)])}"
    reply["links"] = {
        "self": f"{address}?{page}" if page else address,
        "csv": f"{address}.csv?{every}" if every else f"{address}.csv",
        "sql": await _sql_of(context, selection),
    }
    return replies.json_reply(reply)


async def _sql_of(context: RequestContext, selection: Selection) -> str | None:
    """Return the same total as SQL; None for a search by text, since no table of SQL has scores or texts."""
    return None if selection.by_text else await context.node.sql_of(context.caller, selection)


async def search_rows(context: RequestContext) -> Response:
    """Return all hits of a search as CSV or NDJSON."""
    media = SUFFIXES[context.request.url.path.rpartition(".")[2]]
    return await _rows(context, context.parameters(models.SearchParameters), media)


async def _found(context: RequestContext, selection: Selection, given: models.Fresh) -> dict[str, Any]:
    # A search that waits for a token must not occupy a slot of those that need not wait.
    slots = context.service.fresh if given.at_least else context.service.searches
    async with slots.one(context.caller.name):
        return await context.node.search(context.caller, selection, freshness(given))


async def _rows(context: RequestContext, given: models.SearchParameters, media: str) -> Response:
    if given.cursor is not None:
        raise Problem("invalid-parameter", "a stream of rows has no pages; omit 'cursor'")
    most = given.limit if "limit" in given.model_fields_set else None
    selection = _selection(context, given)
    rows, text = await row_streams.opened(
        context.service, context.caller, selection, freshness(given), media=media, most=most
    )
    name = context.path["collection"]
    suffix = next(key for key, value in SUFFIXES.items() if value == media)
    headers = {
        replies.AS_OF: rows.token,
        "Vary": "Accept, Authorization",
        "Content-Disposition": f'attachment; filename="{name}.{suffix}"',
    }
    return StreamingResponse(text, headers=headers, media_type=media)


def _selection(context: RequestContext, given: models.Search | models.SearchParameters) -> Selection:
    fields = given.model_dump(exclude=set(models.Fresh.model_fields) | {"stream", "f"}, exclude_unset=True)
    if isinstance(given, models.SearchParameters):
        fields["facets"] = given.f
    return selection_of({**fields, "collection": context.path["collection"]})


def _wanted(accept: str) -> str:
    """Return the media type that an Accept header prefers among JSON, CSV and NDJSON; JSON if it names none."""
    best, found = 0.0, replies.JSON
    for part in accept.split(","):
        media, *parameters = (each.strip().lower() for each in part.split(";"))
        weight = next((each.removeprefix("q=") for each in parameters if each.startswith("q=")), "1")
        value = float(weight) if weight.replace(".", "", 1).isdecimal() else 0.0
        if media in {row_streams.CSV, row_streams.NDJSON, replies.JSON} and value > best:
            best, found = value, media
    return found


def _address(
    request: Request, *, suffix: str = "", drop: frozenset[str] = frozenset(), cursor: str | None = None
) -> str:
    """Return the request's URL with changes, relative to the server: only the client knows the right host name."""
    query = request.scope["query_string"].decode("ascii", "replace")
    pairs = [(name, value) for name, value in parse_qsl(query) if name not in drop]
    if cursor is not None:
        pairs.append(("cursor", cursor))
    text = urlencode(pairs)
    return f"{quote(request.url.path)}{suffix}" + (f"?{text}" if text else "")


def _as_parameters(selection: Selection, given: models.Search) -> list[tuple[str, str]]:
    """Return a search by body as URL parameters."""
    pairs = [(f"f.{name}", value) for name, values in selection.facets.items() for value in values]
    pairs += [(f"mc.{name}", str(value)) for name, value in selection.mc.items()]
    for name, value in selection.model_dump(exclude={"collection", "facets", "mc"}, exclude_defaults=True).items():
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        pairs.append((name, text.lower() if isinstance(value, bool) else text))
    return [*pairs, *(("at_least", token) for token in given.at_least)]


_QUERY = ("unknown-collection", "invalid-query", "unknown-facet", "unknown-value", "filter-syntax", "cursor-mismatch")
_SEARCH = (*_QUERY, "search-timeout", "not-caught-up")
_ROWS = {row_streams.CSV: None, row_streams.NDJSON: None}
ROUTES = (
    RouteSpec(
        "GET",
        PATH,
        "list_collections",
        listed,
        "read",
        "List the collections",
        {200: {replies.JSON: reply_models.Collections}},
        parameters=models.Nothing,
    ),
    RouteSpec(
        "GET",
        PATH + "/{collection}",
        "get_collection",
        shown,
        "read",
        "Show a collection: questions, options, counts by status",
        {200: {replies.JSON: reply_models.Collection}},
        parameters=models.Nothing,
        problems=("unknown-collection",),
    ),
    RouteSpec(
        "GET",
        PATH + "/{collection}/search",
        "search",
        search_by_address,
        "read",
        "Search by a URL that can be bookmarked",
        {200: {replies.JSON: reply_models.SearchReply, **_ROWS}, 304: {}},
        parameters=models.SearchParameters,
        problems=_SEARCH,
        request_headers=("If-None-Match",),
    ),
    RouteSpec(
        "POST",
        PATH + "/{collection}/search",
        "search_by_body",
        search_by_body,
        "read",
        "Search by a JSON body",
        {200: {replies.JSON: reply_models.SearchReply}},
        parameters=models.Nothing,
        body=models.Search,
        problems=("invalid-json", "invalid-request", "unsupported-media-type", *_SEARCH),
    ),
    *(
        RouteSpec(
            "GET",
            PATH + "/{collection}/search." + suffix,
            f"search_{suffix}",
            search_rows,
            "read",
            f"Return all hits of a search as {suffix.upper()}, from one snapshot",
            {200: {media: None}},
            parameters=models.SearchParameters,
            problems=_SEARCH,
        )
        for suffix, media in SUFFIXES.items()
    ),
)
