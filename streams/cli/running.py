"""Running one command: its event loop, its signals, and how each failure ends it.

Exit codes: 0 done, 1 failed or refused, 2 usage (also an unknown collection, facet, value or column), 3 written, but no
answer came in time, 130 interrupted.
"""

import asyncio
import contextlib
import gc
import os
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any

import typer

from facetline.facets import errors
from facetline.streams.cli import output

FAILED, USAGE, UNANSWERED, INTERRUPTED = 1, 2, 3, 130
GARBAGE_MIN = 5_000
"""Objects made, and not gone by themselves, before the collector looks for circles among the young ones."""
REST = 5
"""Watching pauses for so many times as long as a look took: counting a million takes a second."""


def run(work: Callable[[], Coroutine[Any, Any, int | None]], *, again: str | None = None) -> None:
    """Run a command to its end and leave the process with its exit code; `again` says how to go on after Ctrl-C."""
    spare_what_stays()
    try:
        code = asyncio.run(_guarded(work))
    except (KeyboardInterrupt, asyncio.CancelledError):
        output.error("interrupted" + (f"; {again}" if again else ""))
        raise typer.Exit(INTERRUPTED) from None
    except UnicodeEncodeError:
        output.error("an argument is no valid Unicode; give it as UTF-8")
        raise typer.Exit(USAGE) from None
    except errors.InvalidQuery as error:
        output.error(error.message)
        raise typer.Exit(USAGE) from None
    except errors.InvalidEvent as error:
        output.error(f"refused, {error.reason}: {error.message}")
        raise typer.Exit(FAILED) from None
    except errors.ThreadsStuck as error:
        output.error(error.message)
        os._exit(FAILED)  # the interpreter would wait for those threads for ever
    except errors.PipelineError as error:
        output.error(error.message)
        raise typer.Exit(FAILED) from None
    if code:
        raise typer.Exit(code)


def spare_what_stays() -> None:
    """Have the garbage collector leave out what was imported, and look less often.

    Looking through a hundred thousand objects that stay took a tenth of the time, a tenth of a second at once.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE_MIN, 20, 20)


async def rest(least_s: float, looked_s: float) -> None:
    """Wait before the next look at the store; the last one began at `looked_s` (monotonic seconds)."""
    await asyncio.sleep(max(least_s, REST * (time.monotonic() - looked_s)))


async def _guarded(work: Callable[[], Coroutine[Any, Any, int | None]]) -> int | None:
    """Take a SIGTERM like a Ctrl-C: the work is cancelled, drains and leaves nothing claimed."""
    task = asyncio.current_task()
    if task is not None:
        with contextlib.suppress(NotImplementedError):  # no such signals on this platform
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work()
