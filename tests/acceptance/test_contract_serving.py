"""Two nodes over one store, as behind a balancer, on both runtimes: the same answers, and for a token never older ones.

Method: both nodes in this process; with Kafka a worker process applies and answers, locally the first node does.
"""

from collections.abc import AsyncIterator

import pytest
from polling import eventually
from runtimes import ANSWERED_S, Case, Site
from serving import node_on, writer

from facetline.facets import errors
from facetline.facets.backend import LOCAL, Freshness, ReindexRequest
from facetline.facets.search.selection import Selection
from facetline.streams.serve.node import PipelineNode


class Pair:
    """Two nodes, and a scope of the test's own."""

    def __init__(self, case: Case, one: PipelineNode, other: PipelineNode) -> None:
        self.case, self.one, self.other = case, one, other
        self.caller = writer(case.scope)
        self.selection = Selection(collection="tickets", scope=case.scope)

    async def write(self, node: PipelineNode, key: str, text: str, wait: str = "answered") -> dict[str, object]:
        """Write a document at one of the nodes."""
        body = self.case.body(text)
        return await node.write(
            self.caller,
            self.case.uri(key),
            body=body,
            state=None,
            event_id=None,
            wait=wait,  # type: ignore[arg-type]
            timeout_s=ANSWERED_S,
        )


@pytest.fixture
async def pair(working: Site) -> AsyncIterator[Pair]:
    """Two nodes over one store."""
    async with (
        node_on(working, classify=not working.is_kafka) as (pipeline, one),
        node_on(working, classify=False) as (_, other),
    ):
        yield Pair(Case(working, pipeline), one, other)


async def test_a_write_at_one_node_is_found_at_the_other(pair: Pair):
    """A token of either node holds at the other: the write is there, and what a search showed is not taken back."""
    written = await pair.write(pair.one, "t1", "billing please")

    there = await pair.other.search(pair.caller, pair.selection, Freshness((str(written["token"]),), 30_000))
    back = await pair.one.search(pair.caller, pair.selection, Freshness((there["as_of"]["token"],), 30_000))

    assert [hit["facets"]["topic"]["choice"] for hit in there["hits"]] == ["billing"]
    assert back["hits"] == there["hits"]
    assert back["as_of"] == there["as_of"]


async def test_what_was_only_sent_is_found_by_its_token(pair: Pair):
    """A write that nobody waited for is in the store and the view of the other node once its token was waited for."""
    sent = await pair.write(pair.one, "t1", "billing please", "none")
    freshness = Freshness((str(sent["token"]),), 30_000)

    found = await pair.other.get(pair.caller, pair.case.uri("t1"), freshness)
    there = await pair.other.search(pair.caller, pair.selection, freshness)

    assert found["body"] == pair.case.body("billing please")
    assert there["total"] == 1


async def test_an_event_is_told_by_every_node(pair: Pair):
    """What became of a write is told by the node that did not take it, to the credential that wrote it."""
    sent = await pair.one.write(
        pair.caller,
        pair.case.uri("t1"),
        body=pair.case.body("outage"),
        state=None,
        event_id="e-1",
        wait="applied",
        timeout_s=ANSWERED_S,
    )

    told = await pair.other.event(pair.caller, "e-1")

    assert (told["outcome"], told["revision"]) == ("applied", sent["revision"])


async def test_a_job_asked_for_at_a_node_is_done_by_whoever_makes_calls(pair: Pair):
    """A reindex that a node starts is carried out, and both nodes tell its end."""
    await pair.write(pair.one, "t1", "billing please")
    calls = pair.case.calls("t1")

    job = await pair.other.reindex(LOCAL, ReindexRequest("tickets", force=True, scope=pair.case.scope))

    async def over() -> bool:
        return (await pair.one.job(LOCAL, job["id"]))["state"] == "succeeded"

    await eventually(over, deadline_s=ANSWERED_S, what="the job is over")
    assert pair.case.calls("t1") == calls + 1
    assert (await pair.other.job(LOCAL, job["id"]))["reindexed"] == [pair.case.uri("t1")]


async def test_a_node_refuses_what_it_can_judge_itself(pair: Pair):
    """A write of no collection is refused before it is sent, in words that name only what the caller sees."""
    with pytest.raises(errors.InvalidEvent) as refused:
        await pair.one.write(
            pair.caller,
            f"@{pair.case.scope}/nowhere/t1",
            body="x",
            state=None,
            event_id=None,
            wait="applied",
            timeout_s=5.0,
        )

    assert refused.value.reason == "unknown_collection"
    assert "tickets" in refused.value.message
    assert "notes" not in refused.value.message


async def test_nodes_of_both_runtimes_are_ready(pair: Pair):
    """A node whose views are built is ready, whoever applies its writes."""
    for node in (pair.one, pair.other):

        async def ready(node: PipelineNode = node) -> bool:
            levels = {check.name: check.level for check in await node.ready()}
            return levels["store"] == levels["view"] == levels["definitions"] == "ok"

        await eventually(ready, deadline_s=ANSWERED_S, what="the node is ready")
