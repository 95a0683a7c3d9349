"""Fifty readers and a writer at full speed: no error, no reply of two moments, no model.

Method: one served local pipeline. Both bodies that the writer writes were answered before, so that the memo answers
them from then on: whatever a model is asked while readers read, they have asked. FACETLINE_LARGE=1: a minute instead
of seconds.
"""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from folder_evaluator import Script
from polling import eventually
from serving import local_node, reader, writer

from facetline.facets import tokens
from facetline.facets.backend import LOCAL, Caller
from facetline.facets.search.selection import Selection, selection_of
from facetline.streams.serve.node import PipelineNode

READERS = 50
RUN_S = 60.0 if os.environ.get("FACETLINE_LARGE") else 3.0
DOCUMENTS = 40
WRITES_AT_ONCE = 4
SCOPES = ("alice", "bob")
BODIES = ("billing", "outage")
NEW: dict[str, Any] = {"state": None, "event_id": None, "timeout_s": 60.0}

pytestmark = pytest.mark.timeout(RUN_S + 240)


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[PipelineNode, Script]]:
    """A node with documents of two scopes that are answered, and the evaluator's record of its calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        async with local_node(tmp_path) as (_pipeline, node):
            for scope, body in itertools.product(SCOPES, BODIES):
                for number in range(DOCUMENTS if body == BODIES[-1] else 1):
                    uri = f"@{scope}/tickets/t{number:03}"
                    # The first of each body is waited for, so that the memo has its answer before the next.
                    wait = "applied" if number else "answered"
                    await node.write(writer(scope), uri, body=body, wait=wait, **NEW)

            async def answered() -> bool:
                found = await node.search(LOCAL, selection_of({"collection": "tickets"}))
                return found["total"] == len(SCOPES) * DOCUMENTS and not found["as_of"]["pending"]

            await eventually(answered, deadline_s=60.0)
            yield node, Script(tmp_path / "script")


async def test_fifty_readers_and_a_writer(served: tuple[PipelineNode, Script]):
    """Every reply is of one moment, none goes back, and no model is asked."""
    node, script = served
    calls = len(script.calls())
    ends = time.monotonic() + RUN_S

    async with asyncio.TaskGroup() as group:
        readers = [group.create_task(_read(node, number, ends)) for number in range(READERS)]
        writers = [group.create_task(_write(node, number, ends)) for number in range(WRITES_AT_ONCE)]

    replies = [task.result() for task in readers]
    assert min(replies) > 0
    assert sum(task.result() for task in writers) > 2 * WRITES_AT_ONCE
    assert len(script.calls()) == calls == len(SCOPES) * len(BODIES)


async def _read(node: PipelineNode, number: int, ends: float) -> int:
    """Search over and over as one reader; return how often it was answered."""
    scope = (None, *SCOPES)[number % 3]
    caller = LOCAL if scope is None else reader(scope)
    selections = [
        selection_of({"collection": "tickets", "counts": "*", "limit": 200, **given})
        for given in ({}, {"facets": {"topic": ["billing"]}}, {"facets": {"topic": ["__missing__"]}})
    ]
    before = -1
    for turn in itertools.count():
        if turn and time.monotonic() > ends:
            return turn
        selection = selections[turn % len(selections)]
        reply = await node.search(caller, selection)
        _check(reply, selection, caller)
        place = tokens.decode(reply["as_of"]["token"])
        assert isinstance(place, tokens.FeedToken | tokens.ScopeToken)
        now = place.position if isinstance(place, tokens.FeedToken) else place.changes
        assert now >= before
        before = now
    raise AssertionError


def _check(reply: dict[str, Any], selection: Selection, caller: Caller) -> None:
    """Hits, total and counts of one moment agree."""
    [topic] = [facet for facet in reply["facets"] if facet["name"] == "topic"]
    counts = {bucket["value"]: bucket["count"] for bucket in topic["buckets"]}
    everything = DOCUMENTS if caller.scope else len(SCOPES) * DOCUMENTS
    wanted = selection.facets.get("topic")
    asked = {None: topic["total"], ("billing",): counts["billing"], ("__missing__",): topic["missing"]["count"]}
    assert topic["total"] == everything == sum(counts.values()) + topic["missing"]["count"]
    assert topic["missing"]["pending"] == topic["missing"]["count"] == reply["as_of"]["pending"]
    assert reply["total"] == len(reply["hits"]) == asked[wanted]
    assert [hit["uri"] for hit in reply["hits"]] == sorted({hit["uri"] for hit in reply["hits"]})
    for hit in reply["hits"]:
        assert caller.scope is None or hit["uri"].startswith(f"@{caller.scope}/")
        assert (hit["facets"] is None) == (hit["status"] == "pending")
        chosen = "__missing__" if hit["facets"] is None else hit["facets"]["topic"]["choice"]
        assert wanted is None or chosen in wanted
        assert hit["version"] >= hit["indexed_as"]


async def _write(node: PipelineNode, number: int, ends: float) -> int:
    """Write a share of the documents over and over, bodies and states; return how many writes were applied."""
    shares = itertools.cycle(itertools.product(SCOPES, range(number, DOCUMENTS, WRITES_AT_ONCE)))
    for turn, (scope, place) in enumerate(shares):
        if time.monotonic() > ends:
            return turn
        given = {"state": {"priority": turn}} if turn % 3 else {}
        body = None if turn % 3 == 2 else BODIES[turn % 2]
        uri = f"@{scope}/tickets/t{place:03}"
        written = await node.write(writer(scope), uri, body=body, wait="applied", **{**NEW, **given})
        assert written["uri"] == uri
    raise AssertionError
