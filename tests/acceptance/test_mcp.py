"""User story 5: an agent searches, through `facetline mcp` as its client starts it, and by the printed schemas.

Method: the official client library starts the real command over a folder with answered documents, once over the data
itself and once through a server; both eras of the protocol.
"""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import agent_site
import commands
import listening
import pytest
import pytest_asyncio
import strict_schemas
from commands import COMMAND, Place
from mcp import Client, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from polling import eventually

from facetline.facets.api.application import application
from facetline.streams import wiring
from facetline.streams.serve.node import open_node

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A folder with the documents that agents search."""
    folder = tmp_path_factory.mktemp("stdio")
    async with agent_site.filled(folder, agent_site.documents()):
        pass
    return Place(folder)


@asynccontextmanager
async def started(place: Place, *words: str, mode: str = "auto", **options: Any) -> AsyncIterator[Client]:
    """Start `facetline mcp` as a client does, and connect to it."""
    command, *first = [*COMMAND, "mcp", *words]
    given = StdioServerParameters(command=command, args=first, cwd=place.folder, env=commands.environment({}))
    with (place.folder / "mcp.log").open("a") as log:
        async with Client(stdio_client(given, errlog=log), mode=mode, **options) as client:
            yield client


async def story(client: Client) -> None:
    """What the story asks for."""
    first = [tool.name for tool in (await client.list_tools()).tools]
    second = [tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools]
    search = next(tool for tool in (await client.list_tools()).tools if tool.name == "search_support")
    found = await client.call_tool("search_support", {"topic": "billing", "min_confidence": 0.8})
    typo = await client.call_tool("search_support", {"topic": "biling"})
    document = await client.read_resource("facetline://document/support/b0")

    assert first == second
    assert search.input_schema["properties"]["topic"]["enum"] == list(agent_site.TOPICS)
    assert "support/b0  topic=billing 0.90" in found.content[0].text
    assert "12 total" in found.content[0].text
    assert found.structured_content["total"] == 12
    assert found.structured_content["hits"][0]["uri"] == "support/b0"
    assert typo.is_error
    assert "billing, bug, feature, praise, other" in typo.content[0].text
    assert "I was charged twice, 0" in document.contents[0].text


async def test_an_agent_searches_through_a_server(place: Place):
    """With an address the command asks the server there, and its answers are the same."""
    settings = agent_site.settings_of(place.folder)
    async with (
        wiring.open_pipeline(settings, writes=False) as pipeline,
        open_node(pipeline) as node,
        listening.listening(application(node, loopback=True)) as server,
        started(place, "--url", server.url) as client,
    ):
        await story(client)


async def test_an_agent_writes_only_when_allowed(place: Place):
    """The tools that the command was told to allow are there, no others; what they wrote is answered."""
    async with started(place, "--allow", "write,delete") as client:
        changing = {tool.name for tool in (await client.list_tools()).tools if not tool.annotations.read_only_hint}
        refused = await client.call_tool("reindex", {"collection": "support"})
        await client.call_tool("write_document", {"uri": "support/new", "body": "Thank you"})

        async def praised() -> Any:
            return (await client.call_tool("search_support", {"topic": "praise"})).structured_content["total"]

        assert await eventually(praised, deadline_s=20, what="the new document is answered") == 1
        await client.call_tool("delete_document", {"uri": "support/new"})

    assert changing == {"write_document", "delete_document"}
    assert refused.is_error


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_agent_searches_the_data_itself(tmp_path: Path, mode: str):
    """Without a server the command opens the data itself; when another process changes a question, the client is told.

    Then it lists the new options, and an old one is refused with them.
    """
    async with agent_site.filled(tmp_path, agent_site.documents()):
        pass
    place, told = Place(tmp_path), asyncio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    config = tmp_path / "facetline.toml"
    async with started(place, mode=mode, message_handler=hear) as client:
        await story(client)
        async with listening_for_tools(client, told, mode):
            config.write_text(config.read_text().replace('praise = "About praise"', 'thanks = "About thanks"'))
            applied = await asyncio.to_thread(place.run, "collections", "apply")
            await asyncio.wait_for(told.wait(), 30)
        listed = (await client.list_tools(cache_mode="refresh")).tools
        old = await client.call_tool("search_support", {"topic": "praise"})

    search = next(tool for tool in listed if tool.name == "search_support")
    assert applied.code == 0
    assert "thanks" in search.input_schema["properties"]["topic"]["enum"]
    assert old.is_error
    assert "thanks" in old.content[0].text


@asynccontextmanager
async def listening_for_tools(client: Client, told: asyncio.Event, mode: str) -> AsyncIterator[None]:
    """Set `told` when the tools have changed, where the protocol wants to be asked for that."""
    if mode == "legacy":
        yield
        return
    async with client.listen(tools_list_changed=True) as subscription:

        async def wait() -> None:
            await anext(aiter(subscription))
            told.set()

        waiting = asyncio.create_task(wait())
        yield
        await waiting


async def test_printed_schemas_are_strict(place: Place):
    """`facetline tools support --format openai` prints tools that OpenAI's strict mode takes."""
    printed = place.run("tools", "support", "--format", "openai").json

    assert [strict_schemas.problems(tool) for tool in printed] == [[]] * len(printed)
    assert [tool["function"]["name"] for tool in printed][-1] == "search_support"


def piped(place: Place, messages: list[dict[str, Any]], *words: str) -> tuple[int, list[Any], str]:
    """Pipe messages into `facetline mcp`, end its input at once, and return its code, replies and errors."""
    ended = place.run("mcp", *words, stdin="".join(json.dumps(each) + "\n" for each in messages))
    return ended.code, ended.lines, ended.err


START = {
    "jsonrpc": "2.0",
    "id": "start",
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def calling(number: int | str, name: str, **given: Any) -> dict[str, Any]:
    """A request that calls a tool."""
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": given}}


async def test_every_request_is_answered_before_the_end(place: Place):
    """Requests piped in with the end of input right behind them all get their replies, and the command ends with 0."""
    calls = [calling(number, "search_support", topic="billing", limit=1) for number in range(30)]
    last = {"jsonrpc": "2.0", "id": "last", "method": "tools/list"}
    code, replies, err = await asyncio.to_thread(piped, place, [START, READY, *calls, last])

    assert code == 0, err
    assert sorted(str(each["id"]) for each in replies) == sorted(["start", "last", *map(str, range(30))])
    found = [each["result"]["content"][0]["text"] for each in replies if isinstance(each["id"], int)]
    assert all("13 total" in text for text in found)


async def test_what_needs_no_reply_holds_no_end_up(place: Place):
    """A cancelled request, a line that is no message, an unknown method and a refused call change nothing."""
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5, "reason": "enough"}}
    nothing = {"jsonrpc": "2.0", "id": 9, "method": "nothing/here"}
    lines = [START, READY, calling(5, "list_collections"), cancel, {"no": "message"}, nothing, calling(6, "none")]
    code, replies, err = await asyncio.to_thread(piped, place, lines)

    by_id = {each.get("id"): each for each in replies}
    assert code == 0, err
    assert "error" in by_id[9]
    assert by_id[6]["result"]["isError"]


async def test_nothing_but_the_protocol_is_printed(place: Place):
    """Each line of standard output is a message of the protocol, also with verbose logs; a stop signal is heeded.

    The signal comes while the command waits for its client's next word.
    """
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_collections", "arguments": {}}}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    process = place.start("mcp", settings={"FACETLINE_LOG_LEVEL": "debug"}, stdin=subprocess.PIPE)
    process.stdin.write("".join(json.dumps(each) + "\n" for each in (request, ready, call)))
    process.stdin.flush()
    said = [json.loads(process.stdout.readline())["id"] for _ in range(2)]
    process.terminate()
    code = process.wait(60)
    rest, err = process.stdout.read(), process.stderr.read()
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()

    assert said == [1, 2]
    assert rest == ""
    assert code == 130, err
