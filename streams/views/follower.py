"""Feed to view: keeps a DuckDB view as new as the store, in bounded batches, and rebuilds it when it must.

A view belongs to one collection, so that a single search loads only what it asks about. A transaction of the store is
held while the view is asked which texts it lacks (milliseconds), and never while it takes something in.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from facetline.facets import errors
from facetline.facets.definitions import Definition, Definitions
from facetline.facets.documents import Shown
from facetline.facets.search.selection import Selection
from facetline.facets.view.view import View
from facetline.storage import definitions, feed
from facetline.storage.db.engine import Store

READ_MAX = 5_000
LOCKED_S = 0.01
"""Between two looks at what was locked: by a transaction that takes milliseconds."""
LOCKED_WAITS_MAX = 50
"""A search does not wait longer for a transaction that does not end."""


class Follower:
    """One collection's view and its place in the feed."""

    def __init__(
        self,
        store: Store,
        collection: str,
        *,
        folder: Path | None = None,
        exports: Sequence[Path] = (),
        texts: bool = False,
    ) -> None:
        """`folder` and `exports` are the view's: where it keeps its file, and where it may write snapshots.

        Without `texts` the view is built sooner, and built again when something is looked for in texts.
        """
        self._store = store
        self._collection = collection
        self._folder = folder
        self._exports = exports
        self._texts = texts
        self._view: View | None = None
        self._definition: Definition | None = None
        self._turn = asyncio.Lock()

    async def search(self, selection: Selection) -> dict[str, Any]:
        """Return the reply of a search (docs/search.md), over everything committed before the call.

        Raises:
            InvalidQuery: the selection names what does not exist.
        """
        view = await self.caught_up(texts=selection.by_text)
        return await asyncio.to_thread(view.search, selection)

    async def uris(self, selection: Selection, *, after: str, limit: int) -> list[str]:
        """Return the next `limit` selected uris behind `after`, in order, over everything committed before the call.

        Raises:
            InvalidQuery: the selection names what does not exist.
        """
        view = await self.caught_up(texts=selection.by_text)
        return await asyncio.to_thread(view.uris, selection, after=after, limit=limit)

    async def caught_up(self, *, texts: bool = False) -> View:
        """Return the view, holding everything committed before the call; with `texts`, those too."""
        async with self._turn:
            if texts and not self._texts:
                self._texts = True
                await self.close()
            generation, active = await self._store.read(definitions.active)
            del generation
            definition = active.by_name.get(self._collection)
            if definition is None:
                raise unknown_collection(self._collection, active)
            view = await self._defined(definition)
            end = await self._store.read(feed.end)
            if end < view.position:  # the store went back: another one, or restored from a backup
                await asyncio.to_thread(view.close)
                self._view = None
                view = await self._defined(definition)
            await self._follow(view)
            await asyncio.to_thread(view.settle)
            return view

    async def _follow(self, view: View) -> None:
        """Bring the view up to all that was committed before.

        1. Whole pages, as they are numbered: building a view blocks no writer. 2. The rest together with what has no
        number yet, in one transaction; of what is too much for one, a page is numbered, and read as the others are.
        3. What someone had locked just then may have been changed before: it is waited for, within a bound.
        """
        locked: set[str] | None = None
        waits = 0
        async with contextlib.aclosing(_Taking(view)) as taking:
            while True:
                wanted = (taking.position, READ_MAX, self._collection, view.lacking if self._texts else None)
                page = await self._store.read(feed.page, *wanted)  # 1
                await taking.give(page.records)
                if not page.last:
                    continue
                wanted = (taking.position, *wanted[1:])
                newest = await self._store.write(feed.newest, *wanted)  # 2
                if newest is None:
                    continue
                await taking.give(newest.records)
                if not newest.last:
                    continue
                locked = newest.passed_over if locked is None else locked & newest.passed_over  # 3
                if not locked or waits == LOCKED_WAITS_MAX:
                    return
                waits += 1
                await asyncio.sleep(LOCKED_S)

    async def _defined(self, definition: Definition) -> View:
        if self._view is None:
            self._view = await asyncio.to_thread(
                View, folder=self._folder, store_id=self._store.store_id, exports=self._exports
            )
            self._definition = None
        if definition != self._definition:
            await asyncio.to_thread(self._view.define, Definitions([definition]))
            self._definition = definition
        return self._view

    async def close(self) -> None:
        """Drop the view."""
        if self._view is not None:
            await asyncio.to_thread(self._view.close)
            self._view = None


class _Taking:
    """Gives a view records in order: those that come next are read and made ready while DuckDB takes the ones before.

    Numbering and DuckDB leave Python's lock alone, so that a machine with two cores builds on both.
    """

    def __init__(self, view: View) -> None:
        self.position = view.position
        self._view = view
        self._last: asyncio.Task[None] | None = None

    async def give(self, records: Sequence[Shown]) -> None:
        """Have records taken after all that was given before."""
        if not records:
            return
        batch = await asyncio.to_thread(self._view.ready, records)
        await self.aclose()
        self._last = asyncio.create_task(asyncio.to_thread(self._view.take, batch))
        self.position = records[-1].feed_seq

    async def aclose(self) -> None:
        """Wait until everything given is taken."""
        last, self._last = self._last, None
        if last is not None:
            await last


def unknown_collection(name: str, active: Definitions) -> errors.UnknownCollection:
    """Return the error for a collection that is not active."""
    known = sorted(active.by_name)
    there = f"there are {', '.join(known)}" if known else "none is active yet; write a document or apply the file"
    return errors.UnknownCollection(f"no collection '{name}'{errors.nearest(name, known)}; {there}", allowed=known)
