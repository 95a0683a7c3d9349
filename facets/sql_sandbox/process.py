"""One process that runs statements, from its parent's side: started clean, asked, killed."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

from facetline.facets import errors
from facetline.facets.sql_sandbox import frames, limits

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); sys.argv[1:] = [];"
    " from facetline.facets.sql_sandbox import child; child.main()"
)
"""Nothing of the environment says where modules are, so the parent does."""
_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
"""Variables without which an interpreter may not start."""
_OWN = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
_ERRORS: Mapping[str, type[errors.InvalidQuery]] = {
    each.code: each for each in (errors.SqlRefused, errors.SqlFailed, errors.SqlTimeout, errors.SqlTooLarge)
}


class Process:
    """A running process; `usable` says whether it can be asked again: not after any failure but a statement's own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.usable = True
        self.idle_since_s = time.monotonic()

    @classmethod
    async def start(cls, folder: Path) -> "Process":
        """Start one: in a session of its own, without our descriptors, environment and working directory."""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        modules = json.dumps([path for path in sys.path if os.path.isabs(path)])  # noqa: PTH117 (text, not a path)
        started = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-c", _BOOT, modules),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=folder,
            env={**kept, **_OWN},
            start_new_session=True,
            close_fds=True,
        )
        return cls(started)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended, as far as is known."""
        return self._process.returncode is None

    async def answer(self, request: Mapping[str, Any], ends_s: float) -> AsyncGenerator[dict[str, Any], None]:
        """Return the frames of one answer, the last one with `end`; a caller that leaves before that must kill it.

        Raises:
            SqlRefused, SqlFailed, SqlTimeout, SqlTooLarge: what the process says, or how it came to its end.
        """
        self.usable = False
        ends_s += limits.STOP_S * 2
        try:
            stdin = self._stdin()
            stdin.write(frames.encode(request))
            await asyncio.wait_for(stdin.drain(), _left(ends_s))
            while True:
                frame = await asyncio.wait_for(self._read(), _left(ends_s))
                if "error" in frame or "end" in frame:
                    self.usable = True
                if "error" in frame:
                    raise _error(frame["error"])
                yield frame
                if "end" in frame:
                    return
        except TimeoutError as error:
            raise errors.SqlTimeout(f"{_LATE}, and was stopped") from error
        except (asyncio.IncompleteReadError, ConnectionError, ValueError) as error:
            raise await self._death() from error
        finally:
            self.idle_since_s = time.monotonic()

    def kill(self) -> None:
        """End the process at once; `wait` collects it."""
        self.usable = False
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def wait(self) -> None:
        """Wait until it has ended."""
        await self._process.wait()

    async def collect(self) -> None:
        """Wait for the end of a process that was killed, whose answer is not read any more."""
        if self._process.stdout is not None:
            # What it had written before; while that is unread its pipe would stay open.
            while await self._process.stdout.read(limits.FRAME_BYTES):
                pass
        await self._process.wait()

    def _stdin(self) -> asyncio.StreamWriter:
        if self._process.stdin is None:
            raise ConnectionError
        return self._process.stdin

    async def _read(self) -> dict[str, Any]:
        if self._process.stdout is None:
            raise ConnectionError
        head = await self._process.stdout.readexactly(frames.HEAD.size)
        found = json.loads(await self._process.stdout.readexactly(frames.size(head)))
        if not isinstance(found, dict):
            raise ValueError("a frame is no object")  # noqa: TRY004 (as any other frame that is not one)
        return found

    async def _death(self) -> errors.InvalidQuery:
        """Return what a process's end says of its statement."""
        try:
            code = await asyncio.wait_for(self._process.wait(), limits.STOP_S)
        except TimeoutError:  # it has closed its output, or answered nonsense, and is still there
            self.kill()
            code = await self._process.wait()
        if code in {frames.TIME_CODE, -signal.SIGXCPU}:
            return errors.SqlTimeout(f"{_LATE}, and was stopped")
        if code == frames.MEMORY_CODE:
            return errors.SqlTooLarge(f"the statement needs more memory than the {limits.MEMORY_MB} MB it may have")
        if code == frames.FAILED_CODE:
            return errors.SqlFailed("DuckDB failed over this statement; write it in another way")
        how = f"signal {-code}" if code < 0 else f"code {code}"
        return errors.SqlTooLarge(
            f"the statement's process has ended ({how}): it is nested too deeply, needs too much memory, or was killed"
        )


_LATE = "the statement took longer than it may"


def _left(ends_s: float) -> float:
    return max(0.0, ends_s - time.monotonic())


def _error(fields: Mapping[str, Any]) -> errors.InvalidQuery:
    kind = _ERRORS.get(str(fields.get("code")), errors.SqlFailed)
    message, allowed = str(fields.get("message")), [str(each) for each in fields.get("allowed", ())]
    if kind is errors.SqlFailed:
        return errors.SqlFailed(message, allowed=allowed, line=fields.get("line"), column=fields.get("column"))
    return kind(message, allowed=allowed)
