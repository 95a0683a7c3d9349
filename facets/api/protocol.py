"""HTTP/1.1 connections of uvicorn with a timeout for everything that a client can delay.

A request's head must arrive in time, a reply must be read, and a body sent after its answer is read for a short time
only. At the limit of connections, the one that has been idle longest is closed, so that idle clients never keep out
active ones. Input that is not HTTP is answered with a problem.
"""

import asyncio
import re
import sys
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from facetline.facets.api import problems
from facetline.facets.api.limits import Limits
from facetline.facets.api.problems import Problem

HEAD_BYTES_MAX = 64 * 1024
"""Request line and headers: enough for a long search by URL, and for tokens in `at_least`."""
READ_BYTES = 8 * 1024
"""Bytes read from a socket at once: with 1-byte chunks of a body these are some 1,400 h11 events, all in one step."""


# A line that ends without CR, or is continued on the next line.
_LOOSE = re.compile(rb"(?<!\r)\n|\r\n[ \t]")


class _Ambiguous(h11.RemoteProtocolError):
    """A request whose end or headers a proxy may parse differently, which allows request smuggling."""


class _StrictConnection(h11.Connection):
    """h11's connection, stricter: it refuses requests that another parser may read differently."""

    def next_event(self) -> Any:
        """Return the next event.

        Raises:
            RemoteProtocolError: the input is not HTTP, or ambiguous.
        """
        before = self.trailing_data[0] if self.their_state is h11.IDLE else b""
        event = super().next_event()
        if isinstance(event, h11.Request):
            head = before[: len(before) - len(self.trailing_data[0])]
            names = {name for name, _ in event.headers}
            if {b"transfer-encoding", b"content-length"} <= names:
                raise _Ambiguous("the request has both Transfer-Encoding and Content-Length; send one")
            if b"transfer-encoding" in names and event.http_version < b"1.1":
                raise _Ambiguous("HTTP/1.0 has no Transfer-Encoding; send HTTP/1.1")
            if _LOOSE.search(head):
                raise _Ambiguous(
                    "a line of the request's head does not end with CR LF, or is continued on the next line"
                )
        return event


class BoundedProtocol(H11Protocol):
    """A connection under `limits`; created by uvicorn with `server_options`."""

    limits = Limits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _StrictConnection(h11.SERVER, HEAD_BYTES_MAX)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._idle_since = self.loop.time()

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        cycle = getattr(self, "cycle", None)  # declared by uvicorn as always present
        return cycle is None or cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or refuse it if the limit is reached and none is idle."""
        room = len(self.connections) < self.limits.connections or self._make_room()
        super().connection_made(transport)
        if hasattr(transport, "max_size"):  # asyncio's read size, 256 KiB by default
            transport.max_size = READ_BYTES
        if room:
            self._arm("head", self.limits.request_s, self._head_is_late)
        else:
            self._refuse(Problem("busy", f"{self.limits.connections} connections are open and active"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers of the connection."""
        for name in list(self._timers):
            self._disarm(name)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received bytes; refuse a head that is too large."""
        while data and not self.transport.is_closing():
            room = self._head_room()
            if not room:
                self._refuse(Problem("head-too-large", f"the request's head has more than {HEAD_BYTES_MAX} bytes"))
                return
            super().data_received(data[:room])
            data = data[room:]
        if not self.idle or self.transport.is_closing():
            self._disarm("head")
        elif self.conn.their_state is h11.IDLE:
            self._arm("head", self.limits.request_s, self._head_is_late)

    def on_response_complete(self) -> None:
        """Continue with the next request, or wait `linger_s` for the client to stop sending this one."""
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if self.transport.is_closing():
            self._arm("stall", self.limits.stall_s, self.transport.abort)
        elif self.idle and self.conn.their_state is h11.SEND_BODY:
            self._arm("linger", self.limits.linger_s, self.transport.abort)

    def handle_events(self) -> None:
        """Handle received events; the end of a body that was answered early cancels the `linger` timer."""
        super().handle_events()
        if self.conn.their_state is not h11.SEND_BODY:
            self._disarm("linger")

    def pause_writing(self) -> None:
        """Wait at most `stall_s` for the client to read."""
        super().pause_writing()
        self._arm("stall", self.limits.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Resume writing."""
        self._disarm("stall")
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; wait at most `stall_s` for the client to read the last reply."""
        super().timeout_keep_alive_handler()
        self._arm("stall", self.limits.stall_s, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """Answer input that is not HTTP. Called inside the `except` block, whose exception has the details."""
        error = sys.exc_info()[1]
        too_large = getattr(error, "error_status_hint", 400) == 431  # noqa: PLR2004 (HTTP's number)
        detail = str(error) if isinstance(error, _Ambiguous) else msg
        self._refuse(Problem("head-too-large" if too_large else "bad-request", detail))

    def _should_upgrade(self) -> bool:
        return False  # no upgrades; a request that offers one is answered as HTTP/1.1

    def _head_room(self) -> int:
        """Return how many bytes the current head may still have; bodies are limited by the middleware."""
        if self.conn.their_state is not h11.IDLE:
            return READ_BYTES + HEAD_BYTES_MAX
        return HEAD_BYTES_MAX - len(self.conn.trailing_data[0])

    def _make_room(self) -> bool:
        """Close the connection that has been idle longest; return whether there was one."""
        idle = [each for each in self.connections if isinstance(each, BoundedProtocol) and each.idle]
        if not idle:
            return False
        oldest = min(idle, key=lambda each: each._idle_since)  # noqa: SLF001 (our own class)
        oldest.transport.abort()
        self.connections.discard(oldest)
        return True

    def _head_is_late(self) -> None:
        self._refuse(Problem("request-timeout", f"no complete request within {self.limits.request_s:g} s"))

    def _refuse(self, problem: Problem) -> None:
        """Send a problem without the application, and close."""
        if self.transport.is_closing():
            return
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self.transport.abort()
            return
        body = problems.encoded(problem.members("/"))
        headers = {
            "Content-Type": problems.MEDIA_TYPE,
            "Content-Length": str(len(body)),
            "Connection": "close",
            **problem.headers,
        }
        response = h11.Response(
            status_code=problem.status, headers=list(headers.items()), reason=HTTPStatus(problem.status).phrase
        )
        parts = (response, h11.Data(data=body), h11.EndOfMessage())
        self.transport.write(b"".join(self.conn.send(part) or b"" for part in parts))
        self.transport.close()
        self._arm("stall", self.limits.stall_s, self.transport.abort)

    def _arm(self, name: str, after_s: float, then: Any) -> None:
        """Start a timer, unless one with this name is running."""
        if name not in self._timers:
            self._timers[name] = self.loop.call_later(after_s, self._fire, name, then)

    def _disarm(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _fire(self, name: str, then: Any) -> None:
        del self._timers[name]
        then()


KEEP_ALIVE_S = 5


def server_options(limits: Limits) -> dict[str, Any]:
    """Return the options of `uvicorn.Config` besides application, address and logging."""
    return {
        "http": type("BoundedProtocol", (BoundedProtocol,), {"limits": limits}),
        "ws": "none",
        "lifespan": "on",
        "timeout_keep_alive": KEEP_ALIVE_S,
        "backlog": limits.connections,
        # Any client that reaches the port can send these headers: they are ignored.
        "proxy_headers": False,
        "server_header": False,
        "access_log": False,
    }
