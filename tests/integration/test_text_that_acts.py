"""Text from outside neither acts nor hides where agents and people at the page see it, nor in problems of the API.

Method: a node with hostile documents, asked by every tool, the pages and wrong requests; Unicode's tables say what
acts.
"""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote

import agent_site
import httpx
import listening
import pytest
import pytest_asyncio
from hostile import ACTS, READABLE, UNSEEN, harmful
from mcp import Client, MCPError
from polling import eventually

from facetline.facets import display
from facetline.facets.agents import rendering, server
from facetline.facets.agents.backends import LocalToolBackend
from facetline.facets.agents.replies import ToolReply
from facetline.facets.agents.toolbox import Toolbox
from facetline.facets.agents.tools import EXTRAS
from facetline.facets.api.application import application
from facetline.facets.backend import LOCAL
from facetline.facets.explorer import routes as explorer
from facetline.streams.pipeline import Pipeline

pytestmark = pytest.mark.asyncio(loop_scope="module")
URI = f"support/h{UNSEEN}"
BODY = f"{READABLE}\n{ACTS}\nthe end"


@dataclass
class Hostile:
    """A node over hostile documents: its tools and its address."""

    box: Toolbox
    url: str
    pipeline: Pipeline


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hostile(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hostile]:
    """The node, behind a server with the page."""
    rows: list[agent_site.Row] = [("support/b0", BODY, {"title": ACTS})]
    async with agent_site.agent_node(tmp_path_factory.mktemp("hostile"), rows) as (pipeline, node):
        box = Toolbox(LocalToolBackend(node, LOCAL), EXTRAS)
        async with listening.listening(application(node, loopback=True, parts=[explorer.part])) as served:
            await pipeline.write(URI, body=BODY, state={"title": ACTS}, wait="answered", timeout_s=30)
            found = Hostile(box, served.url, pipeline)
            await eventually(lambda: _known(found), deadline_s=30, what="both are known")
            yield found


async def _known(hostile: Hostile) -> bool:
    reply = await hostile.box.run("search_support", {"filter": "doc_status <> 'pending'"})
    return not reply.is_error and reply.content["total"] == 2


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("list_collections", {}),
    ("list_facets", {"collection": "support"}),
    ("list_facets", {"collection": ACTS}),
    ("list_facets", {"collection": "support", "facet": ACTS}),
    ("search_support", {}),
    ("search_support", {"topic": ACTS}),
    ("search_support", {"filter": f"topic = '{ACTS}'"}),
    ("search_support", {ACTS: 1}),
    ("get_document", {"uri": "support/b0"}),
    ("get_document", {"uri": URI}),
    ("get_document", {"uri": f"support/none{UNSEEN}"}),
    ("get_document", {"uri": ACTS}),
    ("query_sql", {"sql": 'SELECT doc_uri, state_title, [state_title] AS "a\x1b[31m\u202e" FROM support'}),
    ("query_sql", {"sql": f"SELECT {ACTS}"}),
    ("write_document", {"uri": f"support/w{UNSEEN}", "body": ACTS}),
    ("write_document", {"uri": f"support/w{UNSEEN}", "state": ACTS}),
    ("delete_document", {"uri": f"support/w{UNSEEN}"}),
    ("reindex", {"collection": ACTS}),
    ("reindex", {"job": ACTS}),
    (ACTS, {}),
]


@pytest.mark.parametrize(("name", "given"), CALLS, ids=lambda each: ascii(each)[:30])
async def test_no_tool_shows_what_acts_or_hides(hostile: Hostile, name: str, given: dict[str, Any]):
    """No character of a document, of an argument or of an error acts or hides, in the text and in the content."""
    reply = await hostile.box.run(name, given)

    assert harmful(reply.text) == []
    assert harmful(json.dumps(reply.content, ensure_ascii=False)) == []


async def test_a_shown_uri_is_found_again(hostile: Hostile):
    """The uri that a hit shows is what get_document, and as a resource, takes; the exact one is taken as well."""
    found = await run(hostile, "search_support", filter="doc_key <> 'b0'")
    [hit] = found.content["hits"]
    by_shown = await run(hostile, "get_document", uri=hit["uri"])
    by_exact = await run(hostile, "get_document", uri=URI)

    async def toolbox_of(context: Any) -> Toolbox:
        del context
        return hostile.box

    async with Client(server.server(toolbox_of)) as client:
        resource = await client.read_resource(f"facetline://document/{quote(hit['uri'], safe='/')}")
        with pytest.raises(MCPError) as refused:
            await client.read_resource(f"facetline://{quote(ACTS, safe='')}")

    assert found.text.startswith(hit["uri"])
    assert hit["uri"] == display.handle(URI)
    assert by_shown == by_exact
    assert harmful(resource.contents[0].text) == []
    assert harmful(str(refused.value)) == []


async def test_a_document_of_escapes_comes_in_parts(hostile: Hostile):
    """A body of tags alone, ten times as long when shown, keeps every part within its bound and loses nothing."""
    body = "".join(chr(0xE0020 + number % 90) for number in range(12_000))
    await hostile.pipeline.write("support/tags", body=body, wait="applied", timeout_s=30)
    shown, offset = "", 0
    while offset is not None:
        reply = await run(hostile, "get_document", uri="support/tags", offset=offset)
        assert len(reply.text.encode()) <= rendering.RESULT_BYTES_MAX
        shown += reply.content["body"]
        offset = reply.content["next_offset"]

    assert shown == display.block(body)
    await run(hostile, "delete_document", uri="support/tags")


async def test_readable_text_is_read(hostile: Hostile):
    """Emoji, right-to-left text and joiners reach the agent as they are."""
    reply = await run(hostile, "get_document", uri="support/b0")

    assert READABLE in reply.text
    assert READABLE in reply.content["body"]


async def run(hostile: Hostile, name: str, **given: Any) -> ToolReply:
    """Run a tool that must work."""
    reply = await hostile.box.run(name, given)
    assert not reply.is_error, reply.text
    return reply


PAGES = [
    "/",
    "/support",
    f"/support?filter={quote(f'topic = {ACTS!s}')}",
    f"/support?f.topic={quote(ACTS)}",
    f"/support/{quote(URI)}",
    "/support/support/b0",
    f"/support/{quote(f'support/none{UNSEEN}')}",
    f"/none{quote(UNSEEN)}",
    "/-/failed/support",
    f"/-/sql/support?filter={quote(f'state_title = {UNSEEN!r}')}",
    "/-/reindex/support",
    f"/-/job/{quote(ACTS)}",
]


class Seen(HTMLParser):
    """What a reader of a page sees: its texts and the attributes that are shown; not what forms send back."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        self.texts.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what is shown of an element."""
        del tag
        self.texts += [value or "" for name, value in attrs if name in {"title", "aria-label", "placeholder", "href"}]


@pytest.mark.parametrize("address", PAGES, ids=lambda each: each[:30])
async def test_no_page_shows_what_acts_or_hides(hostile: Hostile, address: str):
    """No text of a page, title or address in it holds a character that acts or hides."""
    async with httpx.AsyncClient(trust_env=False) as web:
        reply = await web.get(f"{hostile.url}{address}", headers={"accept": "text/html"})
    seen = Seen()
    seen.feed(reply.text)

    assert reply.status_code < 500
    assert harmful("".join(seen.texts)) == []


async def test_a_page_isolates_text_from_outside(hostile: Hostile):
    """Right-to-left text of a document turns nothing else around: it stands in an element of its own direction."""
    async with httpx.AsyncClient(trust_env=False) as web:
        page = (await web.get(f"{hostile.url}/support")).text
        document = (await web.get(f"{hostile.url}/support/support/b0")).text

    assert re.search(r"<bdi>[^<]*owned", page)
    assert re.search(r'<div class="text" dir="auto">[^<]*owned', document)
    assert READABLE in document


async def test_a_form_sends_back_exactly_what_was_sent(hostile: Hostile):
    """The filter in its field is what was asked, character for character, though it is shown harmless elsewhere."""
    asked = f"state_title = 'x{UNSEEN}'"
    async with httpx.AsyncClient(trust_env=False) as web:
        page = (await web.get(f"{hostile.url}/support", params={"filter": asked})).text

    assert f'value="state_title = &#39;x{UNSEEN}&#39;"' in page


WRONG = [
    ("GET", f"/v1/documents/{quote(f'support/none{UNSEEN}')}"),
    ("GET", f"/v1/documents/{quote(ACTS)}"),
    ("GET", f"/v1/collections/{quote(UNSEEN)}"),
    ("GET", f"/v1/collections/support/search?f.topic={quote(ACTS)}"),
    ("GET", f"/v1/collections/support/search?filter={quote(ACTS)}"),
    ("GET", f"/v1/collections/support/search?{quote(ACTS)}=1"),
    ("GET", f"/v1/jobs/{quote(ACTS)}"),
    ("POST", f"/v1/collections/support/search?x{quote(UNSEEN)}=1"),
]


@pytest.mark.parametrize(("method", "address"), WRONG, ids=lambda each: each[:30])
async def test_no_problem_repeats_what_acts(hostile: Hostile, method: str, address: str):
    """A problem's text repeats what was sent only as it is shown, so that curl on a terminal is safe."""
    async with httpx.AsyncClient(trust_env=False) as web:
        reply = await web.request(method, f"{hostile.url}{address}")

    assert reply.status_code in {400, 404, 415, 422}
    assert harmful(reply.text) == []
