"""Limits of a serving process: sizes, times, and concurrent work per client and in total."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

from facetline.facets.api.problems import Problem


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one serving process; `…_s` are seconds.

    `body_bytes` is ten times the largest document body, JSON escapes included; `bodies_bytes` is the total of all
    requests in progress, which stay in memory until they are answered. `request_s` applies to a request's head, and
    again to its body. `stall_s` is how long a client may stop reading a reply, `stream_s` the total time of a stream
    of rows, which holds a snapshot. `fresh` are searches with `at_least`: there are more of them, because they mostly
    wait. `streams_each` is the number of streams of one caller: they take so long that slow clients with one token
    would otherwise block all others.
    """

    body_bytes: int = 5 * 1024 * 1024
    bodies_bytes: int = 128 * 1024 * 1024
    request_s: float = 20.0
    stall_s: float = 20.0
    stream_s: float = 600.0
    linger_s: float = 2.0
    connections: int = 500
    searches: int = 8
    fresh: int = 64
    agents: int = 8
    streams: int = 4
    streams_each: int = 2
    statements: int = 4
    waiting: int = 256
    wait_s: float = 5.0
    parameters: int = 200
    timeout_s: float = 60.0
    freshness_ms: int = 30_000
    tokens: int = 16


class ConcurrencyLimit:
    """Limits concurrent requests of one kind; a bounded number of further ones waits for a bounded time.

    `each` is the number per caller, waiting ones included; None: any number.
    """

    def __init__(self, what: str, working: int, *, waiting: int, wait_s: float, each: int | None = None) -> None:
        self._what = what
        self._each = each
        self._held: Counter[str] = Counter()
        self._waiting_max = waiting
        self._wait_s = wait_s
        self._free = asyncio.Semaphore(working)
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def one(self, caller: str) -> AsyncIterator[None]:
        """Hold one slot.

        Raises:
            Problem: `busy`, immediately if the caller has reached its share or too many are waiting, else after the
                waiting time.
        """
        if self._each is not None and self._held[caller] >= self._each:
            raise Problem(
                "busy", f"your limit of {self._each} {self._what} is reached; end one, or wait for one to finish"
            )
        self._held[caller] += 1
        try:
            await self._take()
            try:
                yield
            finally:
                self._free.release()
        finally:
            self._held[caller] -= 1
            if not self._held[caller]:
                del self._held[caller]

    async def _take(self) -> None:
        if self._waiting >= self._waiting_max:
            raise Problem("busy", f"{self._waiting} {self._what} are already waiting; retry later")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_s):
                await self._free.acquire()
        except TimeoutError:
            raise Problem("busy", f"too many {self._what}; none finished within {self._wait_s:g} s") from None
        finally:
            self._waiting -= 1
