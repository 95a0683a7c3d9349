"""Wait for a condition with a deadline: what tests do instead of sleeping."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(
    condition: Callable[[], T | Awaitable[T]], *, deadline_s: float = 10.0, every_s: float = 0.05, what: str = ""
) -> T:
    """Return the first truthy value of `condition`, a function or a coroutine function.

    It is asked at least once. After `deadline_s` an AssertionError names `what` (else the condition's source), the last
    value and the number of tries; a coroutine that hangs is cut off there too. What the condition raises passes
    through: "not yet" is a falsy value, never an error.
    """
    deadline = time.monotonic() + deadline_s
    tries, value = 0, None
    while True:
        tries += 1
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), every_s)):
                answer = condition()
                value = await answer if inspect.isawaitable(answer) else answer
        except TimeoutError as error:
            if time.monotonic() < deadline:
                raise  # the condition's own
            raise AssertionError(_failure(condition, what, deadline_s, tries, "no answer")) from error
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(_failure(condition, what, deadline_s, tries, repr(value)))
        await asyncio.sleep(every_s)


def _failure(condition: Callable[[], object], what: str, deadline_s: float, tries: int, last: str) -> str:
    return f"not within {deadline_s:g} s ({tries} tries): {what or _source(condition)}; last: {last}"


def _source(condition: Callable[[], object]) -> str:
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        return repr(condition)
