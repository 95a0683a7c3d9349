"""Statements of a serving process: two boxes, one over all collections, one over those that agents may read.

Each keeps processes and a snapshot only once somebody has asked it something.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streams import exporting
from streams.live_views import LiveViews

if TYPE_CHECKING:
    from facets.sqlbox.box import SqlBox


class Statements:
    """Runs statements over snapshots of the views, which must have been made with `folder` in their `exports`."""

    def __init__(self, views: LiveViews, folder: Path) -> None:
        self._views = views
        self._folder = folder
        self._boxes: dict[bool, SqlBox] = {}

    async def run(
        self, text: str, params: Mapping[str, Any], *, limit: int, timeout_ms: int, agents: bool
    ) -> dict[str, Any]:
        """Run one statement; see `SqlBox.run`."""
        return await self._box(agents=agents).run(text, params, limit=limit, timeout_ms=timeout_ms)

    async def close(self) -> None:
        """Stop everything that runs."""
        boxes, self._boxes = list(self._boxes.values()), {}
        for box in boxes:
            await box.aclose()

    def _box(self, *, agents: bool) -> "SqlBox":
        if agents not in self._boxes:
            from facets.sqlbox.box import SqlBox

            source = exporting.Source(lambda: lent(self._views, agents=agents))
            self._boxes[agents] = SqlBox(source, self._folder)
        return self._boxes[agents]


@contextlib.asynccontextmanager
async def lent(views: LiveViews, *, agents: bool) -> AsyncIterator[exporting.Lent]:
    """Lend the views as they are: what was committed a fraction of a second ago may not be in them.

    Raises:
        NotCaughtUp: one is being built.
    """
    names = [name for name, each in views.known.definitions.by_name.items() if each.llm_readable or not agents]
    async with contextlib.AsyncExitStack() as held:
        lives = [await held.enter_async_context(views.using(name)) for name in names]
        reached = min((live.reached for live in lives), default=0)
        yield exporting.Lent([live.view for live in lives], reached)
