"""Slow, stuck, half, huge and many: whatever clients do, the API answers the others, and lets nothing go on for ever.

Method: raw sockets at a real uvicorn, with limits so short that a test needs no patience. Nothing is asserted on time:
what must end is awaited, and pytest's own limit is the proof that it does.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
import scripted_node
from listening import Server, listening
from polling import eventually

from facetline.facets.agents import http as agents
from facetline.facets.api.application import application
from facetline.facets.api.limits import Limits
from facetline.facets.api.protocol import HEAD_BYTES_MAX
from facetline.facets.backend import Caller

SHORT = Limits(
    request_s=0.3,
    stall_s=0.3,
    linger_s=0.3,
    wait_s=0.2,
    connections=20,
    searches=2,
    waiting=4,
    streams=1,
    fresh=3,
    agents=3,
)
SEARCH = b"GET /v1/collections/tickets/search HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
PUT = (
    b"PUT /v1/documents/tickets/t1?wait=answered HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
)
CSV = b"GET /v1/collections/tickets/search.csv HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

PATIENCE_S = 30
"""Where a server that fails the test would swallow pytest's own limit."""


class Client:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send."""
        self.writer.write(data)
        await self.writer.drain()

    async def drip(self) -> None:
        """Send a byte now and then, until the connection ends."""
        with contextlib.suppress(ConnectionError):
            while True:
                await self.send(b" ")
                await asyncio.sleep(0.02)

    async def rest(self) -> bytes:
        """Read until the server closes; a connection that was cut has no more."""
        with contextlib.suppress(ConnectionError):
            return await self.reader.read()
        return b""

    async def reply(self) -> tuple[int, dict[str, object]]:
        """Read one reply with a length."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = head.decode().splitlines()
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        body = await self.reader.readexactly(int(headers["content-length"]))
        return int(lines[0].split()[1]), json.loads(body)

    def close(self) -> None:
        """Go away."""
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def connected(server: Server, data: bytes = b"") -> AsyncIterator[Client]:
    """Connect and send."""
    client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
    await client.send(data)
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def node() -> scripted_node.ScriptedNode:
    """The node that is served."""
    return scripted_node.ScriptedNode()


@pytest.fixture
async def server(node: scripted_node.ScriptedNode) -> AsyncIterator[Server]:
    """A server with short limits."""
    async with listening(application(node, loopback=True, limits=SHORT), SHORT) as made:
        yield made


def status_of(reply: bytes) -> int:
    """Return the status of a reply."""
    return int(reply.split(b" ", 2)[1])


def problem_of(reply: bytes) -> dict[str, object]:
    """Return the problem in a reply."""
    head, _, body = reply.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head.lower()
    return json.loads(body)


@pytest.mark.parametrize("data", [b"", b"GET /livez HT", b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "])
async def test_half_a_head_is_waited_for_so_long(server: Server, data: bytes):
    """Whoever sends nothing, or no whole head, is told so in the one shape and cut off."""
    async with connected(server, data) as client:
        reply = await client.rest()

    assert status_of(reply) == 408
    assert problem_of(reply)["type"] == "/v1/problems/request-timeout"


async def test_half_a_head_after_a_reply_is_waited_for_so_long(server: Server):
    """A connection that is kept alive gets no more patience for its second request."""
    async with connected(server, b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") as client:
        first = await client.reply()
        await client.send(b"GET /li")
        reply = await client.rest()

    assert first == (200, {"status": "alive"})
    assert status_of(reply) == 408


async def test_a_slow_body_is_waited_for_so_long(server: Server, node: scripted_node.ScriptedNode):
    """A body that drips is not waited for to its end, however busy its sender seems."""
    head = b"PUT /v1/documents/tickets/t1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    async with connected(server, head + b"Content-Length: 1000\r\n\r\n{") as client:
        dripping = asyncio.create_task(client.drip())
        status, problem = await client.reply()
        dripping.cancel()

    assert (status, problem["type"]) == (408, "/v1/problems/request-timeout")
    assert node.asked == []


async def test_a_huge_body_is_refused_before_it_is_read(server: Server, node: scripted_node.ScriptedNode):
    """A declared length above the limit is answered at once, without a byte of the body; who sends on is cut off."""
    head = b"PUT /v1/documents/tickets/t1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    async with connected(server, head + b"Content-Length: 5242881\r\n\r\n") as client:
        status, problem = await client.reply()
        dripping = asyncio.create_task(client.drip())
        rest = await client.rest()
        await dripping  # ends because the connection does

    assert (status, problem["type"]) == (413, "/v1/problems/too-large")
    assert rest == b""
    assert node.asked == []


async def test_an_endless_body_is_refused_where_it_is_too_large(server: Server, node: scripted_node.ScriptedNode):
    """A body without a length is read as far as the limit, and its sender cut off."""
    head = b"PUT /v1/documents/tickets/t1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    async with connected(server, head + b"Transfer-Encoding: chunked\r\n\r\n") as client:

        async def pour() -> int:
            sent = 0
            with contextlib.suppress(ConnectionError):
                while True:
                    await client.send(chunk)
                    sent += 1
            return sent

        pouring = asyncio.create_task(pour())
        status, problem = await client.reply()
        await pouring  # ends because the connection does

    assert (status, problem["type"]) == (413, "/v1/problems/too-large")
    assert node.asked == []


async def test_a_client_that_has_sent_all_of_a_huge_body_reads_why(server: Server):
    """A plain client that sends first and reads then still gets the refusal, not a broken connection."""
    async with httpx.AsyncClient(base_url=server.url) as client:
        reply = await client.put(
            "/v1/documents/tickets/t1", content=b" " * 5_300_000, headers={"content-type": "application/json"}
        )

    assert reply.status_code == 413


async def test_what_is_no_http_is_answered_in_the_one_shape(server: Server):
    """Bytes that are no request are a 400 with a problem."""
    async with connected(server, b"\x16\x03\x01\x02\x00\r\n\r\n") as client:
        reply = await client.rest()

    assert status_of(reply) == 400
    assert problem_of(reply)["type"] == "/v1/problems/bad-request"


async def test_a_huge_head_is_answered_in_the_one_shape(server: Server):
    """Headers without an end are refused where they are too large."""
    async with connected(server, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 70_000) as client:
        reply = await client.rest()

    assert status_of(reply) == 431
    assert problem_of(reply)["type"] == "/v1/problems/head-too-large"


async def test_an_upgrade_is_passed_over(server: Server):
    """A request that offers another protocol is answered as it is."""
    head = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    async with connected(server, head) as client:
        assert await client.reply() == (200, {"status": "alive"})


async def test_those_who_only_hold_connections_make_room(node: scripted_node.ScriptedNode):
    """With many times as many idle connections as may be open, whoever asks is answered, each time."""
    limits = replace(SHORT, request_s=60)
    async with (
        listening(application(node, loopback=True, limits=limits), limits) as server,
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(SHORT.connections):
            await stack.enter_async_context(connected(server, b"GET /li"))
        await eventually(lambda: server.connections == SHORT.connections, every_s=0.005)
        for _ in range(2 * SHORT.connections):
            livez = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            client = await stack.enter_async_context(connected(server, livez))
            assert await client.reply() == (200, {"status": "alive"})
            assert server.connections == SHORT.connections


async def test_more_requests_at_once_than_connections_are_told_to_come_again(
    server: Server, node: scripted_node.ScriptedNode
):
    """When every connection is at work, one more is told so at once and loses nobody's work."""
    node.hold = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        get = b"GET /v1/documents/tickets/t1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        working = [await stack.enter_async_context(connected(server, get)) for _ in range(SHORT.connections)]
        await eventually(lambda: node.held == SHORT.connections, every_s=0.005)
        async with connected(server) as late:
            reply = await late.rest()
        node.hold.set()
        replies = [await client.reply() for client in working]

    assert status_of(reply) == 503
    assert b"retry-after: 1" in reply.lower()
    assert [status for status, _ in replies] == [200] * SHORT.connections


async def test_a_bounded_number_of_searches_runs_at_once(server: Server, node: scripted_node.ScriptedNode):
    """The others wait for a bounded time, a bounded number of them; then they are told to come again."""
    node.hold = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(server, SEARCH)) for _ in range(9)]
        await eventually(lambda: node.held == SHORT.searches, every_s=0.005)
        told = [await client.reply() for client in clients[SHORT.searches :]]
        still = await asyncio.gather(*(httpx_get(server, "/livez") for _ in range(3)))
        node.hold.set()
        answered = [await client.reply() for client in clients[: SHORT.searches]]

    assert {(status, problem["type"]) for status, problem in told} == {(503, "/v1/problems/busy")}
    assert still == [200] * 3
    assert [status for status, _ in answered] == [200] * SHORT.searches
    assert node.most_held == SHORT.searches


async def httpx_get(server: Server, path: str, token: str | None = None) -> int:
    """Return the status of a plain GET."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
        return (await client.get(path)).status_code


async def _is_served(server: Server, path: str, token: str) -> bool:
    return await httpx_get(server, path, token) == 200


@pytest.mark.parametrize(
    "request_",
    [
        SEARCH,
        PUT,
        CSV,
    ],
    ids=["search", "write", "rows"],
)
async def test_work_that_nobody_waits_for_any_more_is_given_up(
    server: Server, node: scripted_node.ScriptedNode, request_: bytes
):
    """A client that goes away in the middle takes its work with it, and its slot is free again."""
    node.hold = asyncio.Event()
    for _ in range(2 * SHORT.searches):
        async with connected(server, request_):
            await eventually(lambda: node.held == 1, every_s=0.005)
        await eventually(lambda: node.held == 0, every_s=0.005)

    assert node.canceled == 2 * SHORT.searches


async def test_a_reader_that_stops_reading_gives_the_snapshot_up(server: Server, node: scripted_node.ScriptedNode):
    """A stream whose reader takes nothing more is cut; not many more pages were made than what lies in between."""
    node.rows_ = scripted_node.Rows(1_000_000, width=1_000)
    async with connected(server, CSV) as client:
        await client.reader.readuntil(b"\r\n\r\n")
        client.writer.transport.pause_reading()
        await node.rows_.closed.wait()

    assert node.rows_.given < 100_000
    assert await httpx_get(server, "/livez") == 200


async def test_a_reader_that_goes_away_gives_the_snapshot_up(server: Server, node: scripted_node.ScriptedNode):
    """A stream ends with its reader, and the next one finds its slot free."""
    for _ in range(2 * SHORT.streams):
        node.rows_ = scripted_node.Rows(1_000_000, width=1_000)
        async with connected(server, CSV) as client:
            await client.reader.readuntil(b"\r\n\r\n")
        await node.rows_.closed.wait()

    node.rows_ = scripted_node.Rows(1)
    assert await httpx_get(server, "/v1/collections/tickets/search.csv") == 200


async def test_slow_readers_of_one_token_keep_nobody_else_out(node: scripted_node.ScriptedNode):
    """A caller has so many streams at once and no more; another caller still gets one, and so does the first again."""
    node.callers = {name: Caller(name, frozenset({"read"})) for name in ("alice", "bob")}
    stream = CSV.replace(b"Host", b"Authorization: Bearer alice\r\nHost")
    path = "/v1/collections/tickets/search.csv"
    node.rows_ = scripted_node.Rows(1_000_000, width=1_000)
    limits = replace(SHORT, streams=3, streams_each=2, stall_s=60)
    async with (
        listening(application(node, loopback=True, limits=limits), limits) as server,
        contextlib.AsyncExitStack() as readers,
    ):
        for _ in range(limits.streams_each):
            slow = await readers.enter_async_context(connected(server, stream))
            assert status_of(await slow.reader.readuntil(b"\r\n\r\n")) == 200
            slow.writer.transport.pause_reading()

        node.rows_ = scripted_node.Rows(1)

        assert await httpx_get(server, path, "alice") == 503
        assert await httpx_get(server, path, "bob") == 200
        await readers.aclose()
        await eventually(lambda: _is_served(server, path, "alice"), deadline_s=PATIENCE_S)


async def test_a_stream_that_lasts_too_long_ends_without_its_end(node: scripted_node.ScriptedNode):
    """The snapshot is held for a bounded time; a reader who is slower sees that the end is missing."""
    limits = replace(SHORT, stream_s=0.1, stall_s=10)
    node.rows_ = scripted_node.Rows(1_000_000, width=10_000)
    async with (
        listening(application(node, loopback=True, limits=limits), limits) as server,
        connected(server) as client,
    ):
        await client.send(CSV)
        async with asyncio.timeout(PATIENCE_S):
            everything = await client.rest()
            await node.rows_.closed.wait()

    assert status_of(everything) == 200
    assert not everything.endswith(b"0\r\n\r\n")


def posted(path: str, body: dict[str, object]) -> bytes:
    """Return a request with a JSON body."""
    sent = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json\r\n"
    return f"{head}Content-Length: {len(sent)}\r\n\r\n".encode() + sent


WAITS = posted("/v1/collections/tickets/search", {"at_least": ["t"], "wait_ms": 30_000})
CALLS = posted(
    "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_collections", "arguments": {}}}
)


@pytest.mark.parametrize("data", [WAITS, CALLS], ids=["waits", "agents"])
async def test_who_waits_long_takes_no_search_from_others(node: scripted_node.ScriptedNode, data: bytes):
    """Searches that wait for something new, and calls of agents, however many, leave the places of searches free."""
    node.hold = hold = asyncio.Event()
    made = application(node, loopback=True, limits=SHORT, parts=[agents.part()])
    async with listening(made, SHORT) as server, contextlib.AsyncExitStack() as stack:
        for _ in range(SHORT.fresh + 2):
            await stack.enter_async_context(connected(server, data))
        await eventually(lambda: node.held == SHORT.fresh, every_s=0.005)
        node.hold = None

        async with connected(server, SEARCH) as client:
            status, _ = await client.reply()
        hold.set()

    assert status == 200


async def test_the_bodies_of_all_requests_together_are_bounded(node: scripted_node.ScriptedNode):
    """Many large bodies at once are no more than fit into memory; when they are answered there is room again."""
    limits = replace(SHORT, bodies_bytes=250_000)
    large = posted("/v1/collections/tickets/search", {"filter": "x" * 100_000, "at_least": ["t"]})
    node.hold = asyncio.Event()
    made = application(node, loopback=True, limits=limits)
    async with listening(made, limits) as server, contextlib.AsyncExitStack() as stack:
        held = [await stack.enter_async_context(connected(server, large)) for _ in range(2)]
        await eventually(lambda: node.held == len(held), every_s=0.005)
        async with connected(server, large) as late:
            refused = await late.reply()
        node.hold.set()
        answered = [await client.reply() for client in held]
        async with connected(server, large) as again:
            last = await again.reply()

    assert (refused[0], refused[1]["type"]) == (503, "/v1/problems/busy")
    assert [status for status, _ in [*answered, last]] == [200] * 3


POSTED = b"POST /v1/collections/tickets/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"
AMBIGUOUS = {
    "both": POSTED + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "both, the other way": POSTED + b"Transfer-Encoding: chunked\r\nContent-Length: 12\r\n\r\n" + CHUNKS,
    "both, equal": POSTED + b"Transfer-Encoding: CHUNKED\r\ncontent-length: 12\r\n\r\n" + CHUNKS,
    "two lengths": POSTED + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a signed length": POSTED + b"Content-Length: +2\r\n\r\n{}",
    "two codings": POSTED + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
    "twice chunked": POSTED + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "a blank before the colon": POSTED + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS,
    "a vertical tab": POSTED + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNKS,
    "chunks in HTTP/1.0": POSTED.replace(b"1.1", b"1.0", 1) + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "a line without CR": POSTED + b"X: a\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "no CR at all": POSTED.replace(b"\r\n", b"\n") + b"Content-Length: 2\n\n{}",
    "a folded line": POSTED + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS,
    "a folded first line": b"GET /livez HTTP/1.1\r\n X: a\r\nHost: 127.0.0.1\r\n\r\n",
    "NUL": POSTED + b"X: a\0b\r\nContent-Length: 2\r\n\r\n{}",
    "two hosts": b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
    "a chunk that goes on": POSTED + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}XX0\r\n\r\n",
    "an extension without CR": POSTED + b"Transfer-Encoding: chunked\r\n\r\n2;a\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("data", AMBIGUOUS.values(), ids=AMBIGUOUS)
async def test_a_request_that_two_readers_may_end_in_two_places_is_refused(
    server: Server, node: scripted_node.ScriptedNode, data: bytes
):
    """Such a request is a 400, its connection is closed, and what stands behind it is never taken for a request."""
    behind = b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with connected(server, data + behind) as client:
        reply = await client.rest()

    assert reply.count(b"HTTP/1.1 ") == 1
    assert status_of(reply) == 400
    assert node.asked == []


def head_of(size: int, filler: bytes) -> bytes:
    """Return a request whose head has so many bytes."""
    before = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "
    return before + filler * (size - len(before) - 5) + b"a\r\n\r\n"


@pytest.mark.parametrize("piece", [100_000, 8_192, 4_000])
@pytest.mark.parametrize("filler", [b"a", b" "])
@pytest.mark.parametrize("first", [b"", b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"], ids=["alone", "behind"])
async def test_a_head_has_64_kib_however_it_is_cut(server: Server, piece: int, filler: bytes, first: bytes):
    """A head of 64 KiB is taken and one of a byte more is not: in one piece, in many, and behind another request."""
    for size, wanted in ((HEAD_BYTES_MAX, 200), (HEAD_BYTES_MAX + 1, 431)):
        data = first + head_of(size, filler)
        async with connected(server) as client:
            for start in range(0, len(data), piece):
                await client.send(data[start : start + piece])
            if first:
                await client.reply()

            assert (await client.reply())[0] == wanted
