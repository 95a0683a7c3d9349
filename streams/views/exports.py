"""Snapshots out of views: into a folder for everybody (`facetline export`), or for statements (`facets.sql_sandbox`).

The owner of views lends them for as long as writing takes; searches go on meanwhile.
"""

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from facetline.facets import errors
from facetline.facets.export import parquet, parquet_sql, snapshots
from facetline.facets.export.parquet import Text
from facetline.facets.sql_sandbox.snapshots import Made
from facetline.facets.view.view import View
from facetline.storage import feed
from facetline.storage.db.engine import Store
from facetline.streams.views import texts
from facetline.streams.views.follower import Follower

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Lent:
    """Views, made with the folder in their `exports`, and the place in the feed that all of them have reached."""

    views: Sequence[View]
    reached: int


Lend = Callable[[], AbstractAsyncContextManager[Lent]]
"""Hands out views that hold all that was committed before."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A snapshot that readers see now: its own folder, which stays when `current` leads to the next, and manifest."""

    folder: Path
    manifest: dict[str, Any]


def followed(store: Store, followers: Sequence[Follower]) -> Lend:
    """Lend the views of these followers, each brought up to date first."""

    @contextlib.asynccontextmanager
    async def lend() -> AsyncIterator[Lent]:
        for each in followers:
            await each.caught_up()  # numbers what has no number yet
        reached = await store.read(feed.end)
        yield Lent([await each.caught_up() for each in followers], reached)

    return lend


async def export(lend: Lend, folder: Path, texts_of: Store | None = None) -> Exported:
    """Write a snapshot that becomes `folder/current`; with `texts_of` documents have their texts beside their answers.

    Raises:
        ExportFailed: it cannot be written; the one before stays.
    """
    async with lend() as lent:
        return await asyncio.to_thread(_export, lent, folder, datetime.now(UTC), _stored(texts_of, lent))


async def export_every(lend: Lend, folder: Path, every_s: float, stop: asyncio.Event) -> None:
    """Export again and again until `stop` is set; what fails is logged, and tried again in its time."""
    while not stop.is_set():
        try:
            done = await export(lend, folder)
        except (errors.ExportFailed, errors.StoreUnavailable, errors.NotCaughtUp) as error:
            log.warning("snapshot_not_exported", folder=str(folder), reason=error.message)
        else:
            log.info("snapshot_exported", folder=str(done.folder))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), every_s)


class Source:
    """Snapshots for statements, of views that are lent; with `texts_of` their tables have the column `doc_body`."""

    def __init__(self, lend: Lend, texts_of: Store | None = None) -> None:
        self._lend = lend
        self._texts_of = texts_of

    async def position(self) -> object:
        """Return which views these are, how far each has come, and what its tables are.

        A rebuilt view may be as far as the one before, of another store or of one that went back.
        """
        async with self._lend() as lent:
            return [
                (weakref.ref(view), view.position, [table.definition for table in view.tables.values()])
                for view in lent.views
            ]

    async def snapshot(self, folder: Path) -> Made:
        """Write a snapshot into an empty folder."""
        async with self._lend() as lent:
            found = _stored(self._texts_of, lent)
            manifest = await asyncio.to_thread(_fill, lent, folder, datetime.now(UTC), found, durable=False)
        return Made([*manifest["collections"], parquet_sql.ANSWERS], manifest["token"], manifest["made_at"])


def _stored(store: Store | None, lent: Lent) -> Iterator[Text] | None:
    names = [name for view in lent.views for name in view.tables]
    return None if store is None else texts.stored(store, names)


def _export(lent: Lent, parent: Path, now: datetime, found: Iterator[Text] | None) -> Exported:
    with snapshots.making(parent, now) as new:
        manifest = _fill(lent, new, now, found)
    return Exported((parent / snapshots.CURRENT).resolve(), manifest)


def _fill(
    lent: Lent, folder: Path, now: datetime, found: Iterator[Text] | None, *, durable: bool = True
) -> dict[str, Any]:
    wide = [each for view in lent.views for each in view.export(folder)]
    if found is not None:
        wide = parquet.with_texts(folder, wide, found)
    return parquet.complete(folder, wide, now, reached=lent.reached, durable=durable)
