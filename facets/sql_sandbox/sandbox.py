"""The box: takes statements, keeps a snapshot as new as need be, and a few processes that run one statement each.

A statement waits for a process, and for a snapshot, within its own time. What a statement does to its process is
no other caller's problem: the process is killed, and the next statement gets another one.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from facetline.facets import errors
from facetline.facets.sql_sandbox import limits, requests, snapshots
from facetline.facets.sql_sandbox.process import Process

PROCESSES = 2
WAITING_MAX = 200
"""Statements that wait for a process."""
IDLE_S = 60.0
"""A process that was idle for so long is ended."""


@dataclass(slots=True)
class _Pool:
    idle: list[Process] = field(default_factory=list)
    running: set[Process] = field(default_factory=set)
    waiting: int = 0


class SqlBox:
    """Runs read-only statements over snapshots of `source`, in at most `processes` processes.

    `folder` is where private snapshots are kept while they are needed; it is made if absent.
    """

    def __init__(
        self,
        source: snapshots.Source,
        folder: Path,
        *,
        processes: int = PROCESSES,
        refresh_s: float = snapshots.REFRESH_S,
    ) -> None:
        self._snapshots = snapshots.Snapshots(source, folder, refresh_s=refresh_s)
        self._slots = asyncio.Semaphore(processes)
        self._pool = _Pool()
        self._closed = False

    async def prepare(self) -> None:
        """Have the first snapshot made, however long it takes: statements need not wait for it then."""
        await self._snapshots.first()

    async def run(
        self,
        text: str,
        params: Mapping[str, Any] | None = None,
        *,
        limit: int = limits.LIMIT_DEFAULT,
        timeout_ms: int = limits.TIMEOUT_MS_DEFAULT,
    ) -> dict[str, Any]:
        """Return `{"columns": [{"name", "type"}], "rows": [[…]], "truncated", "as_of": {"token", "at"}}`.

        `truncated`: there are more rows than `limit`, or than a reply takes (8 MiB).

        Raises:
            SqlRefused, SqlFailed, SqlTimeout, SqlTooLarge: as their codes say.
            SqlBusy: too many statements wait already.
            ExportFailed, StoreUnavailable: there is no snapshot, and none can be made.
        """
        reply: dict[str, Any] = {"columns": [], "rows": [], "truncated": False, "as_of": None}
        found = self.frames(text, params, limit=limit, timeout_ms=timeout_ms)
        async with contextlib.aclosing(found):
            async for frame in found:
                reply["rows"] += frame.pop("rows", ())
                reply.update(frame)
        return reply

    async def frames(
        self,
        text: str,
        params: Mapping[str, Any] | None = None,
        *,
        limit: int | None = None,
        timeout_ms: int = limits.TIMEOUT_MS_MAX,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Return an answer as it comes: `columns` and `as_of`, then `rows` again and again, then `truncated`.

        Without a limit as many rows as a stream takes (256 MiB). Reading them is part of the statement's time. Close
        the iterator when the rest is not wanted. Raises what `run` does; once rows have come, only where it must.
        """
        request = requests.request_of(text, params or {}, limit, timeout_ms)
        ends_s = time.monotonic() + timeout_ms / 1000
        async with self._slot(ends_s), self._snapshots.fresh(ends_s) as snapshot:
            request |= {
                "folder": str(snapshot.folder),
                "tables": list(snapshot.made.tables),
                "timeout_s": max(0.001, ends_s - time.monotonic()),
            }
            as_of = {"token": snapshot.made.token, "at": snapshot.made.at}
            async with self._process() as process, contextlib.aclosing(process.answer(request, ends_s)) as answer:
                async for frame in answer:
                    if "columns" in frame:
                        yield {"columns": frame["columns"], "as_of": as_of}
                    elif "rows" in frame:
                        yield {"rows": frame["rows"]}
                    else:
                        yield {"truncated": bool(frame["end"]["truncated"])}

    async def aclose(self) -> None:
        """Stop everything and remove the snapshots; safe to call twice."""
        self._closed = True
        processes = [*self._pool.idle, *self._pool.running]
        self._pool.idle.clear()
        for process in processes:
            process.kill()
        for process in processes:
            await process.wait()
        await self._snapshots.aclose()

    @contextlib.asynccontextmanager
    async def _slot(self, ends_s: float) -> AsyncIterator[None]:
        if self._closed:
            raise errors.SqlBusy("this is stopping; no statement is taken any more")
        if self._pool.waiting >= WAITING_MAX:
            raise errors.SqlBusy(f"{self._pool.waiting} statements are waiting already; try again in a moment")
        self._pool.waiting += 1
        try:
            await asyncio.wait_for(self._slots.acquire(), max(0.001, ends_s - time.monotonic()))
        except TimeoutError as error:
            raise errors.SqlTimeout("the statement waited for a free process for all of its time") from error
        finally:
            self._pool.waiting -= 1
        try:
            yield
        finally:
            self._slots.release()

    @contextlib.asynccontextmanager
    async def _process(self) -> AsyncIterator[Process]:
        while self._pool.idle and not self._pool.idle[-1].alive:
            self._pool.idle.pop()
        process = self._pool.idle.pop() if self._pool.idle else await Process.start(self._snapshots.folder())
        self._pool.running.add(process)
        try:
            yield process
        finally:
            self._pool.running.discard(process)
            if process.usable and not self._closed:
                self._pool.idle.append(process)
                asyncio.get_running_loop().call_later(IDLE_S, self._let_go)
            else:
                process.kill()
                await process.collect()

    def _let_go(self) -> None:
        """End processes that were idle for a while."""
        for process in list(self._pool.idle):
            if time.monotonic() - process.idle_since_s >= IDLE_S:
                self._pool.idle.remove(process)
                process.kill()
