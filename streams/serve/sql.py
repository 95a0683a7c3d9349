"""SQL statements of a serving process: one sandbox per kind of snapshot, created at its first statement."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from facetline.storage.db.engine import Store
from facetline.streams.views import exports
from facetline.streams.views.live_views import LiveViews

if TYPE_CHECKING:
    from facetline.facets.sql_sandbox.sandbox import SqlBox


@dataclass(frozen=True, slots=True)
class Kind:
    """Content of a snapshot: only collections that agents may read, or all; with or without texts."""

    agents: bool = False
    texts: bool = False


class Statements:
    """Runs statements over snapshots of the views, which must have been created with `folder` in `exports`."""

    def __init__(self, store: Store, views: LiveViews, folder: Path) -> None:
        self._store = store
        self._views = views
        self._folder = folder
        self._boxes: dict[Kind, SqlBox] = {}

    async def run(
        self, text: str, params: Mapping[str, Any], *, limit: int, timeout_ms: int, kind: Kind
    ) -> dict[str, Any]:
        """Run one statement; see `SqlBox.run`."""
        return await self._box(kind).run(text, params, limit=limit, timeout_ms=timeout_ms)

    async def close(self) -> None:
        """Stop all sandboxes."""
        boxes, self._boxes = list(self._boxes.values()), {}
        for box in boxes:
            await box.aclose()

    def _box(self, kind: Kind) -> "SqlBox":
        if kind not in self._boxes:
            from facetline.facets.sql_sandbox.sandbox import SqlBox

            texts_of = self._store if kind.texts else None
            source = exports.Source(lambda: lent(self._views, agents=kind.agents), texts_of)
            self._boxes[kind] = SqlBox(source, self._folder)
        return self._boxes[kind]


@contextlib.asynccontextmanager
async def lent(views: LiveViews, *, agents: bool) -> AsyncIterator[exports.Lent]:
    """Lend the views in their current state, which may miss commits of the last fraction of a second.

    Raises:
        NotCaughtUp: a view is being built.
    """
    names = [name for name, each in views.known.definitions.by_name.items() if each.llm_readable or not agents]
    async with contextlib.AsyncExitStack() as held:
        lives = [await held.enter_async_context(views.using(name)) for name in names]
        reached = min((live.reached for live in lives), default=0)
        yield exports.Lent([live.view for live in lives], reached)
