"""One connection: uvicorn's HTTP/1.1, with an end to everything a client can make it wait for.

A request's head must come in time; a reply must be read on; what is sent after its answer is passed over for a moment
only. When there are as many connections as may be, the one that has been idle for longest makes room, so that those
who only hold connections never keep out those who ask. What is no HTTP is answered in the one shape of all problems.
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
"""A request's line and headers: room for a long search by address, and for tokens in `at_least`."""
READ_BYTES = 8 * 1024
"""Taken from a socket at once: 1-byte chunks of a body are some 1,400 events of h11, which others wait for."""


# A line that ends without CR, or goes on in the next one.
_LOOSE = re.compile(rb"(?<!\r)\n|\r\n[ \t]")


class _Ambiguous(h11.RemoteProtocolError):
    """A request whose end or headers two readers may see differently: how requests are smuggled past a proxy."""


class _StrictConnection(h11.Connection):
    """h11's side of a connection, stricter: it refuses what another reader may understand in another way."""

    def next_event(self) -> Any:
        """Return what came next.

        Raises:
            RemoteProtocolError: it is no HTTP, or ambiguous.
        """
        before = self.trailing_data[0] if self.their_state is h11.IDLE else b""
        event = super().next_event()
        if isinstance(event, h11.Request):
            head = before[: len(before) - len(self.trailing_data[0])]
            names = {name for name, _ in event.headers}
            if {b"transfer-encoding", b"content-length"} <= names:
                raise _Ambiguous("a request has Transfer-Encoding or Content-Length, not both")
            if b"transfer-encoding" in names and event.http_version < b"1.1":
                raise _Ambiguous("HTTP/1.0 has no Transfer-Encoding; send HTTP/1.1")
            if _LOOSE.search(head):
                raise _Ambiguous("each line of a request's head ends with CR LF, and none goes on in the next")
        return event


class BoundedProtocol(H11Protocol):
    """A connection under `limits`; made by uvicorn, as `server_options` says."""

    limits = Limits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _StrictConnection(h11.SERVER, HEAD_BYTES_MAX)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._idle_since = self.loop.time()

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        cycle = getattr(self, "cycle", None)  # uvicorn declares it as if there were always one
        return cycle is None or cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or turn it away when none makes room."""
        room = len(self.connections) < self.limits.connections or self._make_room()
        super().connection_made(transport)
        if hasattr(transport, "max_size"):  # asyncio's own, which is 256 KiB
            transport.max_size = READ_BYTES
        if room:
            self._arm("head", self.limits.request_s, self._head_is_late)
        else:
            self._refuse(Problem("busy", f"{self.limits.connections} connections are open, all of them at work"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        for name in list(self._timers):
            self._disarm(name)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what a client sent, of a head only as much as may be there."""
        while data and not self.transport.is_closing():
            room = self._head_room()
            if not room:
                self._refuse(Problem("head-too-large", f"a request's head has at most {HEAD_BYTES_MAX} bytes"))
                return
            super().data_received(data[:room])
            data = data[room:]
        if not self.idle or self.transport.is_closing():
            self._disarm("head")
        elif self.conn.their_state is h11.IDLE:
            self._arm("head", self.limits.request_s, self._head_is_late)

    def on_response_complete(self) -> None:
        """Go on to the next request, or give a client a moment to stop sending this one."""
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if self.transport.is_closing():
            self._arm("stall", self.limits.stall_s, self.transport.abort)
        elif self.idle and self.conn.their_state is h11.SEND_BODY:
            self._arm("linger", self.limits.linger_s, self.transport.abort)

    def handle_events(self) -> None:
        """Handle what came in; the end of a request that was answered early ends its moment."""
        super().handle_events()
        if self.conn.their_state is not h11.SEND_BODY:
            self._disarm("linger")

    def pause_writing(self) -> None:
        """Wait for the client to read on, not for ever."""
        super().pause_writing()
        self._arm("stall", self.limits.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on writing."""
        self._disarm("stall")
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that nothing more came on; what is unread of the last reply is not waited for for ever."""
        super().timeout_keep_alive_handler()
        self._arm("stall", self.limits.stall_s, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP. Called while the error is handled, which alone says what is wrong."""
        error = sys.exc_info()[1]
        too_large = getattr(error, "error_status_hint", 400) == 431  # noqa: PLR2004 (HTTP's number)
        detail = str(error) if isinstance(error, _Ambiguous) else msg
        self._refuse(Problem("head-too-large" if too_large else "bad-request", detail))

    def _should_upgrade(self) -> bool:
        return False  # there is nothing to upgrade to; a request that offers it is answered as it is

    def _head_room(self) -> int:
        """Return how many bytes the head that is being read may still have; a body is not bounded here."""
        if self.conn.their_state is not h11.IDLE:
            return READ_BYTES + HEAD_BYTES_MAX
        return HEAD_BYTES_MAX - len(self.conn.trailing_data[0])

    def _make_room(self) -> bool:
        """Cut the connection that has been idle for longest."""
        idle = [each for each in self.connections if isinstance(each, BoundedProtocol) and each.idle]
        if not idle:
            return False
        oldest = min(idle, key=lambda each: each._idle_since)  # noqa: SLF001 (our own class)
        oldest.transport.abort()
        self.connections.discard(oldest)
        return True

    def _head_is_late(self) -> None:
        self._refuse(Problem("request-timeout", f"no whole request within {self.limits.request_s:g} s"))

    def _refuse(self, problem: Problem) -> None:
        """Answer without the application, and close."""
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
        """Do something after a time, unless disarmed; a timer that runs already goes on."""
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
    """Return what `uvicorn.Config` is given besides application, address and logging."""
    return {
        "http": type("BoundedProtocol", (BoundedProtocol,), {"limits": limits}),
        "ws": "none",
        "lifespan": "on",
        "timeout_keep_alive": KEEP_ALIVE_S,
        "backlog": limits.connections,
        # Whoever can reach the port could write these headers: nothing here goes by them.
        "proxy_headers": False,
        "server_header": False,
        "access_log": False,
    }
