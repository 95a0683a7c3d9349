"""Opens streams of rows, and closes them if the client disconnects while they are opened."""

import asyncio
import contextlib

from facetline.facets.search.row_stream import RowStream
from facetline.facets.search.selection import Selection
from facetline.streams.views.live_views import LiveViews


class RowStreams:
    """Opens streams of rows over views."""

    def __init__(self, views: LiveViews) -> None:
        self._views = views
        self._closing: set[asyncio.Task[None]] = set()

    async def open(self, selection: Selection) -> RowStream:
        """Return all hits of a selection, from one snapshot; its view is kept until the stream is closed."""
        opening = asyncio.create_task(self._open(selection), name="rows: open")
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # A thread opens the reader even if the caller is cancelled: without this its snapshot would never be
            # released.
            opening.add_done_callback(self._close_unwanted)
            raise

    async def _open(self, selection: Selection) -> RowStream:
        async with contextlib.AsyncExitStack() as stack:
            live = await stack.enter_async_context(self._views.using(selection.collection))
            reader = await self._views.read(live.view.reader, selection)
            return RowStream(reader, self._views.read, stack.pop_all())

    def _close_unwanted(self, opened: "asyncio.Task[RowStream]") -> None:
        if not opened.cancelled() and opened.exception() is None:
            closing = asyncio.create_task(opened.result().aclose(), name="rows: close unused")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
