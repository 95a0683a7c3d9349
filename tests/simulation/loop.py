"""An event loop whose time is only a number: it never waits, and runs the same way each time.

When nothing is ready the time jumps to the next timer. Work for threads is done at once, on the loop.
"""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

STEPS_MAX = 200_000
"""Passes of a loop; a run takes some thousands."""


class Stuck(Exception):
    """Everything waits and no timer runs, or somebody goes round in circles: nothing would ever happen again."""


class _Selector(selectors.SelectSelector):
    """Watches nothing; a wait moves the time instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._steps = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        """Let the time pass."""
        self._steps += 1
        if timeout is None or self._steps > STEPS_MAX:
            raise Stuck
        self.now_s += max(timeout, 0.0)
        return []


class Loop(asyncio.SelectorEventLoop):
    """The loop of one simulation; `errors` holds what nobody listened to."""

    def __init__(self) -> None:
        self._simulated = _Selector()
        self.errors: list[str] = []
        super().__init__(self._simulated)
        self.set_exception_handler(lambda _loop, context: self.errors.append(str(context.get("message"))))

    def time(self) -> float:
        """Return the simulated time."""
        return self._simulated.now_s

    def run_in_executor(self, _executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        """Do the work now."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 (handed to whoever awaits it, as an executor would)
            done.set_exception(error)
        return done
