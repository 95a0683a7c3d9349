"""MCP over streamable HTTP: the ASGI application at `/mcp`.

Stateless: no sessions, and no stream of server messages; a GET gets 405, as the protocol allows. Host, origin, size
and time are checked before (`facets.api.middleware`); the token is checked here at each request, so that a revoked one
stops working immediately.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from facetline.facets.agents import server
from facetline.facets.agents.backends import LocalToolBackend
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
"""Enough for the longest argument (a million characters) in ASCII; the SDK parses a megabyte in 35 ms."""
_CALLER = "facetline.caller"


class AgentEndpoint:
    """The ASGI application. `running` is entered once, while it serves."""

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
        """Run the session managers while the body runs."""
        async with self._json.run(), self._events.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Raises:
            Problem: method, token, right, content type or size of the body is wrong.
        """
        scope["route"] = self.route  # for log and metrics
        if scope["method"] != "POST":
            detail = "no sessions and no stream of server messages; use POST"
            raise Problem("method-not-allowed", detail, headers={"Allow": "POST"}, allowed=["POST"])
        caller = await self._service.access.caller(Headers(scope=scope))
        require(caller, "read")
        if not Headers(scope=scope).get("content-type", "").lower().startswith("application/json"):
            raise Problem("unsupported-media-type", "send a JSON message: content-type: application/json")
        scope[_CALLER] = caller
        body = await _read(receive)  # before taking a slot, so that a slow client holds none
        await json_text.check(body)
        async with self._service.agents.one(caller.name):
            manager = self._events if _wants_events(scope) else self._json
            await manager.handle_request(_accepting_both(scope), _replayed(body, receive), send)

    async def _toolbox_of(self, context: Context) -> Toolbox:
        # The transport passes the HTTP request with each message.
        request: Any = context.request
        caller = request.scope[_CALLER]
        return Toolbox(LocalToolBackend(self._service.node, caller), self._allowed)


def _wants_events(scope: Scope) -> bool:
    """Return whether a client accepts only an event stream; without an Accept header it gets JSON."""
    accepted = [part.split(";")[0].strip().lower() for part in Headers(scope=scope).get("accept", "").split(",")]
    return EVENTS in accepted and not {JSON, "application/*", "*/*"} & set(accepted)


def _accepting_both(scope: Scope) -> Scope:
    """Return the request with the Accept header that the protocol requires; several clients send only a part of it."""
    others = [(name, value) for name, value in scope["headers"] if name != b"accept"]
    return {**scope, "headers": [*others, (b"accept", f"{JSON}, {EVENTS}".encode())]}


async def _read(receive: Receive) -> bytes:
    """Read a request's body; the middleware limits its time.

    Raises:
        Problem: `too-large`.
    """
    body = bytearray()
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            raise Problem("too-large", f"the message has more than {BODY_BYTES_MAX} bytes")
        more = message["type"] == "http.request" and message.get("more_body", False)
    return bytes(body)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `Receive` that returns the body in one message, and then what follows it."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again


def part(*, allowed: tuple[Extra, ...] = ()) -> MakePart:
    """Return the part for `facets.api.application`; `allowed` are the optional tools."""

    def make(service: Service) -> Part:
        endpoint = AgentEndpoint(service, allowed=allowed)
        return Part([endpoint.route], endpoint.running)

    return make
