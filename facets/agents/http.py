"""The MCP over streamable HTTP: the application under `/mcp`. Stateless: no session, each request for itself, and no
stream that would stay open; whoever asks for one by GET is told that there is none, which the protocol provides for.

Host, origin, size and time are checked before (`facets.api.middleware`); the token is checked here, at each request,
so that a revoked one ends at once.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from facetline.facets.agents import server
from facetline.facets.agents.backends import NodeSource
from facetline.facets.agents.server import Context
from facetline.facets.agents.toolbox import Toolbox
from facetline.facets.agents.tools import Extra
from facetline.facets.api import json_text
from facetline.facets.api.application import MakePart, Part
from facetline.facets.api.auth import require
from facetline.facets.api.problems import Problem
from facetline.facets.api.routing import Service

PATH = "/mcp"
JSON, EVENTS = "application/json", "text/event-stream"
BODY_BYTES_MAX = 1_500_000
"""Room for the longest argument (a million characters) in ASCII; reading a message takes the SDK 35 ms a megabyte."""
_CALLER = "facetline.caller"


class AgentEndpoint:
    """An ASGI application. `running` is entered for as long as it serves, once."""

    def __init__(self, service: Service, *, allowed: tuple[Extra, ...] = ()) -> None:
        self._service = service
        self._allowed = allowed
        self.route = Route(PATH, self)
        self._json, self._events = (
            StreamableHTTPSessionManager(
                server.server(self._toolbox_of),
                json_response=json,
                stateless=True,
                max_request_body_size=BODY_BYTES_MAX,
            )
            for json in (True, False)
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve inside."""
        async with self._json.run(), self._events.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Raises:
            Problem: what comes before the protocol is wrong: method, token, right, type or size of the body.
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
        body = await _read(receive)  # before a slot is taken: a slow sender must not hold one
        await json_text.check(body)
        async with self._service.agents.one(caller.name):
            manager = self._events if _wants_events(scope) else self._json
            await manager.handle_request(_accepting_both(scope), _again(body, receive), send)

    async def _toolbox_of(self, context: Context) -> Toolbox:
        # The transports hand the HTTP request on with every message.
        request: Any = context.request
        caller = request.scope[_CALLER]
        return Toolbox(NodeSource(self._service.node, caller), self._allowed)


def _wants_events(scope: Scope) -> bool:
    """Say whether a client takes a reply as a stream of events alone; one that says nothing takes JSON."""
    accepted = [part.split(";")[0].strip().lower() for part in Headers(scope=scope).get("accept", "").split(",")]
    return EVENTS in accepted and not {JSON, "application/*", "*/*"} & set(accepted)


def _accepting_both(scope: Scope) -> Scope:
    """Return a request that accepts what the protocol asks of clients; several name one of the two, or none."""
    others = [(name, value) for name, value in scope["headers"] if name != b"accept"]
    return {**scope, "headers": [*others, (b"accept", f"{JSON}, {EVENTS}".encode())]}


async def _read(receive: Receive) -> bytes:
    """Read a request's body, which the gate bounds in time.

    Raises:
        Problem: `too-large`.
    """
    body = bytearray()
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            raise Problem("too-large", f"a message has at most {BODY_BYTES_MAX} bytes")
        more = message["type"] == "http.request" and message.get("more_body", False)
    return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body again, in one piece, and then what comes after it."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def part(*, allowed: tuple[Extra, ...] = ()) -> MakePart:
    """Return what `facets.api.application` mounts; `allowed` are the tools beside reading."""

    def make(service: Service) -> Part:
        endpoint = AgentEndpoint(service, allowed=allowed)
        return Part([endpoint.route], endpoint.running)

    return make
