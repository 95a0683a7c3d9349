"""The MCP over streamable HTTP: the application under `/mcp`. Stateless: no session, each request for itself, and no
stream that would stay open; whoever asks for one by GET is told that there is none, which the protocol provides for.

Whoever mounts it has judged host, origin, size and time before (`facets.api.gate`); the token is judged here, at each
request, so that a revoked one ends at once.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from facets.agents import server
from facets.agents.server import Context
from facets.agents.sources import NodeSource
from facets.agents.toolbox import Toolbox
from facets.agents.tools import Extra
from facets.api.access import require
from facets.api.application import MakePart, Part
from facets.api.call import Service
from facets.api.problems import Problem

PATH = "/mcp"
BODY_BYTES_MAX = 5 * 1024 * 1024
_CALLER = "facetline.caller"


class AgentEndpoint:
    """An ASGI application. `running` is entered for as long as it serves, once."""

    def __init__(self, service: Service, *, allowed: tuple[Extra, ...] = ()) -> None:
        self._service = service
        self._allowed = allowed
        self.route = Route(PATH, self)
        self._manager = StreamableHTTPSessionManager(
            server.server(self._toolbox_of), json_response=True, stateless=True, max_request_body_size=BODY_BYTES_MAX
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve inside."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Raises:
            Problem: what comes before the protocol is wrong: method, token, right, type of the body.
        """
        scope["route"] = self.route  # what the log and the metrics call it
        if scope["method"] != "POST":
            detail = "there are no sessions, and no stream of the server's own messages; POST is taken"
            raise Problem("method-not-allowed", detail, headers={"Allow": "POST"}, allowed=["POST"])
        caller = await self._service.access.caller(Headers(scope=scope))
        require(caller, "read")
        if not Headers(scope=scope).get("content-type", "").lower().startswith("application/json"):
            raise Problem("unsupported-media-type", "a message is JSON: send content-type: application/json")
        scope[_CALLER] = caller
        whole = await _read(receive)  # before a slot is taken: a slow sender must not hold one
        async with self._service.agents.one(caller.name):
            await self._manager.handle_request(scope, whole, send)

    async def _toolbox_of(self, context: Context) -> Toolbox:
        # The transports hand the HTTP request on with every message.
        request: Any = context.request
        caller = request.scope[_CALLER]
        return Toolbox(NodeSource(self._service.node, caller), self._allowed)


async def _read(receive: Receive) -> Receive:
    """Read a request's body, which the gate bounds in size and time; return what gives it again, in one piece."""
    body = bytearray()
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message["type"] == "http.request" and message.get("more_body", False)
    waiting: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def part(*, allowed: tuple[Extra, ...] = ()) -> MakePart:
    """Return what `facets.api.application` mounts; `allowed` are the tools beside reading."""

    def make(service: Service) -> Part:
        endpoint = AgentEndpoint(service, allowed=allowed)
        return Part([endpoint.route], endpoint.running)

    return make
