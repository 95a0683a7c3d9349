"""The snapshots that statements run over: renewed when there are changes, removed when unused."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from facetline.facets import errors
from facetline.facets.temp_folder import Scratch

REFRESH_S = 2.0
"""A snapshot is looked after no more often than this."""
REST = 5.0
"""Nor more often than it takes, so many times over: of a million documents it takes seconds of two cores."""
REFRESH_WAIT_S = 1.0
"""How long a statement waits for a newer snapshot while there is an older one."""
CLOSE_S = 5.0
"""How long closing waits for a snapshot that is being made."""
OLD_MAX_S = 60.0
"""A snapshot that is older is waited for; when it cannot be renewed the reason is reported."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a snapshot holds: files `<table>.parquet` of these tables, as of `token`, made `at` (RFC 3339)."""

    tables: Sequence[str]
    token: str
    at: str


class Source(Protocol):
    """Where snapshots come from."""

    async def position(self) -> object:
        """Return what a snapshot made now would be of; equal to the last one's when nothing has changed."""

    async def snapshot(self, folder: Path) -> Made:
        """Write a snapshot into an empty folder."""


@dataclass(slots=True)
class Snapshot:
    """One that statements may be using."""

    folder: Path
    made: Made
    position: object
    looked_s: float
    took_s: float
    users: int = 0
    replaced: bool = False


class Snapshots:
    """Keeps snapshots of `source` in a private folder inside of `parent`."""

    def __init__(self, source: Source, parent: Path, *, refresh_s: float = REFRESH_S) -> None:
        self._source = source
        self._parent = parent
        self._refresh_s = refresh_s
        self._scratch: Scratch | None = None
        self._snapshot: Snapshot | None = None
        self._making: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._tried_s = 0.0
        self._numbers = 0

    async def aclose(self) -> None:
        """Stop making one, and remove them all; safe to call twice."""
        if self._making is not None:
            # A thread that writes files cannot be stopped, and should not write into what is being removed.
            await asyncio.wait({self._making}, timeout=CLOSE_S)
            self._making.cancel()
            with contextlib.suppress(asyncio.CancelledError, errors.PipelineError):
                await self._making
        if self._scratch is not None:
            await asyncio.to_thread(self._scratch.close)
            self._scratch = None

    async def first(self) -> None:
        """Make the first snapshot."""
        await self._make(None)

    @contextlib.asynccontextmanager
    async def fresh(self, ends_s: float) -> AsyncIterator[Snapshot]:
        """Lend the newest snapshot; it stays where it is until it is given back.

        Raises:
            SqlTimeout: there is none by `ends_s` (monotonic seconds).
            PipelineError: none can be made, for a while now.
        """
        snapshot = self._snapshot
        if snapshot is None or self._is_due(snapshot):
            await self._look(snapshot, ends_s)
            snapshot = self._snapshot
        if snapshot is None:
            raise errors.SqlTimeout("the first snapshot is still being made; try again in a moment")
        snapshot.users += 1
        try:
            yield snapshot
        finally:
            snapshot.users -= 1
            await self._retire(snapshot)

    def _is_due(self, snapshot: Snapshot) -> bool:
        rest_s = max(self._refresh_s, REST * snapshot.took_s) if self._refresh_s else 0.0
        return time.monotonic() - self._tried_s >= rest_s

    async def _look(self, known: Snapshot | None, ends_s: float) -> None:
        """Have a newer snapshot made if there is one to make, and wait for it as long as is sensible."""
        making = self._making
        if making is None or making.done():
            making = self._making = asyncio.create_task(self._make(known), name="sql: snapshot")
            making.add_done_callback(self._log_failure)
        left_s = max(0.0, ends_s - time.monotonic())
        old = known is None or time.monotonic() - known.looked_s > OLD_MAX_S
        await asyncio.wait({making}, timeout=left_s if old else min(REFRESH_WAIT_S, left_s))
        if old and self._failure is not None:
            raise self._failure

    def _log_failure(self, making: "asyncio.Task[None]") -> None:
        self._failure = None if making.cancelled() else making.exception()

    async def _make(self, known: Snapshot | None) -> None:
        looked_s = self._tried_s = time.monotonic()
        position = await self._source.position()
        if known is not None and known.position == position:
            known.looked_s = looked_s
            return
        self._numbers += 1
        folder = self.folder() / str(self._numbers)
        await asyncio.to_thread(folder.mkdir)
        try:
            made = await self._source.snapshot(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._snapshot = Snapshot(folder, made, position, looked_s, time.monotonic() - looked_s)
        if known is not None:
            known.replaced = True
            await self._retire(known)

    def folder(self) -> Path:
        """Return the private folder, which is made when it is first needed."""
        if self._scratch is None:
            self._scratch = Scratch(self._parent.resolve())
        return self._scratch.folder

    @staticmethod
    async def _retire(snapshot: Snapshot) -> None:
        if snapshot.replaced and snapshot.users == 0:
            await asyncio.to_thread(shutil.rmtree, snapshot.folder, ignore_errors=True)
