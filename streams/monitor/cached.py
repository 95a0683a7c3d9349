"""A value that is read again on demand when it is too old: never twice at once, never too often."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from facetline.facets import errors

T = TypeVar("T")

MIN_S = 1.0
"""However many look, a question is asked once a second."""


class Cached(Generic[T]):
    """One question.

    Args:
        ask: Gets the answer; a `TransientError` says that there is none now.
        wait_s: How long someone who wants it waits. The question itself goes on, for those who come later.
        rest: For how many times as long as it took to get the answer is kept: what is dear is asked for seldom.
        stale: Whether the last answer will do while, or because, a new one is not to be had.
        clock: Seconds of a monotonic clock.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[T]],
        *,
        wait_s: float,
        rest: int,
        stale: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.problem: str | None = None
        """Why there was no answer the last time; None when there was one."""
        self._ask = ask
        self._wait_s = wait_s
        self._rest = rest
        self._stale = stale
        self._clock = clock
        self._answer: T | None = None
        self._answered_s: float | None = None
        self._good_until_s = clock()
        self._asking: asyncio.Task[None] | None = None

    @property
    def age_s(self) -> float | None:
        """How old the answer is; None when there is none."""
        return None if self._answered_s is None else self._clock() - self._answered_s

    async def get(self) -> T | None:
        """Return the answer, None when there is none in time."""
        if self._clock() < self._good_until_s and self._asking is None:
            return self._kept()
        if self._asking is None:
            self._asking = asyncio.create_task(self._renew(), name="observing")
        done, _ = await asyncio.wait({self._asking}, timeout=self._wait_s)
        for task in done:
            if not task.cancelled():
                task.result()  # raises what is no TransientError: a fault of ours
        if not done:
            self.problem = f"no answer within {self._wait_s:g} s"
        return self._kept()

    async def close(self) -> None:
        """Ask no longer."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})

    def _kept(self) -> T | None:
        return self._answer if self.problem is None or self._stale else None

    async def _renew(self) -> None:
        started_s = self._clock()
        try:
            answer = await self._ask()
        except errors.TransientError as error:
            self.problem = error.message
        else:
            self._answer, self.problem = answer, None
            self._answered_s = self._clock()
        finally:
            now_s = self._clock()
            took_s = now_s - started_s if self.problem is None else 0.0
            self._good_until_s = now_s + max(MIN_S, self._rest * took_s)
            self._asking = None
