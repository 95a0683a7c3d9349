"""A model server on loopback: the chat and the decision protocol over real sockets, scripted reply by reply.

It runs in a thread of its own (`with serving() as server`), or as a process: `python model_server.py PORT [AFTER_S]`.
What it will say is `server.plan`: a function of the request, or one reply for all. It keeps every request, counts them
by the marker `doc:URI#INDEXED_AS` in their bodies (else by the whole body), and knows its open connections.
"""

import asyncio
import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from model_replies import GOOD, Reply

MARKER = re.compile(r"doc:([^\s\"#\\]+)#([\w-]+)")
VARIABLE, KEY = "FACETLINE_TEST_MODEL_KEY", "sk-loopback-0123456789"
"""The key that evaluators in front of it send, and the variable that names it."""
START_S = 10.0
KEEP_ALIVE_S = 75.0
BODY_BYTES_MAX = 16 * 1024 * 1024
FLOOD_PIECE_BYTES = 256 * 1024


@dataclass(frozen=True)
class Request:
    """One request as it came; `at_s` is of the monotonic clock, `number` counts from 1."""

    number: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    marker: str
    """`URI#INDEXED_AS`, or the body's text where it has no marker."""
    at_s: float
    peer: int
    """The port at the other end: one for each connection."""


Plan = Callable[[Request], Reply]


def marker_of(text: str) -> str:
    """Return what a request is counted by."""
    found = MARKER.search(text)
    return f"{found[1]}#{found[2]}" if found else text


@dataclass
class Server:
    """Set `plan` at any time; the rest is to be read, from any thread."""

    plan: Plan | Reply = GOOD
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Requests by marker, each counted when it has come in whole."""
    running: int = 0
    running_max: int = 0
    _runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """Without a path; litellm adds what a provider's decision protocol needs."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def chat_url(self) -> str:
        """The base of OpenAI's chat protocol."""
        return f"{self.url}/v1"

    @property
    def connections(self) -> int:
        """How many are open now."""
        server = self._runner.server if self._runner is not None else None
        return len(server.connections) if server is not None else 0

    def forget(self) -> None:
        """Be as at the start: good answers, nothing counted."""
        self.plan = GOOD
        self.requests.clear()
        self.counts.clear()
        self.running_max = self.running

    async def start(self, port: int = 0) -> None:
        """Listen on loopback, on any free port for 0."""
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, keepalive_timeout=KEEP_ALIVE_S, shutdown_timeout=0.1, access_log=None
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port, backlog=1024)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close everything, hanging requests too."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        request = await self._noted(http)
        reply = self.plan if isinstance(self.plan, Reply) else self.plan(request)
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        try:
            return await _replied(http, request, reply)
        finally:
            self.running -= 1

    async def _noted(self, http: web.Request) -> Request:
        text = await http.text()
        try:
            body = json.loads(text)
        except ValueError:
            body = {}
        peer = http.transport.get_extra_info("peername")[1] if http.transport is not None else 0
        headers = {name.lower(): value for name, value in http.headers.items()}
        request = Request(
            len(self.requests) + 1, http.path, headers, body, marker_of(_words(body)), time.monotonic(), peer
        )
        self.requests.append(request)
        self.counts[request.marker] += 1
        return request


def _words(body: dict[str, Any]) -> str:
    """Return the part of a request that holds the document."""
    if "messages" in body:
        parts = [message.get("content") or "" for message in body["messages"]]
        return "\n".join(part if isinstance(part, str) else json.dumps(part) for part in parts)
    state = body.get("state", body.get("input", ""))
    return state if isinstance(state, str) else json.dumps(state)


async def _replied(http: web.Request, request: Request, reply: Reply) -> web.StreamResponse:
    if reply.after_s:
        await asyncio.sleep(reply.after_s)
    if reply.hang:
        await asyncio.Event().wait()
    if reply.drop:
        return _dropped(http)
    data = reply.data(request.path, request.body)
    headers = {"content-type": "application/json", **reply.headers}
    if reply.flood_bytes:
        return await _flooded(http, reply, data, headers)
    if reply.claims_bytes is not None:
        return await _misclaimed(http, reply, data, headers)
    if reply.drip_s is None and not reply.cut:
        return web.Response(status=reply.status, body=data, headers=headers)
    response = web.StreamResponse(status=reply.status, headers={**headers, "content-length": str(len(data))})
    await response.prepare(http)
    if reply.cut:
        await response.write(data[: len(data) // 2])
        return _dropped(http)
    for index in range(len(data)):
        await response.write(data[index : index + 1])
        await asyncio.sleep(reply.drip_s or 0)
    return response


async def _flooded(http: web.Request, reply: Reply, data: bytes, headers: dict[str, str]) -> web.StreamResponse:
    """Send white space in chunks, as much as the client takes, and then the body."""
    response = web.StreamResponse(status=reply.status, headers=headers)
    response.enable_chunked_encoding()
    await response.prepare(http)
    piece = b" " * FLOOD_PIECE_BYTES
    for _ in range(-(-reply.flood_bytes // len(piece))):
        await response.write(piece)
    await response.write(data)
    return response


async def _misclaimed(http: web.Request, reply: Reply, data: bytes, headers: dict[str, str]) -> web.StreamResponse:
    """Send the body behind a head with another length, and close the connection."""
    lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {value}" for name, value in headers.items())]
    head = "\r\n".join([*lines, f"content-length: {reply.claims_bytes}", "", ""])
    assert http.transport is not None
    http.transport.write(head.encode() + data)
    http.transport.close()
    return web.Response()


def _dropped(http: web.Request) -> web.StreamResponse:
    if http.transport is not None:
        http.transport.abort()
    return web.Response()


@contextmanager
def serving(plan: Plan | Reply = GOOD) -> Iterator[Server]:
    """A server in a thread of its own, until the block is left."""
    server, ready = Server(plan), threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        await server.start()
        ready.set()
        await stop.wait()
        await server.stop()

    def run() -> None:
        with suppress(asyncio.CancelledError), asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run, name="model-server", daemon=True)
    thread.start()
    try:
        assert ready.wait(START_S), "the model server did not start"
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(START_S)
        assert not thread.is_alive(), "the model server did not stop"


async def _main(port: int, after_s: float) -> None:
    server = Server(Reply(after_s=after_s))
    await server.start(port)
    print(server.port, flush=True)  # noqa: T201 (whoever started it reads the port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(_main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
