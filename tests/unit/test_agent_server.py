"""The MCP server's edges: faults of ours, a store that is away, notifications of changes.

Method: the official client connected to the server in this process, over toolboxes that fail on purpose.
"""

import asyncio
import subprocess
import sys
from typing import Any

import builders
import pytest
import structlog
from mcp import Client, MCPError
from polling import eventually

from facetline.facets import errors
from facetline.facets.agents import server, stdio
from facetline.facets.agents.backends import LocalToolBackend
from facetline.facets.agents.toolbox import Toolbox
from facetline.facets.backend import LOCAL
from facetline.facets.definitions import Definitions


class Source:
    """Knows one collection; everything else raises a given error."""

    rights = None
    scope = None

    def __init__(self, fails: Exception | None = None) -> None:
        self.fails = fails
        self.names = ["tickets"]
        self.looks = 0
        self.away = 0

    async def definitions(self) -> Definitions:
        """Return the collections; fail `away` times before."""
        self.looks += 1
        if self.away:
            self.away -= 1
            raise errors.StoreUnavailable
        return Definitions(builders.definition(name, llm_readable=True) for name in self.names)

    async def search(self, fields: Any) -> Any:
        """Fail."""
        del fields
        raise self.fails or AssertionError

    async def collections(self) -> Any:
        """Fail."""
        raise self.fails or AssertionError


def client_of(source: Any) -> Client:
    """A client of a server over the source."""

    async def toolbox_of(context: Any) -> Toolbox:
        del context
        return Toolbox(source)

    return Client(server.server(toolbox_of))


async def test_internal_errors_are_reported_without_their_message():
    """An unexpected failure is an error result without the library's words; the log says where, and not what."""
    with structlog.testing.capture_logs() as logs:
        async with client_of(Source(ValueError("secret body"))) as client:
            result = await client.call_tool("search_tickets", {"topic": "billing"})

    assert result.is_error
    assert "secret" not in str(result)
    [entry] = logs
    assert (entry["event"], entry["tool"], entry["error"]) == ("agent_tool_failed", "search_tickets", "ValueError")
    assert "secret" not in str(entry)


async def test_temporary_errors_advise_a_retry():
    """While a view is behind a call says what is wrong and that it may be tried again."""
    async with client_of(Source(errors.NotCaughtUp("the view is behind."))) as client:
        result = await client.call_tool("search_tickets", {})
        with pytest.raises(MCPError, match="the view is behind"):
            await client.read_resource("facetline://collections")

    assert result.content[0].text == "Error: the view is behind. Retry later."


async def test_tools_that_cannot_be_listed_say_why():
    """While the collections cannot be read, listing tools is an error that says why."""
    source = Source()
    source.away = 1
    async with client_of(source) as client:
        with pytest.raises(MCPError, match="store of record cannot be reached"):
            await client.list_tools()


class Building:
    """A node whose views are there at the third look."""

    def __init__(self) -> None:
        self.looks = 0

    async def collections(self, caller: Any, *, agents: bool) -> list[str]:
        """Fail at first."""
        self.looks += 1
        if self.looks < 3:
            raise errors.NotCaughtUp
        return ["tickets"]


async def test_views_that_are_being_built_are_waited_for():
    """Who asks while a view is being built gets his answer when it is there, or the error when his patience ends."""
    node: Any = Building()

    with pytest.raises(errors.NotCaughtUp):
        await LocalToolBackend(node, LOCAL, patience_s=0).collections()
    assert await LocalToolBackend(node, LOCAL, patience_s=30).collections() == ["tickets"]
    assert node.looks == 3


async def test_a_change_is_notified_once():
    """The watch tells each change of the tools once, none at its start, and outlasts a source that fails."""
    source, changes = Source(), asyncio.Queue[None]()

    async def changed() -> None:
        changes.put_nowait(None)

    watching = asyncio.create_task(stdio.watch(Toolbox(source), changed, 0.001))
    for name in ("one", "two", "three"):
        looks = source.looks
        await eventually(lambda looks=looks: source.looks > looks + 2, what="the watch looks, and sees nothing new")
        assert changes.empty()
        source.away = 3
        source.names.append(name)
        async with asyncio.timeout(10):
            await changes.get()
    watching.cancel()

    assert source.away == 0


def test_the_client_imports_little():
    """Importing the Python client and its tools loads no server, no database and no model."""
    heavy = ("duckdb", "fastapi", "starlette", "mcp", "sqlalchemy", "aiokafka", "onnxruntime", "litellm")
    program = (
        f"import sys, facetline; facetline.Client, facetline.Tools; print([n for n in {heavy} if n in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
