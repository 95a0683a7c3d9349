"""MCP endpoint that is created at its first request: importing the MCP SDK takes a second of processor time.

The import runs in a thread, so that other requests are answered meanwhile. The SDK's context managers are entered and
left in the same task, as they require.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import structlog
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from facetline.facets.agents.tools import Extra
from facetline.facets.api.application import MakePart, Part
from facetline.facets.api.problems import Problem
from facetline.facets.api.routing import Service

PATH = "/mcp"

log = structlog.get_logger(__name__)


class LazyEndpoint:
    """ASGI application: requests wait until the endpoint is created, which then answers them."""

    def __init__(self, service: Service, *, allowed: tuple[Extra, ...] = ()) -> None:
        self._service = service
        self._allowed = allowed
        self._stop = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._route: asyncio.Future[BaseRoute] | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Stop the endpoint at the end of the body."""
        try:
            yield
        finally:
            self._stop.set()
            if self._keeper is not None:
                await asyncio.wait({self._keeper})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self._route is None or (self._route.done() and self._route.exception() is not None):
            self._route = asyncio.get_running_loop().create_future()
            self._keeper = asyncio.create_task(self._keep(self._route), name="agents")
        route = await asyncio.shield(self._route)  # other requests wait for the same future
        await route.handle(scope, receive, send)

    async def _keep(self, made: "asyncio.Future[BaseRoute]") -> None:
        try:
            part = await asyncio.to_thread(self._make)
            async with part.running():
                made.set_result(part.routes[0])
                await self._stop.wait()
        except Exception as error:  # noqa: BLE001 (the outermost step of this task: waiting requests get the error)
            if not made.done():
                made.set_exception(error)
                return
            self._route = None  # the next request creates the endpoint again
            # Without the message: a library's may quote a document.
            log.error("agents_ended", error=type(error).__name__)  # noqa: TRY400

    def _make(self) -> Part:
        try:
            from facetline.facets.agents import http
        except ModuleNotFoundError as error:
            detail = f"{error.name} is not installed on the server: pip install 'facetline[agents]' and restart it"
            raise Problem("not-found", detail) from error
        return http.part(allowed=self._allowed)(self._service)


def part(*, allowed: tuple[Extra, ...] = ()) -> MakePart:
    """Return the part for `facets.api.application`; `allowed` are the optional tools."""

    def make(service: Service) -> Part:
        mounted = LazyEndpoint(service, allowed=allowed)
        # Many clients are configured with a trailing slash, and not all resend their token after a redirect.
        return Part([Route(PATH, mounted), Route(f"{PATH}/", mounted)], mounted.running)

    return make
