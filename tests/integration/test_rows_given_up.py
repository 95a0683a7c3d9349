"""Streams of rows whose reader goes away: while they are opened, while a page is read, nothing of them stays behind.

Method: a node over a real pipeline, whose threads wait at a gate when they have done their work.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from polling import eventually
from serving import local_node

from facetline.facets.api import row_streams
from facetline.facets.backend import LOCAL
from facetline.facets.search.selection import selection_of
from facetline.streams.serve.node import PipelineNode
from facetline.streams.views.live_view import Live
from facetline.streams.views.live_views import LiveViews

NOTES = selection_of({"collection": "notes"})


class Gated:
    """Views whose threads end their work only when the gate is open; `inside` says that one has come to it."""

    def __init__(self, views: LiveViews) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.inside = threading.Event()
        self._views = views

    def __getattr__(self, name: str) -> Any:
        return getattr(self._views, name)

    async def read(self, function: Any, *given: Any) -> Any:
        """Read as the views do, and wait at the gate."""

        def work() -> Any:
            found = function(*given)
            self.inside.set()
            self.gate.wait()
            return found

        return await self._views.read(work)


class Site:
    """A node at the gate, and the view of its collection."""

    def __init__(self, node: PipelineNode, gated: Gated, live: Live) -> None:
        self.node, self.gated, self.live = node, gated, live

    def shut(self) -> None:
        """Shut the gate."""
        self.gated.inside.clear()
        self.gated.gate.clear()

    async def nobody_holds_anything(self) -> None:
        """Wait until no snapshot and no view is held."""
        await eventually(lambda: self.live.view.readers == 0 and self.live.users == 0, what="all is given up")


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    """A served local pipeline with a few notes."""
    monkeypatch.syspath_prepend(str(tmp_path))
    async with local_node(tmp_path) as (pipeline, node):
        for name in "abc":
            await pipeline.write(f"notes/{name}", body="x", wait="applied")
        gated = Gated(node.views)
        await node.views.built("notes")
        async with node.views.using("notes") as live:
            pass
        yield Site(PipelineNode(pipeline, gated, None), gated, live)  # type: ignore[arg-type]


async def test_a_stream_that_nobody_wants_any_more_when_it_is_open_is_closed(site: Site):
    """Who goes away while the rows are being put in order leaves no snapshot behind."""
    site.shut()
    opening = asyncio.create_task(site.node.rows(LOCAL, NOTES))
    await eventually(site.gated.inside.is_set, what="the rows are in order")
    assert site.live.view.readers == 1

    opening.cancel()
    await asyncio.wait({opening})
    site.gated.gate.set()

    await site.nobody_holds_anything()


async def test_a_stream_cut_off_within_a_page_is_closed(site: Site):
    """A reader who goes away while a page is read, as a server cuts it off, leaves neither snapshot nor view behind."""
    rows = await site.node.rows(LOCAL, NOTES)
    site.shut()

    async def stream() -> None:
        async for _ in row_streams.chunks(rows, row_streams.CSV, most=None, limit_s=60):
            pass

    async with anyio.create_task_group() as group:
        group.start_soon(stream)
        await eventually(site.gated.inside.is_set, what="a page is read")
        assert site.live.users == 1
        group.cancel_scope.cancel()
    site.gated.gate.set()

    await site.nobody_holds_anything()
