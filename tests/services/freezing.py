"""SIGSTOP that has taken effect: on a busy machine a process's other threads go on for a while after the signal."""

import os
import signal
import time
from pathlib import Path

LIMIT_S = 10.0


def freeze(pid: int) -> None:
    """Stop a process and return when all its threads stand still (where the system tells: Linux)."""
    os.kill(pid, signal.SIGSTOP)
    ends = time.monotonic() + LIMIT_S
    while running := _states(pid) - {"T", "Z"}:
        if time.monotonic() > ends:
            raise AssertionError(f"process {pid} does not stand still {LIMIT_S:g} s after SIGSTOP: {running}")
        os.sched_yield()


def _states(pid: int) -> set[str]:
    """Return the states that the process's threads are in, such as "S" (sleeping) and "T" (stopped)."""
    return {_state(each) for each in Path(f"/proc/{pid}/task").glob("*/stat")}


def _state(stat: Path) -> str:
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the thread has ended
        return "Z"
