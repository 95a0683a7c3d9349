"""The routes of collections: what there is, and searching in it."""

from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from facetline.facets.api import models, replies, reply_models, row_streams
from facetline.facets.api.documents import freshness
from facetline.facets.api.problems import Problem
from facetline.facets.api.routing import Call, Declared
from facetline.facets.search.selection import Selection, selection_of

PATH = "/v1/collections"
_OF_ONE_PAGE = frozenset({"cursor", "limit", "stream"})
SUFFIXES = {"csv": row_streams.CSV, "ndjson": row_streams.NDJSON}


async def listed(call: Call) -> Response:
    """List the collections."""
    call.parameters(models.Nothing)
    return replies.json_reply({"collections": await call.node.collections(call.caller)})


async def shown(call: Call) -> Response:
    """Show one collection."""
    call.parameters(models.Nothing)
    return replies.json_reply(await call.node.collection(call.caller, call.path["collection"]))


async def search_by_address(call: Call) -> Response:
    """Search by an address that can be kept, in the form that the client accepts best."""
    media = _wanted(call.request.headers.get("accept", ""))
    given = call.parameters(models.SearchParameters)
    if media != replies.JSON:
        return await _rows(call, given, media)
    if given.stream:
        raise Problem("invalid-parameter", "stream=on is for CSV and NDJSON: search.csv, search.ndjson, or by Accept")
    selection = _selection(call, given)
    reply = await _found(call, selection, given)
    reply["links"] = {
        "self": _address(call.request),
        "csv": _address(call.request, suffix=".csv", drop=_OF_ONE_PAGE),
        "sql": await call.node.sql_of(call.caller, selection),
    }
    cursor = reply["next_cursor"]
    reply["next_url"] = None if cursor is None else _address(call.request, drop=frozenset({"cursor"}), cursor=cursor)
    found = replies.tagged(call.request, reply)
    if reply["next_url"] is not None:
        replies.add_link(found.headers, reply["next_url"], "next")
    replies.add_link(found.headers, reply["links"]["csv"], "alternate")
    return found


async def search_by_body(call: Call) -> Response:
    """Search by a JSON body, for what does not fit into an address."""
    call.parameters(models.Nothing)
    given = await call.body(models.Search)
    selection = _selection(call, given)
    reply = await _found(call, selection, given)
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
        "sql": await call.node.sql_of(call.caller, selection),
    }
    return replies.json_reply(reply)


async def search_rows(call: Call) -> Response:
    """Return all that a search finds, as CSV or NDJSON."""
    media = SUFFIXES[call.request.url.path.rpartition(".")[2]]
    return await _rows(call, call.parameters(models.SearchParameters), media)


async def _found(call: Call, selection: Selection, given: models.Fresh) -> dict[str, Any]:
    # Who only waits, as long as it likes, takes no place of those who need not.
    slots = call.service.fresh if given.at_least else call.service.searches
    async with slots.one(call.caller.name):
        return await call.node.search(call.caller, selection, freshness(given))


async def _rows(call: Call, given: models.SearchParameters, media: str) -> Response:
    if given.cursor is not None:
        raise Problem("invalid-parameter", "a stream of rows has no pages; leave cursor out")
    most = given.limit if "limit" in given.model_fields_set else None
    selection = _selection(call, given)
    rows, text = await row_streams.opened(
        call.service, call.caller, selection, freshness(given), media=media, most=most
    )
    name = call.path["collection"]
    suffix = next(key for key, value in SUFFIXES.items() if value == media)
    headers = {
        replies.AS_OF: rows.token,
        "Vary": "Accept, Authorization",
        "Content-Disposition": f'attachment; filename="{name}.{suffix}"',
    }
    return StreamingResponse(text, headers=headers, media_type=media)


def _selection(call: Call, given: models.Search | models.SearchParameters) -> Selection:
    fields = given.model_dump(exclude=set(models.Fresh.model_fields) | {"stream", "f"}, exclude_unset=True)
    if isinstance(given, models.SearchParameters):
        fields["facets"] = given.f
    return selection_of({**fields, "collection": call.path["collection"]})


def _wanted(accept: str) -> str:
    """Return the media type that a client accepts best of ours; JSON where it does not care or says nothing we know."""
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
    """Return the request's own address, changed, without the server's name: the one that it was reached by is right."""
    query = request.scope["query_string"].decode("ascii", "replace")
    pairs = [(name, value) for name, value in parse_qsl(query) if name not in drop]
    if cursor is not None:
        pairs.append(("cursor", cursor))
    text = urlencode(pairs)
    return f"{quote(request.url.path)}{suffix}" + (f"?{text}" if text else "")


def _as_parameters(selection: Selection, given: models.Search) -> list[tuple[str, str]]:
    """Return a search by body as the parameters of an address."""
    pairs = [(f"f.{name}", value) for name, values in selection.facets.items() for value in values]
    pairs += [(f"mc.{name}", str(value)) for name, value in selection.mc.items()]
    for name, value in selection.model_dump(exclude={"collection", "facets", "mc"}, exclude_defaults=True).items():
        pairs.append((name, ",".join(value) if isinstance(value, tuple) else str(value)))
    return [*pairs, *(("at_least", token) for token in given.at_least)]


_QUERY = ("unknown-collection", "invalid-query", "unknown-facet", "unknown-value", "filter-syntax", "cursor-mismatch")
_SEARCH = (*_QUERY, "search-timeout", "not-caught-up")
_ROWS = {row_streams.CSV: None, row_streams.NDJSON: None}
ROUTES = (
    Declared(
        "GET",
        PATH,
        "list_collections",
        listed,
        "read",
        "List the collections",
        {200: {replies.JSON: reply_models.Collections}},
        parameters=models.Nothing,
    ),
    Declared(
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
    Declared(
        "GET",
        PATH + "/{collection}/search",
        "search",
        search_by_address,
        "read",
        "Search, by an address that can be kept",
        {200: {replies.JSON: reply_models.SearchReply, **_ROWS}, 304: {}},
        parameters=models.SearchParameters,
        problems=_SEARCH,
        request_headers=("If-None-Match",),
    ),
    Declared(
        "POST",
        PATH + "/{collection}/search",
        "search_by_body",
        search_by_body,
        "read",
        "Search, by a JSON body",
        {200: {replies.JSON: reply_models.SearchReply}},
        parameters=models.Nothing,
        body=models.Search,
        problems=("invalid-json", "invalid-request", "unsupported-media-type", *_SEARCH),
    ),
    *(
        Declared(
            "GET",
            PATH + "/{collection}/search." + suffix,
            f"search_{suffix}",
            search_rows,
            "read",
            f"Return all that a search finds, as {suffix.upper()}, of one snapshot",
            {200: {media: None}},
            parameters=models.SearchParameters,
            problems=_SEARCH,
        )
        for suffix, media in SUFFIXES.items()
    ),
)
