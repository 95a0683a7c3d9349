"""One request to a route of ours: who asks, of which node, and how its work is cut short when nobody waits any more."""

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
"""For whoever counts: the client went away before it was answered. Nobody receives it."""


@dataclass(frozen=True, slots=True)
class Service:
    """What all routes share."""

    node: Backend
    access: Access
    limits: Limits
    searches: ConcurrencyLimit
    fresh: ConcurrencyLimit
    agents: ConcurrencyLimit
    streams: ConcurrencyLimit
    statements: ConcurrencyLimit


def service_of(node: Backend, access_: Access, limits: Limits) -> Service:
    """Return what all routes over one node share."""
    slots = [
        ConcurrencyLimit(what, working, each=each, waiting=limits.waiting, wait_s=limits.wait_s)
        for what, working, each in (
            ("searches", limits.searches, None),
            ("searches that wait for something new", limits.fresh, None),
            ("calls of agents", limits.agents, None),
            ("streams of rows", limits.streams, limits.streams_each),
            ("SQL statements", limits.statements, None),
        )
    ]
    return Service(node, access_, limits, *slots)


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    service: Service
    request: Request
    caller: Caller

    @property
    def node(self) -> Backend:
        """The node."""
        return self.service.node

    @property
    def path(self) -> Mapping[str, str]:
        """What the route's address holds, by name."""
        return self.request.path_params

    def parameters(self, model: type[Model]) -> Model:
        """Return the parameters of the address; see `reading.parameters`."""
        return request_parsing.parameters(model, self.request, count_max=self.service.limits.parameters)

    async def body(self, model: type[Model], *, needed: bool = True) -> Model:
        """Return the JSON body; see `reading.checked_body`."""
        return request_parsing.checked_body(model, await request_parsing.json_object(self.request, needed=needed))


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Declared:
    """A route and what is said about it.

    `name` is the operation's in the OpenAPI document, by which generated clients call it.

    `right` None: no token is asked for. `everywhere`: not for callers with a scope. `missing` is the kind of problem
    when what the address names is not there; `problems` are the further kinds that this route answers with. `replies`
    are the models by status and media type.
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
        """Return what the application calls for a request."""

        async def endpoint(request: Request) -> Response:
            try:
                caller = NOBODY
                if self.right is not None:
                    service.access.check_own(request.headers)
                    caller = await service.access.caller(request.headers)
                    auth.require(caller, self.right, everywhere=self.everywhere)
                return await self._until_gone(Call(service, request, caller))
            except errors.PipelineError as error:
                raise problems.of_error(error, missing=self.missing) from error

        return endpoint

    async def _until_gone(self, call: Call) -> Response:
        """Answer; give the work up when the client goes away meanwhile."""
        if self.body is not None:
            await call.request.body()  # kept by the request, so that what comes next is the client's end
        else:
            await _pass_over_body(call.request)
        work = asyncio.ensure_future(self.handler(call))
        gone = asyncio.ensure_future(_end_of(call.request))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            return Response(status_code=GONE_STATUS)
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)


NOBODY = Caller("nobody", frozenset())
"""Who calls a route that asks for no token."""


async def _pass_over_body(request: Request) -> None:
    """Read on to the end of a body that nobody has use for; the gate bounds it."""
    async for _ in request.stream():
        pass


async def _end_of(request: Request) -> None:
    """Return when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
