"""Middleware for every request: checks of host and origin, limits of size and time, headers, and one error format.

Pure ASGI, around the application and everything mounted in it.
"""

import asyncio
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Self

import structlog
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from facetline.facets import errors
from facetline.facets.api import problems
from facetline.facets.api.auth import Access
from facetline.facets.api.limits import Limits
from facetline.facets.api.problems import Problem

Observe = Callable[[str, str, int, float], None]
"""Called with each reply: method (`OTHER` if unknown), route template (never the URL), status, seconds."""
ProblemPage = Callable[[HTTPConnection, Problem], Response | None]
"""Renders a problem as an HTML page; None: this request gets JSON."""

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
"""Defaults for every reply that does not set them."""
_CORS_ALLOWED = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
    "Access-Control-Allow-Headers": (
        "Authorization, Content-Type, Idempotency-Key, If-None-Match, MCP-Protocol-Version"
    ),
    "Access-Control-Max-Age": "600",
}
_CORS_EXPOSED = "ETag, Facetline-As-Of, Link, Location, Retry-After"
UNMATCHED = "(none)"
"""The route of a request that matches no route."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
OTHER = "(other)"
"""Any other method: HTTP allows any token, and a metric label must have a bounded set of values."""

log = structlog.get_logger(__name__)


class Middleware:
    """Wraps the application; see the module."""

    def __init__(
        self,
        app: Starlette,
        *,
        access: Access,
        limits: Limits,
        observe: Observe | None = None,
        pages: Sequence[ProblemPage] = (),
    ) -> None:
        self.application = app
        self._access = access
        self._limits = limits
        self._observe = observe
        self._pages = pages
        self._bodies = _Bodies(limits.bodies_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # the server leaves the body out
            scope = {**scope, "method": "GET"}
        started = time.perf_counter()
        reply = _Reply(send, allowed_origin=self._access.allowed_origin(Headers(scope=scope)))
        try:
            await self._answer(scope, receive, reply)
        finally:
            if self._observe is not None and reply.status:
                self._observe(_method(scope), _route(scope), reply.status, time.perf_counter() - started)

    async def _answer(self, scope: Scope, receive: Receive, reply: "_Reply") -> None:
        try:
            headers = Headers(scope=scope)
            await self._access.check_site(headers)
            if reply.allowed_origin is not None and _is_preflight(scope, headers):
                await Response(status_code=204, headers=_CORS_ALLOWED)(scope, receive, reply.send)
                return
            with _Body(receive, self._limits, self._bodies) as bounded:
                bounded.check(headers)
                await self.application(scope, bounded.receive, reply.send)
        except ClientDisconnect:
            return
        except Problem as problem:
            await self._refuse(problem, scope, receive, reply)
        except errors.PipelineError as error:
            await self._refuse(problems.of_error(error), scope, receive, reply)
        except Exception as error:  # noqa: BLE001 (the outermost step of a request)
            # Without the message: a library's may quote a body or a token.
            where = traceback.extract_tb(error.__traceback__)[-1]
            log.error("request_failed", error=type(error).__name__, at=f"{where.filename}:{where.lineno}")  # noqa: TRY400
            await self._refuse(Problem("internal-error", problems.FAILED), scope, receive, reply)

    async def _refuse(self, problem: Problem, scope: Scope, receive: Receive, reply: "_Reply") -> None:
        if reply.status:
            return  # the reply ends early, which the client detects: its end is missing
        connection = HTTPConnection(scope)
        await page_or_json(problem, connection, self._pages)(scope, receive, reply.send)


def page_or_json(problem: Problem, connection: HTTPConnection, pages: Sequence[ProblemPage]) -> Response:
    """Return a problem as the HTML page of a part that renders one for this request, else as JSON."""
    for page in pages:
        made = page(connection, problem)
        if made is not None:
            return made
    return problem.response(problems.instance_of(connection))


class _Reply:
    """Forwards a reply and adds the common headers; `status` is 0 until the reply starts."""

    def __init__(self, send: Send, *, allowed_origin: str | None) -> None:
        self._send = send
        self.allowed_origin = allowed_origin
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            if self.allowed_origin is not None:
                headers["Access-Control-Allow-Origin"] = self.allowed_origin
                headers["Access-Control-Expose-Headers"] = _CORS_EXPOSED
                headers["Cross-Origin-Resource-Policy"] = "cross-origin"
                headers.add_vary_header("Origin")
            message["headers"] = headers.raw
        await self._send(message)


class _Bodies:
    """Total size of the bodies of requests in progress: `held` bytes are in memory."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0

    def take(self, count: int) -> None:
        """Add `count` bytes.

        Raises:
            Problem: `busy`; nothing was added.
        """
        if self.held + count > self._most:
            raise Problem("busy", f"request bodies of {self.held} bytes are in progress; retry later")
        self.held += count


class _Body:
    """Forwards a request's body within the limits of size and time; counts in `_Bodies` until the `with` block ends."""

    def __init__(self, receive: Receive, limits: Limits, bodies: _Bodies) -> None:
        self._receive = receive
        self._limits = limits
        self._bodies = bodies
        self._ends = asyncio.get_running_loop().time() + limits.request_s
        self._bytes = 0
        self._whole = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bodies.held -= self._bytes

    def check(self, headers: Headers) -> None:
        """Refuse a body that is too large by its Content-Length, before reading it.

        Raises:
            Problem: `too-large`.
        """
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > self._limits.body_bytes:
            raise self._too_large()

    async def receive(self) -> Message:
        """Return the next message.

        Raises:
            Problem: `too-large`, `request-timeout`, or `busy` when the bodies of all requests are too large.
        """
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._ends):
                message = await self._receive()
        except TimeoutError:
            raise Problem(
                "request-timeout",
                f"the body was not complete within {self._limits.request_s:g} s",
                headers={"Connection": "close"},
            ) from None
        if message["type"] == "http.request":
            count = len(message.get("body", b""))
            self._bodies.take(count)
            self._bytes += count
            self._whole = not message.get("more_body", False)
            if self._bytes > self._limits.body_bytes:
                raise self._too_large()
        return message

    def _too_large(self) -> Problem:
        return Problem("too-large", f"the request body has more than {self._limits.body_bytes} bytes")


def _is_preflight(scope: Scope, headers: Headers) -> bool:
    return scope["method"] == "OPTIONS" and "access-control-request-method" in headers


def _method(scope: Scope) -> str:
    """Return the method for metrics."""
    return scope["method"] if scope["method"] in METHODS else OTHER


def _route(scope: Scope) -> str:
    """Return the template of the route that handled a request."""
    template = getattr(scope.get("route"), "path", None)
    return template if isinstance(template, str) else UNMATCHED
