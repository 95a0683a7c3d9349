"""Tasks and signals: work that is not cut off by a cancellation, and a graceful stop on SIGINT and SIGTERM."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

CAUGHT = (signal.SIGINT, signal.SIGTERM)
END_S = 5.0
"""How long work may go on after the cancellation: a stop stays quick even when the store is away."""


async def run_uncancelled(work: Coroutine[Any, Any, None], name: str) -> None:
    """Await a coroutine to completion, for `END_S` at most, even if the caller is cancelled; then pass that on."""
    task = asyncio.create_task(work, name=name)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=END_S)
        raise


@contextlib.contextmanager
def stop_on_signals(
    stop: asyncio.Event, *, at_once: Callable[[], None], first: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Set `stop` on a signal, after `first`; a second signal calls `at_once` and cancels the body's task."""
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
