"""The application: the API's routes over a node, and what else is served beside them."""

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
)
from facetline.facets.api import openapi as described
from facetline.facets.api.auth import Access
from facetline.facets.api.limits import Limits
from facetline.facets.api.middleware import Gate, Observe, ProblemPage, page_or_json
from facetline.facets.api.problems import Problem
from facetline.facets.api.routing import Call, Declared, Service, service_of
from facetline.facets.backend import Backend

VERSION = "1"


@dataclass(frozen=True, slots=True)
class Part:
    """What else is served: its routes come after the API's, in the order in which parts are given.

    `running` is entered while the application runs. `page` makes a problem a page for people, for the requests that are
    this part's; it returns None for the others. A part judges tokens by `Access` itself; site, size and time of a
    request are judged before it.
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
) -> Gate:
    """Return the ASGI application that serves a node.

    Args:
        node: The open node; closed by whoever opened it.
        loopback: The server listens on a loopback address: requests without a token may be `LOCAL`.
        hosts: The only `Host` values answered for; empty: any (see `Access`).
        origins: Origins whose pages may read replies (CORS).
        limits: Bounds against slow, hostile and too many clients.
        observe: Told about each reply, for metrics.
        parts: What else is served, each made over the same service.
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
    _tell_problems(app, pages)
    return Gate(app, access=service.access, limits=service.limits, observe=observe, pages=pages)


def _app(parts: Sequence[Part]) -> FastAPI:
    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for part in parts:
                await stack.enter_async_context(part.running())
            yield

    # Its own pages would load scripts from another host.
    return FastAPI(
        title="Facetline",
        version=VERSION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )


def _add(app: FastAPI, declared: Declared, service: Service) -> None:
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
    """Answer below /v1, so that no part takes an address that is misspelt."""
    app = request.app
    fitting = (each for each in app.routes if isinstance(each, APIRoute) and each.endpoint is not _nothing_here)
    taken = {name for each in fitting if each.path_regex.match(request.url.path) for name in each.methods or ()}
    if taken:
        raise _wrong_method(request.method, sorted(taken))
    raise Problem("not-found", f"there is nothing at {request.url.path[:200]!r}")


def _wrong_method(method: str, taken: list[str]) -> Problem:
    detail = f"{method} is not taken here; {', '.join(taken)} is" if len(taken) == 1 else f"{method} is not taken here"
    return Problem("method-not-allowed", detail, headers={"Allow": ", ".join(taken)}, allowed=taken)


def _tell_problems(app: FastAPI, pages: Sequence[ProblemPage]) -> None:
    async def problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)  # noqa: S101 (registered for it)
        return page_or_json(error, request, pages)

    async def of_routing(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 (registered for it)
        return page_or_json(_of_status(request, error), request, pages)

    async def failed(request: Request, _error: Exception) -> Response:
        # It is raised further after this reply, and logged by the gate.
        return page_or_json(Problem("internal-error", problems.FAILED), request, pages)

    app.add_exception_handler(Problem, problem)
    app.add_exception_handler(Exception, failed)
    app.add_exception_handler(HTTPException, of_routing)


def _of_status(request: Request, error: HTTPException) -> Problem:
    if error.status_code == 405:  # noqa: PLR2004 (HTTP's number)
        taken = sorted(each.strip() for each in (error.headers or {}).get("Allow", "").split(",") if each.strip())
        return _wrong_method(request.method, taken)
    return Problem("not-found", f"there is nothing at {request.url.path[:200]!r}")


async def _index(call: Call) -> Response:
    """Say what this server is, and where to go on; addresses with braces are templates (RFC 6570)."""
    call.parameters(models.Nothing)
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


async def _openapi(call: Call) -> Response:
    """Return the OpenAPI document."""
    call.parameters(models.Nothing)
    return replies.json_reply(openapi(call.request.app))


def openapi(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, made once."""
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


ROUTES: tuple[Declared, ...] = (
    *documents.ROUTES,
    *collections.ROUTES,
    *jobs.ROUTES,
    *dead_letters.ROUTES,
    *statements.ROUTES,
    *health.ROUTES,
    Declared(
        "GET",
        "/v1",
        "get_index",
        _index,
        "read",
        "Say what this server is, and where to go on",
        {200: {replies.JSON: reply_models.Index}},
        parameters=models.Nothing,
    ),
    Declared(
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
"""All routes of the API: what is tested and documented route by route goes by this."""
