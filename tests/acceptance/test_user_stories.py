"""The user stories, as their users would go through them: curl, kcat, the command and an agent's client, against a real
`facetline serve`.

One server and a hundred documents for all of them: billing 37, bug 12, feature 20, praise 0, other 28, and 3 whose
model says nothing. Story 5 is told in full in test_mcp.py, story 6 (a browser) in test_browser.py.
"""

import asyncio
import itertools
import json
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import kafka_topics
import missing
import pytest
import runtimes
import strict_schemas
import support_evaluator
from commands import Place
from folder_evaluator import Script
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from polling import eventually
from runtimes import Site
from serving import ServeProcess, serve_process

from facetline.streams.wire import json_schemas
from facetline.streams.wire.codec import Message

OPTIONS = ("billing", "bug", "feature", "praise", "other")
COUNTS = dict(zip(OPTIONS, (37, 12, 20, 0, 28), strict=True))
UNANSWERED = 3
PATIENCE_S = 90.0
SEARCH = "/v1/collections/support/search"
pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Support:
    """The served collection, and the test's side of its model."""

    place: Place
    server: ServeProcess
    script: Script

    def get(self, path: str, **parameters: Any) -> Any:
        """Return a reply's JSON."""
        return httpx.get(self.server.url + path, params=parameters or None, timeout=30).raise_for_status().json()

    def curl(self, *words: str) -> tuple[int, dict[str, str], Any]:
        """Run curl as the story has it; return status, headers and JSON."""
        if shutil.which("curl") is None:
            missing.skip_or_fail("curl is not installed")
        done = subprocess.run(["curl", "-si", *words], capture_output=True, text=True, timeout=60, check=True)
        head, _, body = done.stdout.replace("\r\n", "\n").partition("\n\n")
        lines = head.splitlines()
        return int(lines[0].split()[1]), dict(line.lower().split(": ", 1) for line in lines[1:]), json.loads(body)

    def put(self, key: str, body: str, query: str = "wait=answered&timeout=30s") -> tuple[int, dict[str, str], Any]:
        """Write a document with curl."""
        address = f"{self.server.url}/v1/documents/support/{key}?{query}"
        return self.curl("-X", "PUT", address, "-H", "content-type: application/json", "-d", json.dumps({"body": body}))


def define(folder: Path) -> Script:
    """Write the configuration of the stories."""
    (folder / "stories.py").write_text(support_evaluator.MODULE)
    (folder / "facetline.toml").write_text('collections = "stories:collections"\n')
    script = Script(folder / "script")
    script.on("silent")
    return script


def bodies() -> Iterator[tuple[str, str]]:
    """Return keys and bodies of the hundred documents."""
    topics = [topic for topic, count in COUNTS.items() for _ in range(count)]
    for number, topic in enumerate(topics):
        yield f"d{number:03}", f"{topic} sev{number % 5}{' urgent' if number % 3 == 0 else ''} #{number}"
    for number in range(UNANSWERED):
        yield f"u{number}", f"fail=silent #{number}"


@pytest.fixture(scope="module")
def support(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Support]:
    """The hundred documents, answered and served."""
    folder = tmp_path_factory.mktemp("stories")
    script = define(folder)
    place = Place(folder)
    lines = "".join(json.dumps({"key": key, "body": body}) + "\n" for key, body in bodies())
    (folder / "hundred.ndjson").write_text(lines)
    assert place.run("import", "hundred.ndjson", "--collection", "support").code == 0
    with serve_process(place) as server:
        yield Support(place, server, script)


def test_a_write_can_be_read_back_with_its_facets(support: Support):
    """A write comes back with its facets; the same again is a new write that asks no model."""
    status, _, first = support.put("story1", "billing sev2 I was charged twice")
    calls = len(support.script.calls())
    again, _, second = support.put("story1", "billing sev2 I was charged twice")
    support.curl("-X", "DELETE", f"{support.server.url}/v1/documents/support/story1")

    assert (status, again) == (200, 200)
    assert first["facets"]["topic"]["choice"] == "billing"
    assert 0 <= first["facets"]["topic"]["confidence"] <= 1
    assert first["indexed_as"] >= 1
    assert second["revision"] > first["revision"]
    assert second["facets"] == first["facets"]
    assert len(support.script.calls()) == calls


def test_a_write_returns_pending_when_the_model_stalls(support: Support):
    """The reply is 202 and pending when its time is over, and the answer comes when the model does."""
    support.script.on("stall")
    status, headers, reply = support.put("story1b", "bug hold=stall", "wait=answered&timeout=500ms")
    support.script.off("stall")
    settled = waited(support.server, "/v1/documents/support/story1b", lambda shown: shown["status"] != "pending")
    support.curl("-X", "DELETE", f"{support.server.url}/v1/documents/support/story1b")

    assert (status, reply["status"], "retry-after" in headers) == (202, "pending", True)
    assert settled["facets"]["topic"]["choice"] == "bug"


def test_counts_of_a_facet_ignore_its_own_filter(support: Support):
    """Choosing a value leaves its siblings' counts, zeros are shown, and what is missing says so."""
    reply = caught_up(support, {"f.topic": "billing", "counts": "topic,urgent"})
    both = support.get(SEARCH, **{"f.topic": ["billing", "bug"]})

    topic, urgent = reply["facets"]
    assert reply["total"] == 37
    assert {bucket["value"]: bucket["count"] for bucket in topic["buckets"]} == COUNTS
    assert (topic["missing"]["count"], topic["missing"]["failed"]) == (UNANSWERED, UNANSWERED)
    assert sum(bucket["count"] for bucket in urgent["buckets"]) + urgent["missing"]["count"] == 37
    assert both["total"] == 49


def caught_up(support: Support, parameters: dict[str, Any]) -> Any:
    """Search when the documents of other stories are gone."""
    waited(support.server, f"{SEARCH}?limit=1", lambda reply: reply["total"] == 100)
    return support.get(SEARCH, **parameters)


@contextmanager
def arriving(support: Support) -> Iterator[None]:
    """Write documents, one after another, while the body runs; they are gone in the end."""
    stop = threading.Event()

    def arrive() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            support.server.request("PUT", f"/v1/documents/support/x{number % 20:03}", body=f"billing new {number}")

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(arrive)
        try:
            yield
        finally:
            stop.set()
    writing.result()
    for number in range(20):
        support.server.request("DELETE", f"/v1/documents/support/x{number:03}")


def test_pages_yield_each_document_once_while_others_arrive(support: Support):
    """Following next_url to the end yields every uri once, also while documents are written."""
    seen: list[str] = []
    with arriving(support):
        address: str | None = f"{SEARCH}?limit=7"
        while address is not None:
            page = support.get(address)
            seen += page["keys"]
            address = page["next_url"]

    assert max(Counter(seen).values()) == 1
    assert {key for key, _ in bodies()} <= set(seen)


def test_filter_errors_name_the_place_and_the_way_out(support: Support):
    """A typo is named with what was meant, a broken filter with its place; NOT is an exact complement."""
    typo = support.place.run("search", "support", "--filter", "topic = 'biling'")
    broken = httpx.get(support.server.url + SEARCH, params={"filter": "topic in ("})
    filters = ["topic = 'billing'", "severity >= 2", "urgent = true", "topic = 'bug' AND severity < 3", "topic IS NULL"]
    counts = {}
    everything = caught_up(support, {"limit": 1})["total"]
    for each in filters:
        counts[each] = sum(support.get(SEARCH, filter=text, limit=1)["total"] for text in (each, f"NOT ({each})"))

    assert typo.code == 2
    assert "did you mean 'billing'?" in typo.err
    assert broken.status_code == 400
    assert broken.headers["content-type"] == "application/problem+json"
    problem = broken.json()
    assert problem["type"].endswith("/filter-syntax")
    assert (problem["line"], problem["column"]) == (1, 11)
    assert counts == dict.fromkeys(filters, everything)


async def test_an_agent_searches_through_mcp(support: Support):
    """An agent's client finds the tools in one order, searches by an enum, and is told what a typo could have been."""
    async with Client(streamable_http_client(f"{support.server.url}/mcp")) as client:
        names = [[tool.name for tool in (await client.list_tools()).tools] for _ in range(2)]
        search = next(tool for tool in (await client.list_tools()).tools if tool.name == "search_support")
        found = await client.call_tool("search_support", {"topic": "billing", "min_confidence": 0.8})
        typo = await client.call_tool("search_support", {"topic": "biling"})

    assert names[0] == names[1]
    assert search.input_schema["properties"]["topic"]["enum"] == list(OPTIONS)
    assert found.structured_content["total"] == 37
    assert "37 total" in found.content[0].text
    assert "topic=billing" in found.content[0].text
    assert typo.is_error
    assert all(option in typo.content[0].text for option in OPTIONS)


def test_tool_schemas_are_valid_in_strict_mode(support: Support):
    """What the command prints for OpenAI keeps the rules of strict mode."""
    printed = support.place.run("tools", "support", "--format", "openai")

    assert printed.code == 0
    assert "search_support" in [each["function"]["name"] for each in printed.json]
    assert [strict_schemas.problems(each) for each in printed.json] == [[]] * len(printed.json)


@pytest.mark.kafka
@pytest.mark.postgres
def test_kcat_writes_and_reads_on_kafka(tmp_path: Path, request: pytest.FixtureRequest):
    """What kcat produces is classified and comes out as kcat reads it; a tombstone takes it away again, everywhere."""
    with runtimes.made("kafka", tmp_path, request.getfixturevalue) as site:
        define(site.folder)
        applied = site.place.run("collections", "apply")
        with site.worker(), serve_process(site.place) as server:
            produce(site, "support/d-2", '{"body":"bug App crashes on start"}')
            document = waited(server, "/v1/documents/support/d-2", lambda reply: reply.get("status") == "indexed")
            found = waited(server, f"{SEARCH}?f.topic=bug", lambda reply: reply.get("total") == 1)
            [record] = waited_records(site, 1)
            produce(site, "support/d-2", None)
            gone = waited(server, "/v1/documents/support/d-2", lambda reply: reply.get("status") == 404)
            emptied = waited(server, f"{SEARCH}?f.topic=bug", lambda reply: reply.get("total") == 0)
            last = waited_records(site, 2)[-1]

    assert applied.code == 0
    assert document["facets"]["topic"]["choice"] == "bug"
    assert found["keys"] == ["d-2"]
    assert record["key"] == "support/d-2"
    headers = dict(zip(record["headers"][::2], record["headers"][1::2], strict=True))
    assert headers["ce_type"] == "facetline.document.facets.v1"
    jsonschema.validate(json.loads(record["payload"]), json_schemas.schemas()["facetline.document.facets.v1"])
    assert gone["type"].endswith("/document-not-found")
    assert emptied["hits"] == []
    assert (last["key"], last["payload"]) == ("support/d-2", None)


def kafka_of(site: Site) -> tuple[str, str]:
    """Return the broker's address and what the topics begin with."""
    return site.place.settings["FACETLINE_KAFKA__BOOTSTRAP_SERVERS"], site.place.settings[
        "FACETLINE_KAFKA__TOPIC_PREFIX"
    ]


def produce(site: Site, key: str, value: str | None) -> None:
    """Produce with kcat, as a person would; without kcat with a client that partitions alike."""
    bootstrap, prefix = kafka_of(site)
    if shutil.which("kcat") is None:
        message = Message(key.encode(), None if value is None else value.encode())
        asyncio.run(kafka_topics.fill(site.settings.kafka, [message]))
        return
    words = ["kcat", "-P", "-b", bootstrap, "-t", f"{prefix}.documents.v1", "-K|", "-Z"]
    line = f"{key}|{value or ''}\n"
    subprocess.run([*words, "-X", "topic.partitioner=murmur2_random"], input=line, text=True, timeout=60, check=True)


def waited_records(site: Site, count: int) -> list[dict[str, Any]]:
    """Return the facets topic as kcat prints it, when it has so many records; `record` prints the same."""
    bootstrap, prefix = kafka_of(site)
    topic = f"{prefix}.facets.v1"

    def look() -> list[dict[str, Any]] | None:
        if shutil.which("kcat") is None:
            found = site.place.run("record", "--topic", topic).lines
        else:
            words = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-e", "-q", "-J"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
            found = [json.loads(line) for line in done.stdout.splitlines()]
        about = [each for each in found if is_settled(each)]
        return about if len(about) >= count else None

    return asyncio.run(eventually(look, deadline_s=PATIENCE_S, every_s=0.5, what=f"{count} records on {topic}"))


def is_settled(record: dict[str, Any]) -> bool:
    """Say whether a record has answers, or is a tombstone; a write that clears them is published as well."""
    return record["payload"] is None or json.loads(record["payload"]).get("facets") is not None


def waited(server: ServeProcess, address: str, condition: Callable[[Any], bool]) -> Any:
    """Ask until the reply is as wanted."""

    def look() -> Any:
        reply = httpx.get(server.url + address, timeout=30).json()
        return reply if condition(reply) else None

    return asyncio.run(eventually(look, deadline_s=PATIENCE_S, what=f"{address} is as wanted"))
