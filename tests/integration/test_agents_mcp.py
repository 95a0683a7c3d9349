"""The MCP server over streamable HTTP, tried with the official client library against a real uvicorn.

Method: a node with answers from a file and tokens, one server for the file's tests; most run once with the version of
the protocol that has no sessions and once with the handshake before it.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agent_site
import httpx
import httpx2
import listening
import pytest
import pytest_asyncio
from commands import Place
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from polling import eventually

from facetline.facets.agents import lazy_mcp
from facetline.facets.agents.tools import EXTRAS
from facetline.facets.api.application import application
from facetline.facets.explorer import routes as explorer
from facetline.storage import credentials, definitions
from facetline.streams.pipeline import Pipeline
from facetline.streams.serve.node import PipelineNode

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOKENS = {
    "all": ("read,write,admin,sql", None),
    "alice": ("read,write", "alice"),
    "writer": ("write", None),
    "short": ("read", None),
}


@dataclass
class Served:
    """A served node."""

    pipeline: Pipeline
    node: PipelineNode
    url: str
    tokens: dict[str, str]
    routes: list[tuple[str, str, int]]

    @asynccontextmanager
    async def client(self, who: str = "all", mode: str = "auto") -> AsyncIterator[Client]:
        """Connect the official client as somebody."""
        headers = {"Authorization": f"Bearer {self.tokens[who]}"}
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False) as web,
            Client(streamable_http_client(f"{self.url}/mcp", http_client=web), mode=mode) as client,
        ):
            yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A node with tokens behind a server, all tools allowed."""
    async with agent_site.agent_node(tmp_path_factory.mktemp("mcp")) as (pipeline, node):
        tokens = {name: credentials.new_token() for name in TOKENS}
        for name, (rights, scope) in TOKENS.items():
            given = {"name": name, "rights": rights.split(","), "scope": scope}
            await pipeline.store.write(lambda tx, n=name, g=given: credentials.create(tx, n, tokens[n], **g))
        await eventually(node.needs_tokens, deadline_s=10, what="the node knows its tokens")
        routes: list[tuple[str, str, int]] = []
        app = application(
            node,
            loopback=True,
            observe=lambda method, route, status, _seconds: routes.append((method, route, status)),
            parts=[lazy_mcp.part(allowed=EXTRAS), explorer.part],
        )
        async with listening.listening(app) as server:
            yield Served(pipeline, node, server.url, tokens, routes)


MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])


def text_of(result: Any) -> str:
    """The one text block of a result."""
    [block] = result.content
    return str(block.text)


@MODES
async def test_tools_are_listed_in_one_order(served: Served, mode: str):
    """Two lists are equal, and a search's argument is an enum of its question's options."""
    async with served.client(mode=mode) as client:
        first = (await client.list_tools()).tools
        second = (await client.list_tools(cache_mode="refresh")).tools

    assert [each.model_dump() for each in first] == [each.model_dump() for each in second]
    search = next(each for each in first if each.name == "search_support")
    assert search.input_schema["properties"]["topic"]["enum"] == list(agent_site.TOPICS)
    assert search.annotations is not None
    assert search.annotations.read_only_hint is True
    assert search.annotations.open_world_hint is False


@MODES
async def test_a_search_is_in_text_and_in_content(served: Served, mode: str):
    """Hits, answers and total are in the text block and in the structured content."""
    async with served.client(mode=mode) as client:
        result = await client.call_tool("search_support", {"topic": "billing", "min_confidence": 0.8})

    assert not result.is_error
    assert "topic=billing 0.90" in text_of(result)
    assert "12 total" in text_of(result)
    assert result.structured_content["total"] == 12
    assert len(result.structured_content["hits"]) == 10


@MODES
async def test_a_typo_is_an_error_result(served: Served, mode: str):
    """A wrong option is no protocol error but a result that lists the options, which a model can mend."""
    async with served.client(mode=mode) as client:
        result = await client.call_tool("search_support", {"topic": "biling"})

    assert result.is_error
    assert "did you mean 'billing'?" in text_of(result)
    assert "billing, bug, feature, praise, other" in text_of(result)
    assert result.structured_content["allowed"] == list(agent_site.TOPICS)


@MODES
async def test_resources_are_read(served: Served, mode: str):
    """The collections and every document that agents may see are resources; what they may not see is none."""
    async with served.client(mode=mode) as client:
        listed = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
        collections = await client.read_resource("facetline://collections")
        document = await client.read_resource("facetline://document/support/b0")
        with pytest.raises(MCPError):
            await client.read_resource("facetline://document/payroll/p1")
        with pytest.raises(MCPError):
            await client.read_resource("facetline://nothing")

    assert [str(each.uri) for each in listed] == ["facetline://collections"]
    assert [each.uri_template for each in templates] == ["facetline://document/{+uri}"]
    names = [each["name"] for each in json.loads(collections.contents[0].text)["collections"]]
    assert sorted(names) == ["codes", "notes", "support"]
    assert "I was charged twice, 0" in document.contents[0].text


async def test_a_scoped_token_sees_its_scope(served: Served):
    """A token with a scope has the tools of scoped collections alone, and finds its own documents alone."""
    async with served.client("alice") as client:
        names = [each.name for each in (await client.list_tools()).tools]
        found = await client.call_tool("search_notes", {})
        others = await client.call_tool("get_document", {"uri": "@bob/notes/z1"})
        named = await client.call_tool("search_notes", {"scope": "bob"})

    assert "search_notes" in names
    assert not {"search_support", "query_sql", "reindex"} & set(names)
    assert [hit["uri"] for hit in found.structured_content["hits"]] == ["@alice/notes/a1", "@alice/notes/a2"]
    assert others.is_error
    assert named.is_error


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer nonsense"}, 401),
        ({"Authorization": "Bearer {writer}"}, 403),
        ({"Authorization": "Bearer {all}", "Origin": "https://elsewhere.example"}, 403),
    ],
    ids=str,
)
async def test_who_may_not_is_refused(served: Served, headers: dict[str, str], status: int):
    """Without a valid token, without the right to read, or from another site's page nothing is answered."""
    filled = {name: value.format(**served.tokens) for name, value in headers.items()}
    accept = {"Accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(trust_env=False) as web:
        reply = await web.post(
            f"{served.url}/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
            headers={**accept, **filled},
        )

    assert reply.status_code == status
    assert reply.headers["content-type"] == "application/problem+json"


async def test_a_wrong_token_is_said_before_all(served: Served, tmp_path: Path):
    """`facetline mcp` with a token that is not valid ends at once, and says so on standard error alone."""
    place = Place(tmp_path, {"FACETLINE_TOKEN": "flt_wrong", "FACETLINE_URL": served.url})
    ended = await asyncio.to_thread(place.run, "mcp")

    assert (ended.code, ended.out) == (1, "")
    assert "the token is not valid" in ended.err
    assert "flt_wrong" not in ended.err


async def test_a_revoked_token_ends(served: Served):
    """A connection whose token is revoked gets no answer any more."""
    async with served.client("short") as client:
        await client.call_tool("list_collections", {})
        await served.pipeline.store.write(credentials.revoke, "short")

        async def refused() -> bool:
            try:
                await client.call_tool("list_collections", {})
            except MCPError:
                return True
            return False

        assert await eventually(refused, deadline_s=10, what="the token is refused")


async def test_new_questions_show_at_once(served: Served):
    """When a collection's options change, the next list has them, and an old value is refused with the new ones."""
    codes = await served.pipeline.definition("codes")
    question = codes.questions["code"].model_copy(update={"options": {"red": "Red", "green": "Green"}})
    changed = codes.model_copy(update={"questions": {"code": question}, "fingerprint": "another"})

    async with served.client() as client:
        before = await client.call_tool("search_codes", {"code": "code-01"})
        await served.pipeline.store.write(definitions.activate, [changed])

        async def listed() -> Any:
            tools = (await client.list_tools(cache_mode="refresh")).tools
            search = next(each for each in tools if each.name == "search_codes")
            return search.input_schema["properties"]["code"].get("enum")

        assert await eventually(listed, deadline_s=10, what="the new options are listed") == ["red", "green"]
        after = await client.call_tool("search_codes", {"code": "code-01"})

    assert not before.is_error
    assert after.is_error
    assert "allowed: red, green" in text_of(after)


async def test_many_ask_at_once(served: Served):
    """Twelve clients at once each get their own answer."""

    async def ask(number: int) -> Any:
        async with served.client() as client:
            return await client.call_tool("get_document", {"uri": f"support/b{number}"})

    results = await asyncio.gather(*(ask(number) for number in range(12)))

    assert [each.structured_content["uri"] for each in results] == [f"support/b{number}" for number in range(12)]


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_no_stream_stays_open(served: Served, method: str, path: str):
    """Who asks for a stream of the server's own messages, or to end a session, is told at once that there is none."""
    headers = {"Authorization": f"Bearer {served.tokens['all']}", "Accept": "text/event-stream"}
    async with httpx.AsyncClient(trust_env=False) as web:
        reply = await web.request(method, f"{served.url}{path}", headers=headers)

    assert reply.status_code == 405
    assert reply.headers["allow"] == "POST"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
@pytest.mark.parametrize(
    ("accept", "events"),
    [
        (None, False),
        ("*/*", False),
        ("application/json", False),
        ("application/*;q=0.8", False),
        ("text/event-stream, application/json", False),
        ("APPLICATION/JSON", False),
        ("text/html", False),
        ("", False),
        ("text/event-stream", True),
        ("text/event-stream;q=0.9, text/plain", True),
    ],
    ids=str,
)
async def test_whatever_a_client_accepts_it_is_served(served: Served, path: str, accept: str | None, *, events: bool):
    """A request is answered with and without the slash, whatever it accepts: as events only where JSON is not taken."""
    headers = {"Authorization": f"Bearer {served.tokens['all']}"} | ({} if accept is None else {"Accept": accept})
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "list_collections", "arguments": {}}}
    start = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    async with httpx.AsyncClient(trust_env=False) as web:
        if accept is None:
            del web.headers["accept"]
        replies = [await web.post(f"{served.url}{path}", json=each, headers=headers) for each in (start, call)]

    assert [each.status_code for each in replies] == [200, 200]
    kind = "text/event-stream" if events else "application/json"
    assert [each.headers["content-type"].partition(";")[0] for each in replies] == [kind, kind]
    text = replies[1].text.partition("data: ")[2] if events else replies[1].text
    found = json.loads(text)
    assert found["id"] == 7
    assert "support" in [each["name"] for each in found["result"]["structuredContent"]["collections"]]


@pytest.mark.parametrize(
    ("given", "total"),
    [
        ({"topic": "", "limit": "3", "min_confidence": "", "filter": "", "sort": "", "cursor": ""}, None),
        ({"topic": '["billing", "bug"]', "limit": 3.0}, 17),
        ({"topic": ["billing"], "min_confidence": "0.8"}, 12),
        ({"topic": None, "filter": "urgent = true", "limit": None}, None),
    ],
    ids=str,
)
async def test_arguments_are_taken_as_models_spell_them(served: Served, given: dict[str, Any], total: int | None):
    """Empty text, numbers in quotes and lists in text are what they mean, through the official client too."""
    async with served.client() as client:
        result = await client.call_tool("search_support", given)

    assert not result.is_error, text_of(result)
    assert result.structured_content["total"] == (len(agent_site.SUPPORT) if total is None else total)


@pytest.mark.parametrize(
    "content",
    [
        b'{"word": ',
        b'[{"word": 1}]',
        b"\xff\xfe",
        b"",
        b"[" * 10_000,
        b'{"jsonrpc": "2.0", "id": 1, "method": "word/x"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "word", "arguments": "word"}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "\\ud800", "arguments": {}}}',
    ],
    ids=lambda content: str(content)[:60],
)
async def test_what_is_no_message_is_an_error(served: Served, content: bytes):
    """Whatever is sent in place of a message is answered with an error of the protocol, and others go on."""
    headers = {"Authorization": f"Bearer {served.tokens['all']}", "Accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(trust_env=False) as web:
        typed = {**headers, "Content-Type": "application/json"}
        reply = await web.post(f"{served.url}/mcp", content=content, headers=typed)
        untyped = await web.post(
            f"{served.url}/mcp", content=content, headers={**headers, "Content-Type": "text/plain"}
        )

    assert reply.status_code < 500
    assert "error" in reply.json()
    assert untyped.status_code == 415
    assert untyped.headers["content-type"] == "application/problem+json"


async def test_requests_have_a_route(served: Served):
    """Logs and metrics know a request of an agent by its route, also one that is refused."""
    del served.routes[:]
    async with httpx.AsyncClient(trust_env=False) as web:
        await web.post(f"{served.url}/mcp", json={})
    async with served.client() as client:
        await client.call_tool("list_collections", {})

    assert ("POST", "/mcp", 401) in served.routes
    assert ("POST", "/mcp", 200) in served.routes


async def test_slow_senders_hold_nobody_up(served: Served):
    """While more requests than may be answered at once wait for the rest of their bodies, others are answered."""
    address = httpx.URL(served.url)
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: {address.host}:{address.port}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {served.tokens['all']}\r\nContent-Length: 1000\r\n\r\n{{"
    )
    slow = [await asyncio.open_connection(address.host, address.port) for _ in range(20)]
    for _, writer in slow:
        writer.write(head.encode())
        await writer.drain()
    async with served.client() as client:
        result = await client.call_tool("search_support", {"limit": 1})
    for _, writer in slow:
        writer.close()

    assert not result.is_error
