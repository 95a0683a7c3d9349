"""API reference page: Swagger UI over the OpenAPI document, served without external files."""

from starlette.requests import Request
from starlette.responses import Response

from facetline.facets.api import replies
from facetline.facets.api.application import openapi
from facetline.facets.explorer.base import HEADERS, Site, Visitor

DOCUMENT = "/-/openapi.json"
"""The OpenAPI document for signed-in browsers, which send no token to `/openapi.json`."""
# Swagger UI's style sheet embeds its icons as data: URLs; scripts and styles come from this server.
POLICY = HEADERS["Content-Security-Policy"].replace("img-src 'self'", "img-src 'self' data:")


class ApiDocs:
    """Handlers of the page and of the OpenAPI document."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def page(self, request: Request, visitor: Visitor) -> Response:
        """Show the API's routes with forms to try them."""
        reply = self._site.render(request, "docs.html", visitor)
        reply.headers["Content-Security-Policy"] = POLICY
        return reply

    async def document(self, request: Request, _visitor: Visitor) -> Response:
        """Return the OpenAPI document."""
        return replies.json_reply(openapi(request.app), headers=HEADERS)
