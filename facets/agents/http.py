"""The MCP over streamable HTTP: the application under `/mcp`. Stateless: no session, each request for itself.

Whoever mounts it has judged host, origin, size and time before (`facets.api.gate`); the token is judged here, at each
request, so that a revoked one ends at once.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from facets.agents import server
from facets.agents.server import Context
from facets.agents.sources import NodeSource
from facets.agents.toolbox import Toolbox
from facets.agents.tools import Extra
from facets.api.access import require
from facets.api.application import MakePart, Part
from facets.api.call import Service

PATH = "/mcp"
BODY_BYTES_MAX = 5 * 1024 * 1024
_CALLER = "facetline.caller"


class AgentEndpoint:
    """An ASGI application. `running` is entered for as long as it serves, once."""

    def __init__(self, service: Service, *, allowed: tuple[Extra, ...] = ()) -> None:
        self._service = service
        self._allowed = allowed
        self._manager = StreamableHTTPSessionManager(
            server.server(self._toolbox_of), json_response=True, stateless=True, max_request_body_size=BODY_BYTES_MAX
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve inside."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        caller = await self._service.access.caller(Headers(scope=scope))
        require(caller, "read")
        scope[_CALLER] = caller
        async with self._service.searches.one():
            await self._manager.handle_request(scope, receive, send)

    async def _toolbox_of(self, context: Context) -> Toolbox:
        # The transports hand the HTTP request on with every message.
        request: Any = context.request
        caller = request.scope[_CALLER]
        return Toolbox(NodeSource(self._service.node, caller), self._allowed)


def part(*, allowed: tuple[Extra, ...] = ()) -> MakePart:
    """Return what `facets.api.application` mounts; `allowed` are the tools beside reading."""

    def make(service: Service) -> Part:
        endpoint = AgentEndpoint(service, allowed=allowed)
        return Part([Route(PATH, endpoint)], endpoint.running)

    return make
