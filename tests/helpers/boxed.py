"""A box over a view of documents made for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import searched

from facetline.facets.definitions import Definitions
from facetline.facets.documents import Record
from facetline.facets.export import parquet
from facetline.facets.sql_sandbox.sandbox import SqlBox
from facetline.facets.sql_sandbox.snapshots import Made
from facetline.facets.view.view import View

ROWS = 100


class Source:
    """Snapshots of a view; `made` counts them."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.made = 0

    async def position(self) -> object:
        """Return how far the view has come."""
        return self.view.position

    async def snapshot(self, folder: Path) -> Made:
        """Write a snapshot."""
        self.made += 1
        return await asyncio.to_thread(self._write, folder)

    def _write(self, folder: Path) -> Made:
        wide = self.view.export(folder)
        now = datetime.now(UTC)
        manifest = parquet.complete(folder, wide, now, reached=self.view.position, durable=False)
        return Made([*manifest["collections"], "answers"], manifest["token"], manifest["made_at"])


def record(number: int) -> Record:
    """Return a document with all kinds of answers and state."""
    facets = {
        "topic": searched.chosen(searched.TOPICS[number % 2], 0.9),
        "urgent": searched.yes(0.8),
        "severity": searched.scored(number % 3),
    }
    state = {"title": f"Title {number}", "priority": number, "due": "2026-01-02T03:04:05+01:00"}
    return searched.record(number, facets=facets, state=state)


@asynccontextmanager
async def boxed(folder: Path, **options: Any) -> AsyncIterator[tuple[SqlBox, Source]]:
    """Open a box over the collection `notes` with `ROWS` documents, half of them about billing."""
    view = View(store_id="store", exports=[folder])
    view.define(Definitions([searched.definition()]))
    view.apply([record(number) for number in range(1, ROWS + 1)])
    source = Source(view)
    box = SqlBox(source, folder, **options)
    try:
        yield box, source
    finally:
        await box.aclose()
        view.close()
