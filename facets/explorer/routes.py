"""Routes of the explorer.

A collection's name begins with a letter, so no collection can clash with `/-/`; the name `static` is reserved.
"""

import time
from collections.abc import Callable

from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from facetline.facets.api.application import Part
from facetline.facets.api.routing import Service
from facetline.facets.explorer.api_docs import DOCUMENT, ApiDocs
from facetline.facets.explorer.base import HEADERS, STATIC, Site
from facetline.facets.explorer.dead_letters import DeadLetterPages
from facetline.facets.explorer.fragments import Fragments
from facetline.facets.explorer.login import Login
from facetline.facets.explorer.pages import Pages
from facetline.facets.explorer.reindex import ReindexPages

_IMMUTABLE = "public, max-age=31536000, immutable"


class _Static(StaticFiles):
    """Static files that browsers cache: their URLs change with their content."""

    def file_response(self, full_path: object, stat_result: object, scope: Scope, status_code: int = 200) -> Response:
        reply = super().file_response(full_path, stat_result, scope, status_code)  # type: ignore[arg-type]
        stamped = b"v=" in scope.get("query_string", b"")
        kept = {name: value for name, value in HEADERS.items() if name != "Vary"}
        reply.headers.update({**kept, "Cache-Control": _IMMUTABLE if stamped else "no-cache"})
        return reply


def part(service: Service, *, clock: Callable[[], float] = time.monotonic) -> Part:
    """Return the explorer's part, to be added after all others; `clock` returns seconds, for sessions."""
    site = Site(service, clock)
    return Part(_routes(site), page=site.problem_page)


def _routes(site: Site) -> list[BaseRoute]:
    pages, fragments, jobs, login = Pages(site), Fragments(site), ReindexPages(site), Login(site)
    api_docs = ApiDocs(site)
    letters = DeadLetterPages(site)
    page = site.page
    return [
        Mount("/static", _Static(directory=STATIC), name="static"),
        Route("/-/sign-in", login.show, methods=["GET"]),
        Route("/-/sign-in", login.sign_in, methods=["POST"]),
        Route("/-/sign-out", page(login.sign_out, form=True, right=None), methods=["POST"]),
        Route("/-/strip/{collection}", page(fragments.strip), methods=["GET"]),
        Route("/-/sql/{collection}", page(fragments.sql), methods=["GET"]),
        Route("/-/json/{collection}", page(fragments.json), methods=["GET"]),
        Route("/-/csv/{collection}", page(fragments.csv), methods=["GET"]),
        Route("/-/failed/{collection}", page(fragments.failures), methods=["GET"]),
        Route("/-/reindex/{collection}", page(jobs.dialog), methods=["GET"]),
        Route("/-/reindex/{collection}", page(jobs.start, form=True), methods=["POST"]),
        Route("/-/job/{id}", page(jobs.job), methods=["GET"]),
        Route("/-/job/{id}/cancel", page(jobs.cancel, form=True), methods=["POST"]),
        Route("/docs", page(api_docs.page), methods=["GET"]),
        Route(DOCUMENT, page(api_docs.document), methods=["GET"]),
        Route("/-/dead-letters", page(letters.listed), methods=["GET"]),
        Route("/-/dead-letters/{id}", page(letters.shown), methods=["GET"]),
        Route("/-/dead-letters/{id}/redrive", page(letters.redrive, form=True), methods=["POST"]),
        Route("/-/dead-letters/{id}/discard", page(letters.discard, form=True), methods=["POST"]),
        Route("/", page(pages.collections), methods=["GET"]),
        Route("/{collection}", page(pages.collection), methods=["GET"]),
        Route("/{collection}/{uri:path}", page(pages.document), methods=["GET"]),
    ]
