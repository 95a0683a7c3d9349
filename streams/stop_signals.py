"""Graceful stop on SIGINT and SIGTERM; a second signal ends the process at once."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

CAUGHT = (signal.SIGINT, signal.SIGTERM)


def nothing() -> None:
    """Do nothing."""


@contextlib.contextmanager
def stop_on_signals(
    stop: asyncio.Event, *, at_once: Callable[[], None], first: Callable[[], None] = nothing
) -> Iterator[None]:
    """Let a signal call `first` and set `stop`; once that is set, one calls `at_once` and cancels the body's task."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def given() -> None:
        if stop.is_set() and task is not None:
            at_once()
            task.cancel()
            return
        first()
        stop.set()

    for each in CAUGHT:
        loop.add_signal_handler(each, given)
    try:
        yield
    finally:
        for each in CAUGHT:
            loop.remove_signal_handler(each)
