"""The agents' endpoint of a server, made when the first agent comes: importing the MCP SDK takes a second of processor
time, which every start would pay, and most servers see no agent for long.

It is imported in a thread, so that others are answered meanwhile. What the SDK runs is entered and left in one task, as
it must be.
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


class MountedAgents:
    """An ASGI application: what comes waits until the endpoint is made, and is then answered by it."""

    def __init__(self, service: Service, *, allowed: tuple[Extra, ...] = ()) -> None:
        self._service = service
        self._allowed = allowed
        self._stop = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._route: asyncio.Future[BaseRoute] | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve inside."""
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
        route = await asyncio.shield(self._route)  # others wait for it as well
        await route.handle(scope, receive, send)

    async def _keep(self, made: "asyncio.Future[BaseRoute]") -> None:
        try:
            part = await asyncio.to_thread(self._make)
            async with part.running():
                made.set_result(part.routes[0])
                await self._stop.wait()
        except Exception as error:  # noqa: BLE001 (the outermost step of this task: whoever waits is told)
            if not made.done():
                made.set_exception(error)
                return
            self._route = None  # it answers no more: whoever comes next has it made anew
            # Not the message: a library's may quote a document.
            log.error("agents_ended", error=type(error).__name__)  # noqa: TRY400

    def _make(self) -> Part:
        try:
            from facetline.facets.agents import http
        except ModuleNotFoundError as error:
            detail = (
                f"the server was installed without {error.name}: pip install 'facetline[agents]', and start it again"
            )
            raise Problem("not-found", detail) from error
        return http.part(allowed=self._allowed)(self._service)


def part(*, allowed: tuple[Extra, ...] = ()) -> MakePart:
    """Return what `facets.api.application` mounts; `allowed` are the tools beside reading."""

    def make(service: Service) -> Part:
        mounted = MountedAgents(service, allowed=allowed)
        # Many clients' settings have the slash at the end, and not all follow a redirect with their token.
        return Part([Route(PATH, mounted), Route(f"{PATH}/", mounted)], mounted.running)

    return make
