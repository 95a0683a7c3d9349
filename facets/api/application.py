"""ASGI application: the API's routes over a backend, and the other parts served beside them."""

import contextlib
import importlib.metadata
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from facetline.facets.api import (
    collections,
    dead_letters,
    documents,
    health,
    jobs,
    models,
    problems,
    replies,
    reply_models,
    statements,
    texts,
)
from facetline.facets.api import openapi as described
from facetline.facets.api.auth import Access
from facetline.facets.api.limits import Limits
from facetline.facets.api.middleware import Middleware, Observe, ProblemPage, page_or_json
from facetline.facets.api.problems import Problem
from facetline.facets.api.routing import RequestContext, RouteSpec, Service, service_of
from facetline.facets.backend import Backend

VERSION = "1"


@dataclass(frozen=True, slots=True)
class Part:
    """Further routes of the application: they come after the API's, in the order in which parts are passed.

    `running` is entered while the application runs. `page` renders a problem as an HTML page for requests of this part
    and returns None for all others. A part checks tokens with `Access`; the middleware has already checked origin, size
    and time of a request.
    """

    routes: Sequence[BaseRoute]
    running: Callable[[], AbstractAsyncContextManager[None]] = field(default=contextlib.nullcontext)
    page: ProblemPage | None = None


MakePart = Callable[[Service], Part]


def application(
    node: Backend,
    *,
    loopback: bool,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    limits: Limits | None = None,
    observe: Observe | None = None,
    parts: Sequence[MakePart] = (),
) -> Middleware:
    """Return the ASGI application that serves a backend.

    Args:
        node: The open backend; the caller closes it.
        loopback: The server listens on a loopback address: requests without a token may be `LOCAL`.
        hosts: Accepted `Host` values; empty: any (see `Access`).
        origins: Origins whose pages may read replies (CORS).
        limits: Bounds on requests, connections and concurrent work.
        observe: Called with each reply, for metrics.
        parts: Further parts, each built over the same service.
    """
    service = service_of(node, Access(node, loopback=loopback, hosts=hosts, origins=origins), limits or Limits())
    made = [make(service) for make in parts]
    pages = [part.page for part in made if part.page is not None]
    app = _app(made)
    for declared in ROUTES:
        _add(app, declared, service)
    app.add_api_route("/v1/{rest:path}", _nothing_here, methods=_METHODS, include_in_schema=False)
    for part in made:
        app.router.routes.extend(part.routes)
    _add_problem_handlers(app, pages)
    return Middleware(app, access=service.access, limits=service.limits, observe=observe, pages=pages)


def _app(parts: Sequence[Part]) -> FastAPI:
    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for part in parts:
                await stack.enter_async_context(part.running())
            yield

    # FastAPI's docs pages would load scripts from another host.
    return FastAPI(
        title="Facetline",
        version=VERSION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )


def _add(app: FastAPI, declared: RouteSpec, service: Service) -> None:
    app.add_api_route(
        declared.path,
        declared.endpoint(service),
        methods=[declared.method],
        summary=declared.summary,
        response_class=Response,
        response_model=None,
        tags=[declared.handler.__module__.rpartition(".")[2]],
        openapi_extra=described.operation(declared),
    )


_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


async def _nothing_here(request: Request) -> Response:
    """Answer 404 or 405 below /v1, so that no part handles a misspelt API address."""
    app = request.app
    fitting = (each for each in app.routes if isinstance(each, APIRoute) and each.endpoint is not _nothing_here)
    taken = {name for each in fitting if each.path_regex.match(request.url.path) for name in each.methods or ()}
    if taken:
        raise _wrong_method(request.method, sorted(taken))
    raise Problem("not-found", f"no route {request.url.path[:200]!r}")


def _wrong_method(method: str, taken: list[str]) -> Problem:
    detail = f"{method} is not allowed here; use {', '.join(taken)}"
    return Problem("method-not-allowed", detail, headers={"Allow": ", ".join(taken)}, allowed=taken)


def _add_problem_handlers(app: FastAPI, pages: Sequence[ProblemPage]) -> None:
    async def problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)  # noqa: S101 (registered for it)
        return page_or_json(error, request, pages)

    async def of_routing(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 (registered for it)
        return page_or_json(_of_status(request, error), request, pages)

    async def failed(request: Request, _error: Exception) -> Response:
        # Starlette raises it again after this reply; the middleware logs it.
        return page_or_json(Problem("internal-error", problems.FAILED), request, pages)

    app.add_exception_handler(Problem, problem)
    app.add_exception_handler(Exception, failed)
    app.add_exception_handler(HTTPException, of_routing)


def _of_status(request: Request, error: HTTPException) -> Problem:
    if error.status_code == 405:  # noqa: PLR2004 (HTTP's number)
        taken = sorted(each.strip() for each in (error.headers or {}).get("Allow", "").split(",") if each.strip())
        return _wrong_method(request.method, taken)
    return Problem("not-found", f"no route {request.url.path[:200]!r}")


async def _index(context: RequestContext) -> Response:
    """Return name, version and links of this server; links with braces are URI templates (RFC 6570)."""
    context.parameters(models.Nothing)
    version = importlib.metadata.version("facetline")
    return replies.json_reply({"name": "Facetline", "version": version, "api": VERSION, "links": _LINKS})


_LINKS = {
    "collections": "/v1/collections",
    "search": "/v1/collections/{collection}/search",
    "documents": "/v1/documents/{+uri}",
    "events": "/v1/events/{event_id}",
    "jobs": "/v1/jobs",
    "sql": "/v1/sql",
    "openapi": "/openapi.json",
    "docs": "/docs",
    "health": "/health",
    "metrics": "/metrics",
    "agents": "/mcp",
}


async def _openapi(context: RequestContext) -> Response:
    """Return the OpenAPI document."""
    context.parameters(models.Nothing)
    return replies.json_reply(openapi(context.request.app))


def openapi(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document; built once per application."""
    if app.openapi_schema is None:
        made = get_openapi(
            title="Facetline", version=VERSION, routes=app.routes, description="Search documents by their facets."
        )
        made["components"] = {
            "schemas": described.components(ROUTES),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        }
        app.openapi_schema = made
    return app.openapi_schema


ROUTES: tuple[RouteSpec, ...] = (
    *documents.ROUTES,
    *collections.ROUTES,
    *texts.ROUTES,
    *jobs.ROUTES,
    *dead_letters.ROUTES,
    *statements.ROUTES,
    *health.ROUTES,
    RouteSpec(
        "GET",
        "/v1",
        "get_index",
        _index,
        "read",
        "Name, version and links of this server",
        {200: {replies.JSON: reply_models.Index}},
        parameters=models.Nothing,
    ),
    RouteSpec(
        "GET",
        "/openapi.json",
        "get_openapi",
        _openapi,
        "read",
        "Return this document",
        {200: {replies.JSON: None}},
        parameters=models.Nothing,
    ),
)
"""All routes of the API; tests and docs/api.md enumerate them from here."""
