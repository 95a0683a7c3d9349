"""The Python client against a real server: what it sends is understood, what it promises is kept.

Method: a local node with answers from a file behind a real uvicorn, shared by the file's tests; the blocking client
runs in a thread beside it. A proxy of the test's own loses replies.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import agent_site
import listening
import pytest
import pytest_asyncio

from facetline.facets import errors
from facetline.facets.agents import http
from facetline.facets.agents.sdk import AsyncTools, Tools
from facetline.facets.agents.tools import EXTRAS
from facetline.facets.api.application import application
from facetline.facets.client.client import AsyncClient, Client

pytestmark = pytest.mark.asyncio(loop_scope="module")
T = TypeVar("T")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a served node without tokens."""
    async with (
        agent_site.agent_node(tmp_path_factory.mktemp("client")) as (_, node),
        listening.listening(application(node, loopback=True, parts=[http.part()])) as server,
    ):
        yield server.url


@pytest_asyncio.fixture(loop_scope="module")
async def client(url: str) -> AsyncIterator[AsyncClient]:
    """A client."""
    async with AsyncClient(url) as opened:
        yield opened


async def blocking(url: str, work: Callable[[Client], T]) -> T:
    """Do something with the blocking client, in a thread."""

    def run() -> T:
        with Client(url) as client:
            return work(client)

    return await asyncio.to_thread(run)


async def test_a_few_lines_are_enough(url: str):
    """Write, search, read and delete with the blocking client, each seeing what was done before."""

    def story(client: Client) -> tuple[Any, ...]:
        written = client.write("support/new", body="Thank you", state={"title": "Thanks"})
        found = client.search("support", {"topic": "praise"}, min_confidence=0.8, counts="topic")
        read = client.get("support/new")
        client.delete("support/new")
        return written, found, read, client.search("support", {"topic": ["praise", "__missing__"]})

    written, found, read, after = await blocking(url, story)

    assert written["status"] == "indexed"
    assert (found["keys"], found["total"]) == (["new"], 1)
    assert (read["body"], read["state"]["title"]) == ("Thank you", "Thanks")
    assert after["total"] == 0


async def test_writes_are_read_without_waiting(client: AsyncClient):
    """Each search knows the write before it, twenty times over, though views follow the store a little later."""
    for number in range(20):
        await client.write("support/flip", state={"priority": number}, body="no answer", wait="applied")
        found = await client.search("support", filter=f"doc_key = 'flip' AND state_priority = {number}")
        assert found["total"] == 1
    await client.delete("support/flip")


async def test_rows_go_over_all_pages(client: AsyncClient, url: str):
    """Rows come page after page, every document once, from both clients alike."""
    await asyncio.gather(*(client.write(f"@rows/notes/m{n:03}", body="x", wait="applied") for n in range(201)))
    chosen = {"scope": "rows"}

    rows = [hit["uri"] async for hit in client.rows("notes", **chosen)]
    same = await blocking(url, lambda sync: [hit["uri"] for hit in sync.rows("notes", **chosen)])

    assert rows == same == [f"@rows/notes/m{n:03}" for n in range(201)]


@pytest.mark.parametrize("limit", [0, 1, 3, 20, 500])
async def test_rows_end_at_their_limit(client: AsyncClient, url: str, limit: int):
    """`limit` is how many rows are wanted, not how long a page is."""
    rows = [hit["uri"] async for hit in client.rows("codes", limit=limit)]
    same = await blocking(url, lambda sync: [hit["uri"] for hit in sync.rows("codes", limit=limit)])

    assert rows == same == [f"codes/c{number}" for number in sorted(range(20), key=str)][:limit]


async def test_booleans_and_levels_are_chosen_by_name(client: AsyncClient, url: str):
    """A yes-or-no question and a scale are asked for as a choice is, and counted so."""
    found = await client.search("support", {"urgent": True, "severity": ["annoying"]}, counts="urgent")
    same = await client.search("support", filter="urgent AND severity_level = 'annoying'")
    sync = await blocking(url, lambda sync: sync.search("support", {"urgent": "yes", "severity": "annoying"}))

    assert found["total"] == same["total"] == sync["total"] > 0
    assert [each["selected"] for each in found["facets"][0]["buckets"]] == [True, False]


@pytest.mark.parametrize(
    ("work", "kind", "said"),
    [
        (lambda c: c.search("suport"), errors.UnknownCollection, "support"),
        (lambda c: c.search("support", {"topc": "bug"}), errors.UnknownFacet, "did you mean 'topic'?"),
        (lambda c: c.search("support", {"topic": "biling"}), errors.UnknownValue, "did you mean 'billing'?"),
        (lambda c: c.search("support", filter="topic in ("), errors.InvalidFilter, "line 1, column"),
        (lambda c: c.search("support", cursor="x"), errors.InvalidCursor, "cursor"),
        (lambda c: c.search("support", limt=3), errors.InvalidQuery, "limt"),
        (lambda c: c.get("support/none"), errors.NotFound, "support/none"),
        (lambda c: c.write("nowhere/x", body="x"), errors.InvalidEvent, "support/*"),
        (lambda c: c.write("support/x", state={"titel": "x"}), errors.InvalidEvent, "titel"),
        (lambda c: c.job("none"), errors.NotFound, "none"),
        (lambda c: c.event("none"), errors.NotFound, "none"),
        (lambda c: c.sql("DELETE FROM support"), errors.SqlRefused, ""),
    ],
)
async def test_a_refusal_raises_the_error_of_the_server(
    client: AsyncClient, work: Any, kind: type[errors.PipelineError], said: str
):
    """What the server refuses is the error that it was there, with its message."""
    with pytest.raises(kind) as raised:
        await work(client)

    assert said in raised.value.message


@pytest.mark.parametrize("key", ["a b", "ü/50%", "%2F", "q?x=1&y#z", "@x", "a+b", "ﬃ", "c:d;e", "~"])
async def test_uris_arrive_as_they_are(client: AsyncClient, key: str):
    """A uri of any letters is written, read, found and deleted under exactly that name."""
    uri = f"@alice/notes/{key}"
    await client.write(uri, body="x", wait="applied")
    read = await client.get(uri)
    gone = await client.delete(uri)

    assert read["uri"] == gone["uri"] == uri
    with pytest.raises(errors.NotFound):
        await client.get(uri)


async def test_a_reindex_is_waited_for_or_not(client: AsyncClient):
    """A job is returned when it has ended, or at once; a dry run starts none; its documents can be listed."""
    planned = await client.reindex("codes", force=True, dry_run=True)
    before = len(await client.jobs())
    done = await client.reindex("codes", force=True)
    started = await client.reindex("notes", force=True, wait=False)
    items = [item["uri"] async for item in client.job_items(done["id"], status="reindexed")]
    canceled = await client.cancel(started["id"])

    assert planned["documents"] == 20
    assert done["state"] == "succeeded"
    assert len(items) == 20
    assert canceled["state"] in {"canceled", "running", "succeeded"}
    assert len(await client.jobs()) == before + 2


async def test_collections_and_sql_are_there(client: AsyncClient):
    """Collections come with questions and counts, statements with their rows."""
    names = [each["name"] for each in await client.collections()]
    one = await client.collection("codes")
    counted = await client.sql("SELECT count(*) FROM support WHERE topic = $topic", {"topic": "bug"})

    assert set(names) == {"support", "notes", "codes", "payroll"}
    assert one["counts"]["indexed"] == 20
    assert counted["rows"] == [[4]]


async def test_an_event_is_followed(client: AsyncClient):
    """A write that was not waited for can be looked up by its id."""
    await client.write("@alice/notes/later", body="x", event_id="later-1", wait="none")
    event = await client.event("later-1")

    assert (event["uri"], event["outcome"]) == ("@alice/notes/later", "applied")


class Losing:
    """Passes connections on, but closes each of the first `lost` instead of handing its reply back."""

    def __init__(self, port: int, lost: int) -> None:
        self.lost = lost
        self._port = port

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on."""
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)

        async def up() -> None:
            while data := await reader.read(65_536):
                there_writer.write(data)
            there_writer.close()

        passing = asyncio.create_task(up())
        while data := await there_reader.read(65_536):
            if self.lost > 0:
                self.lost -= 1
                break
            writer.write(data)
        writer.close()
        there_writer.close()
        passing.cancel()


async def test_a_lost_reply_is_no_second_write(url: str, client: AsyncClient):
    """A write whose reply is lost is sent again with the same key: it was done, and it was done once."""
    before = (await client.write("support/once", body="one"))["version"]
    losing = Losing(int(url.rsplit(":", 1)[1]), lost=2)
    server = await asyncio.start_server(losing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with AsyncClient(f"http://127.0.0.1:{port}") as through:
        written = await through.write("support/once", body="two", wait="applied")
    server.close()

    read = await client.get("support/once")
    assert losing.lost == 0
    assert read["body"] == "two"
    assert written["revision"] == read["revision"] == before + 1
    await client.delete("support/once")


async def test_no_server_is_an_error_of_its_own(url: str):
    """Where nobody listens the client says so with the address, after its time."""
    del url
    async with AsyncClient("http://127.0.0.1:9", timeout_s=0.3) as nobody:
        with pytest.raises(errors.ServerUnavailable, match=r"127\.0\.0\.1:9 does not answer"):
            await nobody.collections()


async def test_a_wrong_cursor_costs_no_memory(url: str):
    """A cursor of the caller's that does not fit is an error, and the client still reads what it has written."""
    async with AsyncClient(url) as client:
        await client.write("@alice/notes/kept", body="x", wait="applied")
        before = client.memory.for_search("support")
        with pytest.raises(errors.InvalidCursor):
            await client.search("support", cursor="x")
        kept = client.memory.for_search("support")
    with Client(url) as sync:
        await asyncio.to_thread(sync.search, "support")
        with pytest.raises(errors.InvalidCursor):
            await asyncio.to_thread(sync.search, "support", cursor="x")

    assert kept == before != []
    assert sync.memory.for_search("support") != []


async def test_another_store_is_no_dead_end(url: str, client: AsyncClient, tmp_path: Path):
    """A client whose server now has another store forgets what it knew of the first, and goes on."""
    written = await client.write("@alice/notes/first", body="x", wait="applied")
    async with (
        agent_site.agent_node(tmp_path, []) as (_, node),
        listening.listening(application(node, loopback=True)) as server,
        AsyncClient(server.url) as other,
    ):
        other.memory.written("@alice/notes/first", written)
        found = await other.search("support")
        with pytest.raises(errors.InvalidCursor):
            await other.search("support", at_least=[written["token"]])

    assert found["total"] == 0


async def test_tools_run_over_either_client(url: str, client: AsyncClient):
    """Tools over a server say what tools over its node say, from blocking and asynchronous code, by JSON or not."""
    tools = AsyncTools(client, allowed=EXTRAS)
    given = {"topic": "billing", "min_confidence": 0.8, "limit": 2, "cursor": None}
    awaited = await tools.run_tool("search_support", given)
    blocked = await blocking(
        url,
        lambda sync: Tools(sync).run_tool("search_support", '{"topic": "billing", "min_confidence": 0.8, "limit": 2}'),
    )
    function = next(each for each in await tools.functions() if each.__name__ == "search_support")
    called = await function("billing", min_confidence=0.8, limit=2)

    assert awaited == blocked == called
    assert "12 total" in awaited
    assert (await tools.run_tool("search_support", "{")).startswith("Error: the arguments are not JSON: ")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("list_collections", {}),
        ("list_facets", {"collection": "support", "facet": "topic"}),
        ("get_document", {"uri": "support/b1"}),
        ("get_document", {"uri": "payroll/p1"}),
        ("query_sql", {"sql": "SELECT count(*) FROM support"}),
        ("query_sql", {"sql": "SELECT count(*) FROM payroll"}),
        ("write_document", {"uri": "@alice/notes/tool", "body": "x"}),
        ("delete_document", {"uri": "@alice/notes/tool"}),
        ("reindex", {"collection": "codes", "dry_run": True}),
    ],
    ids=lambda each: str(each)[:40],
)
async def test_every_tool_runs_over_a_server(client: AsyncClient, name: str, given: dict[str, Any]):
    """Each tool works through the API, and what agents may not see is not there either."""
    reply = await AsyncTools(client, allowed=EXTRAS).call(name, given)

    assert reply.is_error == ("payroll" in str(given))


async def test_functions_of_the_blocking_client_are_plain(url: str):
    """A framework gets plain functions that return text, and an agent that calls wrongly is told what is right."""

    def run(sync: Client) -> tuple[str, list[str]]:
        tools = Tools(sync)
        function = next(each for each in tools.functions() if each.__name__ == "search_support")
        return function(topic="biling"), [each["function"]["name"] for each in tools.schemas("openai")]

    said, names = await blocking(url, run)

    assert "did you mean 'billing'?" in said
    assert names == [
        *("list_collections", "list_facets", "get_document", "search_codes", "search_notes"),
        "search_support",
    ]
