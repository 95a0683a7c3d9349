"""Lines of standard input for an event loop, read by a daemon thread.

A read of standard input cannot be interrupted. The SDK waits for it, so that a stop signal would only take effect at
the client's next line; here the thread is abandoned, which is harmless in a process that ends.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator

import structlog

CHUNK_BYTES = 1 << 16
LINE_BYTES_MAX = 16 << 20
"""More than a write of the largest body with each byte escaped."""
WAITING_MAX = 16
"""Lines read ahead."""

log = structlog.get_logger(__name__)


class StdinLines:
    """Yields the lines of a file descriptor, decoded, until its end; a line over the limit ends the input."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue(WAITING_MAX)
        threading.Thread(target=self._read, name="read standard input", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the lines."""
        while (line := await self._lines.get()) is not None:
            yield line

    def _read(self) -> None:
        begun = bytearray()
        # os.read, not the buffered file: a daemon thread that holds its lock would crash the interpreter at exit.
        while len(begun) <= LINE_BYTES_MAX and (chunk := self._chunk()):
            begun += chunk
            if b"\n" not in chunk:
                continue
            *whole, rest = bytes(begun).split(b"\n")
            begun = bytearray(rest)
            if not all(self._give(line.decode("utf-8", "replace")) for line in whole):
                return
        if len(begun) > LINE_BYTES_MAX:
            log.error("agent_line_too_long", bytes_max=LINE_BYTES_MAX)
        elif begun:
            self._give(begun.decode("utf-8", "replace"))
        self._give(None)

    def _chunk(self) -> bytes:
        try:
            return os.read(self._descriptor, CHUNK_BYTES)
        except OSError:
            return b""

    def _give(self, line: str | None) -> bool:
        """Put a line into the queue, waiting for room; return False if the loop has ended."""
        giving = self._lines.put(line)
        try:
            asyncio.run_coroutine_threadsafe(giving, self._loop).result()
        except (RuntimeError, asyncio.CancelledError):
            giving.close()
            return False
        return True
