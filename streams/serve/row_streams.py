"""Streams of rows; a client that disconnects while one is opened leaves nothing behind."""

import asyncio
import contextlib

from facetline.facets.search.row_stream import RowStream
from facetline.facets.search.selection import Selection
from facetline.streams.views.live_views import LiveViews


class Openings:
    """Opens streams of rows over views."""

    def __init__(self, views: LiveViews) -> None:
        self._views = views
        self._closing: set[asyncio.Task[None]] = set()

    async def open(self, selection: Selection) -> RowStream:
        """Return all that a selection finds, of one snapshot; its view stays until the stream is closed."""
        opening = asyncio.create_task(self._open(selection), name="rows: open")
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # A thread makes the reader: without this its snapshot would stay held when the client is gone.
            opening.add_done_callback(self._close_unwanted)
            raise

    async def _open(self, selection: Selection) -> RowStream:
        async with contextlib.AsyncExitStack() as stack:
            live = await stack.enter_async_context(self._views.using(selection.collection))
            reader = await self._views.read(live.view.reader, selection)
            return RowStream(reader, self._views.read, stack.pop_all())

    def _close_unwanted(self, opened: "asyncio.Task[RowStream]") -> None:
        if not opened.cancelled() and opened.exception() is None:
            closing = asyncio.create_task(opened.result().aclose(), name="rows: close the unused")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
