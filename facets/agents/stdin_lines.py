"""Lines of standard input for an event loop, read by a thread that nobody has to wait for.

A read of standard input cannot be interrupted. The SDK waits for it, so a stop signal would only be heeded at the
client's next word; here the thread is left behind, which costs nothing in a process that ends.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator

import structlog

CHUNK_BYTES = 1 << 16
LINE_BYTES_MAX = 16 << 20
"""Above a write of the largest body, each of its bytes escaped."""
WAITING_MAX = 16
"""Lines read ahead."""

log = structlog.get_logger(__name__)


class StdinLines:
    """Yields the lines of a file descriptor, decoded, until its end; a line beyond the bound is taken for the end."""

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
        # os.read, not the buffered file: a daemon thread that holds its lock would crash the interpreter's end.
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
        """Hand a line over, once there is room; False when the loop has ended."""
        giving = self._lines.put(line)
        try:
            asyncio.run_coroutine_threadsafe(giving, self._loop).result()
        except (RuntimeError, asyncio.CancelledError):
            giving.close()
            return False
        return True
