"""Routes of the API: declarations, one request with its caller, and cancellation when the client disconnects."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from facetline.facets import errors
from facetline.facets.api import auth, problems, request_parsing
from facetline.facets.api.auth import Access
from facetline.facets.api.limits import ConcurrencyLimit, Limits
from facetline.facets.backend import Backend, Caller, Right

Model = TypeVar("Model", bound=BaseModel)
GONE_STATUS = 499
"""For metrics: the client disconnected before the reply, so no one receives it."""


@dataclass(frozen=True, slots=True)
class Service:
    """Backend, access control and limits, shared by all routes."""

    node: Backend
    access: Access
    limits: Limits
    searches: ConcurrencyLimit
    fresh: ConcurrencyLimit
    agents: ConcurrencyLimit
    streams: ConcurrencyLimit
    statements: ConcurrencyLimit


def service_of(node: Backend, access_: Access, limits: Limits) -> Service:
    """Return the shared service of all routes over one backend."""
    slots = [
        ConcurrencyLimit(what, working, each=each, waiting=limits.waiting, wait_s=limits.wait_s)
        for what, working, each in (
            ("searches", limits.searches, None),
            ("searches with at_least", limits.fresh, None),
            ("agent calls", limits.agents, None),
            ("streams of rows", limits.streams, limits.streams_each),
            ("SQL statements", limits.statements, None),
        )
    ]
    return Service(node, access_, limits, *slots)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request."""

    service: Service
    request: Request
    caller: Caller

    @property
    def node(self) -> Backend:
        """The backend."""
        return self.service.node

    @property
    def path(self) -> Mapping[str, str]:
        """The path parameters by name."""
        return self.request.path_params

    def parameters(self, model: type[Model]) -> Model:
        """Return the URL parameters; see `request_parsing.parameters`."""
        return request_parsing.parameters(model, self.request, count_max=self.service.limits.parameters)

    async def body(self, model: type[Model], *, needed: bool = True) -> Model:
        """Return the JSON body; see `request_parsing.checked_body`."""
        return request_parsing.checked_body(model, await request_parsing.json_object(self.request, needed=needed))


Handler = Callable[[RequestContext], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """A route with its handler, access rule and OpenAPI description.

    `name` is the operation id, the method name in generated clients. `right` None: no token required. `everywhere`: not
    for callers with a scope. `missing` is the kind of problem for `NotFound`; `problems` are further kinds that this
    route returns. `replies` are the models by status and media type.
    """

    method: str
    path: str
    name: str
    handler: Handler
    right: Right | None
    summary: str
    replies: Mapping[int, Mapping[str, Any]]
    parameters: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    body_needed: bool = True
    everywhere: bool = False
    missing: str = "not-found"
    problems: tuple[str, ...] = ()
    request_headers: tuple[str, ...] = ()

    def endpoint(self, service: Service) -> Callable[[Request], Awaitable[Response]]:
        """Return the ASGI endpoint."""

        async def endpoint(request: Request) -> Response:
            try:
                caller = ANONYMOUS
                if self.right is not None:
                    service.access.check_own(request.headers)
                    caller = await service.access.caller(request.headers)
                    auth.require(caller, self.right, everywhere=self.everywhere)
                return await self._until_gone(RequestContext(service, request, caller))
            except errors.PipelineError as error:
                raise problems.of_error(error, missing=self.missing) from error

        return endpoint

    async def _until_gone(self, context: RequestContext) -> Response:
        """Run the handler; cancel it if the client disconnects."""
        if self.body is not None:
            await context.request.body()  # cached by the request, so that the next message is the disconnect
        else:
            await _discard_body(context.request)
        work = asyncio.ensure_future(self.handler(context))
        gone = asyncio.ensure_future(_disconnected(context.request))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            return Response(status_code=GONE_STATUS)
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)


ANONYMOUS = Caller("anonymous", frozenset())
"""The caller of routes that require no token."""


async def _discard_body(request: Request) -> None:
    """Read and discard a body that the route does not use; the middleware limits it."""
    async for _ in request.stream():
        pass


async def _disconnected(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
