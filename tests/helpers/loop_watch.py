"""How long one step of an event loop holds up all others, in processor time: a busy machine adds nothing to it."""

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator


class Watch:
    """`worst_s`: the most processor time that this process took between two turns of the loop.

    All threads count: one that holds the interpreter holds the loop as well, and what works beside the loop lets it
    turn meanwhile.
    """

    def __init__(self) -> None:
        self.worst_s = 0.0
        self._last = 0.0

    def start(self) -> None:
        """Begin anew."""
        self.worst_s, self._last = 0.0, time.process_time()

    async def run(self) -> None:
        """Turn the loop, over and over."""
        self.start()
        while True:
            await asyncio.sleep(0)
            now = time.process_time()
            self.worst_s = max(self.worst_s, now - self._last)
            self._last = now


@contextlib.asynccontextmanager
async def watched() -> AsyncIterator[Watch]:
    """Watch the running loop; collecting what the tests before have left is not what is watched."""
    gc.collect()
    gc.freeze()
    watch = Watch()
    turning = asyncio.create_task(watch.run())
    await asyncio.sleep(0)
    try:
        yield watch
    finally:
        turning.cancel()
        gc.unfreeze()
