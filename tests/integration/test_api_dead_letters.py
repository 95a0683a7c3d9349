"""Dead letters over HTTP and the client: listed newest first, shown within bounds, sent again, discarded."""

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import agent_site
import httpx
import judged
import listening
import pytest

from facetline.facets import errors
from facetline.facets.api.application import application
from facetline.facets.client.client import AsyncClient
from facetline.storage.log import apply, dead_letters
from facetline.storage.log.events import Raw
from facetline.streams.replay import dead_letters as letters
from facetline.streams.serve.node import PipelineNode

LATE = "support/late"


class Side:
    """A served node with dead letters, and clients of it."""

    def __init__(self, node: PipelineNode, client: AsyncClient, http: httpx.AsyncClient) -> None:
        self.node, self.client, self.http = node, client, http

    async def reject(self, raw: Raw | None = None, reason: str = "not_json", event_id: str = "e") -> int:
        """Make a dead letter and return its id."""
        event = judged.refused(reason=reason, event_id=event_id)
        await self.node.pipeline.store.write(apply.append, "local", [replace(event, raw=raw or event.raw)])
        found = await self.node.pipeline.store.read(dead_letters.listed, before=dead_letters.ID_MAX, limit=1)
        return found[0].id

    async def refuse(self) -> int:
        """Write the state of a document that is not there, and return the letter's id."""
        with pytest.raises(errors.InvalidEvent):
            await self.client.write(LATE, state={"title": "x"})
        return (await anext(self.client.dead_letters()))["id"]


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Side]:
    """A served node of its own."""
    async with (
        agent_site.agent_node(tmp_path) as (_, node),
        listening.listening(application(node, loopback=True)) as server,
        AsyncClient(server.url) as client,
        httpx.AsyncClient(base_url=server.url) as http,
    ):
        yield Side(node, client, http)


async def test_letters_are_paged_newest_first(side: Side):
    """Pages follow one another without overlap, with the numbers of all; a reason narrows them."""
    ids = [await side.reject(event_id=f"{n}", reason="too_large" if n == 1 else "not_json") for n in range(5)]

    first = (await side.http.get("/v1/dead-letters?limit=2")).json()
    second = (await side.http.get(f"/v1/dead-letters?limit=2&cursor={first['next_cursor']}")).json()
    third = (await side.http.get(f"/v1/dead-letters?limit=2&cursor={second['next_cursor']}")).json()
    large = [each["id"] async for each in side.client.dead_letters(reason="too_large")]

    pages = [[each["id"] for each in page["dead_letters"]] for page in (first, second, third)]
    assert pages == [ids[:2:-1], ids[2:0:-1], ids[:1]]
    assert third["next_cursor"] is None
    assert first["counts"] == {"not_json": 4, "too_large": 1}
    assert large == [ids[1]]


@pytest.mark.parametrize(
    ("address", "status", "kind"),
    [
        ("?reason=not_jsn", 400, "invalid-query"),
        ("?cursor=x", 400, "cursor-mismatch"),
        ("?cursor=-1", 400, "cursor-mismatch"),
        ("?cursor=%D9%A3", 400, "cursor-mismatch"),
        ("?cursor=9999999999", 200, None),
        ("?cursor=99999999999", 400, "cursor-mismatch"),
        ("?limit=0", 400, "invalid-parameter"),
        ("?limit=1000", 400, "invalid-parameter"),
        ("?state=open", 400, "unknown-parameter"),
        ("/7", 404, "dead-letter-not-found"),
        ("/0", 404, "dead-letter-not-found"),
        ("/2147483648", 404, "dead-letter-not-found"),
        ("/99999999999999999999", 404, "dead-letter-not-found"),
        ("/%D9%A3", 404, "dead-letter-not-found"),
        ("/x%1B%5B31m", 404, "dead-letter-not-found"),
    ],
)
async def test_what_is_not_there_or_not_taken_is_a_problem(side: Side, address: str, status: int, kind: str | None):
    """Each has its kind, and nothing of it acts."""
    reply = await side.http.get(f"/v1/dead-letters{address}")

    assert reply.status_code == status, reply.text
    assert kind is None or reply.json()["type"] == f"/v1/problems/{kind}"
    assert "\x1b" not in json.dumps(reply.json(), ensure_ascii=False)


@pytest.mark.parametrize("action", ["redrive", "discard"])
async def test_actions_on_what_is_not_there(side: Side, action: str):
    """404, and the client's NotFound."""
    reply = await side.http.post(f"/v1/dead-letters/7/{action}")

    assert (reply.status_code, reply.json()["type"]) == (404, "/v1/problems/dead-letter-not-found")
    with pytest.raises(errors.PermanentError, match="no dead letter '7'"):
        await getattr(side.client, action)(7)


async def test_record_is_shown_as_text_or_base64_within_bounds(side: Side):
    """UTF-8 is text, anything else base64 with its encoding named; what is longer than the bound is cut and says so."""
    value = ("é" * (letters.VALUE_BYTES_MAX // 2) + "é" * 5).encode()[1:]
    headers = (("ce_id", "grün".encode()), ("raw", b"\xff\x00"), *(("n", b"") for _ in range(letters.HEADERS_MAX)))
    binary = await side.reject(Raw(b"\xff" * 9_000, value, headers, 0))
    text = await side.reject(Raw(b"support/\xc3\xa9", b"a" + value[1:], (), 0), event_id="t")
    tombstone = await side.reject(Raw(None, None, (), 0), event_id="n")

    found = [await side.client.dead_letter(each) for each in (binary, text, tombstone)]

    assert found[0]["key"]["encoding"] == "base64"
    assert base64.b64decode(found[0]["key"]["data"]) == b"\xff" * letters.PART_BYTES_MAX
    assert (found[0]["key"]["bytes"], found[0]["key"]["truncated"]) == (9_000, True)
    assert found[0]["value"]["encoding"] == "base64"
    assert found[0]["headers"][0] == {
        "name": "ce_id",
        "encoding": "utf-8",
        "data": "grün",
        "bytes": 5,
        "truncated": False,
    }
    assert found[0]["headers"][1]["encoding"] == "base64"
    assert (len(found[0]["headers"]), found[0]["headers_total"]) == (letters.HEADERS_MAX, letters.HEADERS_MAX + 2)
    assert found[1]["key"]["data"] == "support/é"
    assert found[1]["value"]["encoding"] == "utf-8"
    assert found[1]["value"]["data"] == "a" + "é" * ((letters.VALUE_BYTES_MAX - 1) // 2)
    assert (found[2]["key"], found[2]["value"]) == (None, None)


async def test_letter_is_sent_again_once_its_cause_is_gone(side: Side):
    """While the document is missing it is rejected again; once it is there it is superseded or applied, and closed."""
    letter = await side.refuse()
    rejected = await side.client.redrive(letter)
    still = await side.client.dead_letter(letter)
    await side.client.write(LATE, body="Thank you")
    ended = await side.client.redrive(letter)
    closed = await side.http.post(f"/v1/dead-letters/{letter}/redrive")

    assert (rejected["outcome"], rejected["reason"]) == ("rejected", "no_document")
    assert (still["state"], still["attempts"], still["handled_by"]) == ("open", 2, "local")
    assert ended["id"] == letter
    assert [each async for each in side.client.dead_letters()] == []
    assert (closed.status_code, closed.json()["type"]) == (409, "/v1/problems/conflict")
    assert (await side.client.dead_letter(letter))["state"] in closed.json()["detail"]


async def test_discarded_letter_is_neither_sent_nor_counted(side: Side):
    """It is closed with who did it and when; discarding it again changes nothing, sending it is a conflict."""
    letter = await side.refuse()
    discarded = await side.client.discard(letter)
    again = await side.client.discard(letter)

    assert (discarded["state"], discarded["handled_by"]) == ("discarded", "local")
    assert again["handled_by"] == "local"
    assert (await side.http.get("/v1/dead-letters")).json() == {"dead_letters": [], "counts": {}, "next_cursor": None}
    with pytest.raises(errors.Conflict, match="closed \\(discarded\\)"):
        await side.client.redrive(letter)


async def test_what_cannot_be_sent_or_discarded_is_a_conflict(side: Side):
    """A letter that stands for lost records can only be discarded; one that was closed stays as it was closed."""
    lost = await side.reject(reason="log_truncated")
    with pytest.raises(errors.Conflict, match=r"log_truncated.*discard it"):
        await side.client.redrive(lost)
    letter = await side.refuse()
    await side.client.write(LATE, body="Thank you")
    await side.client.redrive(letter)
    state: Any = (await side.client.dead_letter(letter))["state"]

    with pytest.raises(errors.Conflict, match=f"closed \\({state}\\)"):
        await side.client.discard(letter)
