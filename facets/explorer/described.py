"""The API's description for people: Swagger UI over the OpenAPI document, from files of this server alone."""

from starlette.requests import Request
from starlette.responses import Response

from facetline.facets.api import replies
from facetline.facets.api.application import openapi
from facetline.facets.explorer.base import HEADERS, Site, Visitor

DOCUMENT = "/-/openapi.json"
"""The document by the page's own session: a browser sends no token to `/openapi.json`."""
# Swagger UI's style sheet has its icons in itself; scripts and styles stay this server's files.
POLICY = HEADERS["Content-Security-Policy"].replace("img-src 'self'", "img-src 'self' data:")


class Described:
    """The handlers of the page and of the document that it shows."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def page(self, request: Request, visitor: Visitor) -> Response:
        """Show the API's routes, which can be tried out there."""
        reply = self._site.render(request, "docs.html", visitor)
        reply.headers["Content-Security-Policy"] = POLICY
        return reply

    async def document(self, request: Request, _visitor: Visitor) -> Response:
        """Return the OpenAPI document."""
        return replies.json_reply(openapi(request.app), headers=HEADERS)
