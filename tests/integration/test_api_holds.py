"""No request holds the event loop: the largest bodies, addresses and heads of every route, in the worst shapes.

Method: a real node behind a real uvicorn in this process, clients in threads, and a watch over the loop. The bound is
on processor time between two turns of the loop, so that a busy machine fails nothing.
"""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
import serving
from listening import Server, listening
from loop_watch import watched

from facetline.facets.agents import http as agents
from facetline.facets.api import application
from facetline.facets.api.limits import Limits
from facetline.facets.api.routing import RouteSpec
from facetline.facets.backend import LOCAL
from facetline.facets.explorer import routes as explorer

HELD_MAX_S = 0.1
BODY_BYTES = Limits().body_bytes - 1_000
ADDRESS_BYTES = 63_000
PLACES = {"{uri:path}": "@alice/tickets/t1", "{collection}": "tickets"}
PAGES = ("/", "/tickets", "/tickets/@alice/tickets/t1", "/-/strip/tickets", "/-/sql/tickets", "/-/json/tickets",
         "/-/csv/tickets", "/-/failed/tickets", "/-/reindex/tickets", "/-/sign-in", "/nothing")  # fmt: skip


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A pipeline behind the API, the agents' endpoint and the page."""
    async with serving.local_node(tmp_path_factory.mktemp("held")) as (_, node):
        await node.write(LOCAL, "@alice/tickets/t1", body="x", state=None, event_id=None, wait="answered", timeout_s=30)
        made = application.application(node, loopback=True, parts=[agents.part(), explorer.part])
        async with listening(made) as listener:
            yield listener


def ask(port: int, method: str, path: str, body: bytes = b"", headers: tuple[str, ...] = ()) -> bytes:
    """Send one request and return the reply, or as much as came before the connection was cut."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    reply = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        try:
            connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
            while part := connection.recv(1 << 16):
                reply += part
        except ConnectionError:
            pass
    return reply


def repeated(before: bytes, unit: bytes, after: bytes) -> bytes:
    """Return the largest body made of a unit."""
    times = (BODY_BYTES - len(before) - len(after)) // (len(unit) + 1)
    return before + b",".join([unit] * times) + after


def names(count: int) -> bytes:
    """Return so many names with values."""
    return b",".join(b'"n%07d":%d' % (number, number % 10) for number in range(count))


def bodies(field: str) -> Iterator[tuple[str, bytes]]:
    """Yield bodies whose one field takes long to read for who reads it carelessly."""
    head = b'{"' + field.encode() + b'":'
    yield "a name twice", head + b"{" + names(80_000) + b',"n0079999":1}}'
    yield "a name twice, few", head + b"{" + names(9_000) + b',"n0008999":1}}'
    yield "names", head + b"{" + names(BODY_BYTES // 13) + b"}}"
    yield "names, few", head + b"{" + names(9_000) + b"}}"
    yield "numbers", repeated(head + b"[", b"0", b"]}")
    yield "objects", repeated(head + b"[", b'{"a":{}}', b"]}")
    yield "texts", repeated(head + b"[", b'""', b"]}")
    yield "a long name", head + b'{"' + b"a" * (BODY_BYTES - 40) + b'":1}}'
    yield "a long text", head + b'"' + b"a" * (BODY_BYTES - 40) + b'"}'
    yield "commas in a text", head + b'"' + b",:[{" * (BODY_BYTES // 4 - 40) + b'"}'
    yield "escapes", head + b'"' + b"\\u0041" * ((BODY_BYTES - 40) // 6) + b'"}'
    yield "quotes", head + b'"' + b"'" * (BODY_BYTES - 40) + b'"}'
    yield "a filter", head + b'"' + b" and ".join([b"status='indexed'"] * 3_000) + b'"}'
    yield "blanks", head + b'"status=1' + b" " * 64_000 + b'"}'
    yield "deep", head + b"[" * (BODY_BYTES // 2 - 40) + b"]" * (BODY_BYTES // 2 - 40) + b"}"
    yield "a long number", head + b"1" * (BODY_BYTES - 40) + b"}"
    yield "no JSON", head + b'"' * (BODY_BYTES - 40)


def fields(declared: RouteSpec) -> list[str]:
    """Return the fields of a route's body that hold other values, and one that there is not."""
    found = declared.body.model_fields if declared.body else {}
    listed = [name for name, field in found.items() if re.search("dict|list", str(field.annotation))]
    return [*(name for name in listed if name not in {"mc", "sort", "at_least"}), "unknown"]


def path_of(declared: RouteSpec) -> str:
    """Return an address of a route."""
    path = declared.path
    for name, value in PLACES.items():
        path = path.replace(name, value)
    return path


WITH_BODIES = [each for each in application.ROUTES if each.body is not None]
JSON = ("Content-Type: application/json", "Accept: application/json, text/event-stream")


@pytest.mark.parametrize(
    ("method", "path", "named"),
    [(each.method, path_of(each), fields(each)) for each in WITH_BODIES] + [("POST", "/mcp", ["params"])],
    ids=[each.handler.__name__ for each in WITH_BODIES] + ["mcp"],
)
async def test_no_body_holds_the_loop(server: Server, method: str, path: str, named: list[str]):
    """The largest bodies of each route, in shapes that cost their reader most, leave everybody else their turn."""
    held: dict[str, float] = {}
    async with watched() as watch:
        for field in named:
            for shape, body in bodies(field):
                watch.start()
                reply = await asyncio.to_thread(ask, server.port, method, path, body, JSON)
                held[f"{field}: {shape}"] = watch.worst_s
                assert not reply.startswith(b"HTTP/1.1 5"), (field, shape, reply[:300])

    assert {shape: seconds for shape, seconds in held.items() if seconds > HELD_MAX_S} == {}


def addresses() -> Iterator[tuple[str, str]]:
    """Yield what stands behind a question mark in long addresses."""
    for unit in ("&", "a=&", "f.topic=a&", "at_least=AAAA&", "back=x&"):
        yield unit, unit * (ADDRESS_BYTES // len(unit))
    for name in ("filter", "sort", "cursor", "at_least", "sql"):
        for unit in ("a,", "%27", "+", "a=1+and+", "("):
            yield f"{name}={unit}", f"{name}=" + unit * (ADDRESS_BYTES // len(unit)) + "x"
    yield "f.NAME", "&".join(f"f.q{number:05d}=a" for number in range(5_000))
    yield "long name", "a" * ADDRESS_BYTES + "=1"


LOOKS = [path_of(each) for each in application.ROUTES if each.method == "GET"]


@pytest.mark.parametrize("path", [*LOOKS, *PAGES])
async def test_no_address_holds_the_loop(server: Server, path: str):
    """Addresses as long as a request's head may be, on each route and page, leave everybody else their turn."""
    held: dict[str, float] = {}
    async with watched() as watch:
        for shape, query in addresses():
            watch.start()
            await asyncio.to_thread(ask, server.port, "GET", f"{path}?{query}")
            held[shape] = watch.worst_s

    assert {shape: seconds for shape, seconds in held.items() if seconds > HELD_MAX_S} == {}


HEADERS = [
    f"{name}: {unit * (ADDRESS_BYTES // len(unit))}"
    for name in ("Accept", "If-None-Match", "Cookie", "Authorization", "Content-Type", "Idempotency-Key", "Origin")
    for unit in ("a", ",", ";", '"a",', "a=b;", "q=1;", " x")
]


@pytest.mark.parametrize("path", ["/v1/collections/tickets/search", "/tickets"])
async def test_no_head_holds_the_loop(server: Server, path: str):
    """Long headers, and as many as fit, leave everybody else their turn."""
    held: dict[str, float] = {}
    async with watched() as watch:
        for header in [*HEADERS, "\r\n".join(f"a{number}:" for number in range(7_000))]:
            watch.start()
            await asyncio.to_thread(ask, server.port, "GET", path, b"", (header,))
            held[header[:30]] = watch.worst_s

    assert {shape: seconds for shape, seconds in held.items() if seconds > HELD_MAX_S} == {}


async def test_a_body_in_the_smallest_pieces_holds_the_loop_for_none_of_them(server: Server):
    """A body that comes in chunks of one byte each, as many as fit into one read of a socket, lets others go first."""
    head = ("Content-Type: application/json", "Transfer-Encoding: chunked")
    pieces = b"1\r\n \r\n" * 150_000 + b"2\r\n{}\r\n0\r\n\r\n"

    def send() -> bytes:
        lines = ["POST /v1/collections/tickets/search HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *head, "", ""]
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            connection.sendall("\r\n".join(lines).encode() + pieces)
            return connection.recv(1 << 16)

    async with watched() as watch:
        reply = await asyncio.to_thread(send)

    assert reply.startswith(b"HTTP/1.1 200")
    assert watch.worst_s <= HELD_MAX_S
