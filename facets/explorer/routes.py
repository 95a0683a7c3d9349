"""The explorer's addresses.

A collection's name begins with a letter, so nothing under `/-/` can ever be one; `static` is no name for one either.
"""

import time
from collections.abc import Callable

from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from facetline.facets.api.application import Part
from facetline.facets.api.routing import Service
from facetline.facets.explorer.base import HEADERS, STATIC, Site
from facetline.facets.explorer.described import DOCUMENT, Described
from facetline.facets.explorer.fragments import Panels
from facetline.facets.explorer.letters import Letters
from facetline.facets.explorer.login import SigningIn
from facetline.facets.explorer.pages import Pages
from facetline.facets.explorer.reindexing import Reindexing

_FOR_EVER = "public, max-age=31536000, immutable"


class _Static(StaticFiles):
    """Files that a browser keeps: their addresses change when they do."""

    def file_response(self, full_path: object, stat_result: object, scope: Scope, status_code: int = 200) -> Response:
        reply = super().file_response(full_path, stat_result, scope, status_code)  # type: ignore[arg-type]
        stamped = b"v=" in scope.get("query_string", b"")
        kept = {name: value for name, value in HEADERS.items() if name != "Vary"}
        reply.headers.update({**kept, "Cache-Control": _FOR_EVER if stamped else "no-cache"})
        return reply


def part(service: Service, *, clock: Callable[[], float] = time.monotonic) -> Part:
    """Return the page over a node, to stand behind all other parts; `clock` counts seconds for sessions."""
    site = Site(service, clock)
    return Part(_routes(site), page=site.problem_page)


def _routes(site: Site) -> list[BaseRoute]:
    pages, panels, jobs, signing_in = Pages(site), Panels(site), Reindexing(site), SigningIn(site)
    described = Described(site)
    letters = Letters(site)
    page = site.page
    return [
        Mount("/static", _Static(directory=STATIC), name="static"),
        Route("/-/sign-in", signing_in.show, methods=["GET"]),
        Route("/-/sign-in", signing_in.sign_in, methods=["POST"]),
        Route("/-/sign-out", page(signing_in.sign_out, form=True, right=None), methods=["POST"]),
        Route("/-/strip/{collection}", page(panels.strip), methods=["GET"]),
        Route("/-/sql/{collection}", page(panels.sql), methods=["GET"]),
        Route("/-/json/{collection}", page(panels.json), methods=["GET"]),
        Route("/-/csv/{collection}", page(panels.csv), methods=["GET"]),
        Route("/-/failed/{collection}", page(panels.failures), methods=["GET"]),
        Route("/-/reindex/{collection}", page(jobs.dialog), methods=["GET"]),
        Route("/-/reindex/{collection}", page(jobs.start, form=True), methods=["POST"]),
        Route("/-/job/{id}", page(jobs.job), methods=["GET"]),
        Route("/-/job/{id}/cancel", page(jobs.cancel, form=True), methods=["POST"]),
        Route("/docs", page(described.page), methods=["GET"]),
        Route(DOCUMENT, page(described.document), methods=["GET"]),
        Route("/-/dead-letters", page(letters.listed), methods=["GET"]),
        Route("/-/dead-letters/{id}", page(letters.shown), methods=["GET"]),
        Route("/-/dead-letters/{id}/redrive", page(letters.redrive, form=True), methods=["POST"]),
        Route("/-/dead-letters/{id}/discard", page(letters.discard, form=True), methods=["POST"]),
        Route("/", page(pages.collections), methods=["GET"]),
        Route("/{collection}", page(pages.collection), methods=["GET"]),
        Route("/{collection}/{uri:path}", page(pages.document), methods=["GET"]),
    ]
