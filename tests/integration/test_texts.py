"""Texts beside their answers, when they are asked for: in hits, rows, SQL and Parquet, within the caller's rights.

Method: one served local pipeline; documents of scopes of their own for each test.
"""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import pytest_asyncio
from serving import local_node, writer

from facetline.facets import errors
from facetline.facets.backend import LOCAL, Freshness
from facetline.facets.search.selection import selection_of
from facetline.storage.log import documents
from facetline.streams.pipeline import Pipeline
from facetline.streams.serve.node import PipelineNode
from facetline.streams.views import exports, texts
from facetline.streams.views.follower import Follower

pytestmark = pytest.mark.asyncio(loop_scope="module")

ODD = 'billing "quoted", \\ and\nlines\t\u2028 \U0001f4b3 \x1b[31m é ' + "x" * 300


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Pipeline, PipelineNode]]:
    """A served local pipeline."""
    folder = tmp_path_factory.mktemp("texts")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        async with local_node(folder) as found:
            yield found


@pytest_asyncio.fixture(loop_scope="module")
async def scope(opened: tuple[Pipeline, PipelineNode]) -> str:
    """A scope of the test's own with three documents that the view has: one plain, one odd, one blank."""
    name = f"s{uuid.uuid4().hex[:8]}"
    for key, body in (("a", "billing plain"), ("b", ODD), ("c", "  ")):
        written = await write(opened[1], name, key, body)
    selection = selection_of({"collection": "tickets", "scope": name})
    await opened[1].search(LOCAL, selection, Freshness((written["token"],), 20_000))
    return name


async def write(node: PipelineNode, scope: str, key: str, body: str) -> dict[str, Any]:
    """Write a document and wait for its answer."""
    given = {"state": None, "event_id": None, "wait": "answered", "timeout_s": 20.0}
    return await node.write(writer(scope), f"@{scope}/tickets/{key}", body=body, **given)


async def seen(opened: tuple[Pipeline, PipelineNode], scope: str, **given: Any) -> dict[str, Any]:
    """Search a scope as it is now."""
    pipeline, node = opened
    selection = selection_of({"collection": "tickets", "scope": scope, **given})
    await pipeline.follower("tickets").caught_up()
    return await node.search(LOCAL, selection)


async def test_hits_carry_their_texts_when_asked(opened: tuple[Pipeline, PipelineNode], scope: str):
    """With `fields=body` each hit has the text that its answers are about, to the letter; without, none."""
    plain = await seen(opened, scope)
    found = await seen(opened, scope, fields="body")

    assert [hit["body"] for hit in found["hits"]] == ["billing plain", ODD, "  "]
    assert all("body" not in hit for hit in plain["hits"])
    assert found["total"] == plain["total"] == 3


async def test_a_text_is_never_beside_answers_to_another(opened: tuple[Pipeline, PipelineNode], scope: str):
    """What was written again since the snapshot has no text in it: a label stands beside what it labels, or none."""
    pipeline, node = opened
    rows = await node.rows(LOCAL, selection_of({"collection": "tickets", "scope": scope, "fields": "body"}))
    await write(node, scope, "a", "outage new words")

    found = [row async for page in rows.pages() for row in page]
    await rows.aclose()

    assert [row["doc_body"] for row in found] == [None, ODD, "  "]
    assert next(row["topic"] for row in found) == "billing"
    assert (await pipeline.get(f"@{scope}/tickets/a"))["body"] == "outage new words"


async def test_pages_with_texts_are_short(opened: tuple[Pipeline, PipelineNode], scope: str):
    """A reply with texts is bounded by the length of its page; the message has the bound."""
    with pytest.raises(errors.InvalidQuery, match="with fields=body it goes from 1 to 50"):
        await seen(opened, scope, fields="body", limit=51)
    with pytest.raises(errors.InvalidQuery, match="fields"):
        await seen(opened, scope, fields="bodies")

    assert len((await seen(opened, scope, fields="body", limit=50))["hits"]) == 3


async def test_a_scope_reads_its_own_texts_alone(opened: tuple[Pipeline, PipelineNode], scope: str):
    """Who sees one scope gets no text of another, by hits or by rows."""
    node = opened[1]
    other = writer(f"{scope}x")

    rows = await node.rows(other, selection_of({"collection": "tickets", "fields": "body"}))
    found = [row async for page in rows.pages() for row in page]
    await rows.aclose()

    assert found == []
    assert (await node.search(other, selection_of({"collection": "tickets", "fields": "body"})))["hits"] == []


async def test_statements_see_texts_when_asked(opened: tuple[Pipeline, PipelineNode], scope: str):
    """SQL has the column `doc_body` with `fields`, beside the answers to it, and no such column without."""
    node = opened[1]
    ask = "SELECT topic, doc_body FROM tickets WHERE doc_scope = $scope ORDER BY doc_uri"
    bounds = {"limit": 10, "timeout_ms": 20_000}

    reply = await node.sql(LOCAL, ask, {"scope": scope}, **bounds, with_texts=True)

    assert reply["rows"] == [["billing", "billing plain"], ["billing", ODD], [None, "  "]]
    with pytest.raises(errors.SqlFailed, match="doc_body"):
        await node.sql(LOCAL, ask, {"scope": scope}, **bounds)


async def test_agents_read_no_texts_of_collections_closed_to_them(opened: tuple[Pipeline, PipelineNode], scope: str):
    """Texts or not, a statement of an agent has the tables of collections that are `llm_readable` alone."""
    with pytest.raises(errors.SqlFailed, match="tickets"):
        await opened[1].sql(
            LOCAL, "SELECT doc_body FROM tickets", {}, limit=10, timeout_ms=20_000, agents=True, with_texts=True
        )


async def test_exports_carry_texts_when_asked(
    opened: tuple[Pipeline, PipelineNode], scope: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A Parquet snapshot has the texts as `doc_body`, the manifest names the column, and nothing else stays behind."""
    monkeypatch.setattr(texts, "ROWS_AT_ONCE", 2)
    store = opened[0].store
    follower = Follower(store, "tickets", exports=[tmp_path])
    done = await exports.export(exports.followed(store, [follower]), tmp_path, store)
    await follower.close()

    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT doc_body FROM '{done.folder}/tickets.parquet' WHERE doc_scope = '{scope}' ORDER BY doc_uri"
        ).fetchall()
        rows = connection.execute(f"SELECT count(*) FROM '{done.folder}/tickets.parquet'").fetchall()
    assert found == [("billing plain",), (ODD,), ("  ",)]
    assert rows == [(done.manifest["collections"]["tickets"]["rows"],)]
    assert done.manifest["collections"]["tickets"]["columns"]["doc_body"] == "VARCHAR"
    assert sorted(path.name for path in done.folder.iterdir()) == [
        "answers.parquet",
        "manifest.json",
        "tickets.parquet",
    ]


async def test_texts_come_in_order_once_each(opened: tuple[Pipeline, PipelineNode], scope: str):
    """Reading texts by pages of two gives each once, of the named collections alone."""
    store = opened[0].store
    found: list[tuple[str, str, int, str]] = []
    after = ""
    while page := await store.read(documents.bodies_behind, ["tickets"], after, 2):
        found += page
        after = page[-1][1]

    uris = [uri for _, uri, _, _ in found]
    assert uris == sorted(set(uris))
    assert {f"@{scope}/tickets/{key}" for key in "abc"} <= set(uris)
    assert await store.read(documents.bodies_behind, ["absent"], "", 2) == []
