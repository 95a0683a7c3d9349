"""Smaller responses of the explorer: pipeline strip, SQL of a search, failed documents, and exports of hits."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from facetline.facets.api import row_streams
from facetline.facets.explorer import hits, pipeline_strip, search_url
from facetline.facets.explorer.base import HEADERS, Site, Visitor
from facetline.facets.explorer.search_url import SearchUrl

FAILURES_MAX = 200


class Fragments:
    """Handlers of the pipeline strip, SQL, failures and exports."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._node = site.node

    async def strip(self, request: Request, visitor: Visitor) -> Response:
        """Show the pipeline strip alone, which the page polls."""
        name = request.path_params["collection"]
        strip = pipeline_strip.strip(await self._node.strip(visitor.caller, name))
        return self._site.render(request, "strip.html", visitor, collection=name, strip=strip)

    async def sql(self, request: Request, visitor: Visitor) -> Response:
        """Show the search as SQL."""
        asked = self._asked(request)
        text = await self._node.sql_of(visitor.caller, asked.selection())
        return self._site.render(request, "sql.html", visitor, collection=asked.collection, asked=asked, text=text)

    async def failures(self, request: Request, visitor: Visitor) -> Response:
        """Show failed documents, newest first, with their reasons."""
        name = request.path_params["collection"]
        found = await self._node.failures(visitor.caller, name, limit=FAILURES_MAX)
        rows = [{**each, "href": hits.href_of(name, each["uri"])} for each in found]
        return self._site.render(request, "failures.html", visitor, collection=name, failures=rows, most=FAILURES_MAX)

    async def json(self, request: Request, visitor: Visitor) -> Response:
        """Return the search's reply as the API does."""
        asked = self._asked(request)
        async with self._site.service.searches.one(visitor.caller.name):
            reply = await self._node.search(visitor.caller, asked.selection())
        return JSONResponse(reply, headers=HEADERS)

    async def csv(self, request: Request, visitor: Visitor) -> Response:
        """Return all hits as CSV, from one snapshot."""
        asked = self._asked(request)
        _, text = await row_streams.opened(self._site.service, visitor.caller, asked.selection())
        headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{asked.collection}.csv"'}
        return StreamingResponse(text, headers=headers, media_type=row_streams.CSV)

    def _asked(self, request: Request) -> SearchUrl:
        return search_url.read(request.path_params["collection"], request.query_params.multi_items())
