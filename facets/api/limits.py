"""Limits: how much one client, and all of them, may have of a serving process at once."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

from facetline.facets.api.problems import Problem


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one serving process; times are seconds.

    `body_bytes` is ten times what a document's body may have, escapes of JSON included, `bodies_bytes` is for those of
    all requests at once, which are in memory until they are answered. `request_s` is for a request's
    head, and again for its body. `stall_s` is how long a reader may take nothing of a reply that waits for it,
    `stream_s` how long a stream of rows, whose snapshot is held, may take in all. `fresh` are searches that ask for how
    new their reply must be: they are more, because most of their time they only wait. `streams_each` is how many
    streams one caller has: they last so long that slow readers with one token would otherwise keep out all others.
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
    """Lets a bounded number of requests of one kind work at once; a bounded number waits for a bounded time.

    `each` is how many of them may be one caller's, those that wait included; None: any number.
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
            Problem: `busy`, at once when the caller holds its share or too many wait already, else after the time to
                wait.
        """
        if self._each is not None and self._held[caller] >= self._each:
            raise Problem("busy", f"{self._each} {self._what} of yours run already; end one, or wait for its end")
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
            raise Problem("busy", f"{self._waiting} {self._what} wait already; try again in a moment")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_s):
                await self._free.acquire()
        except TimeoutError:
            raise Problem("busy", f"no room for one more of the {self._what} within {self._wait_s:g} s") from None
        finally:
            self._waiting -= 1
