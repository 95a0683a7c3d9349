"""Scripts of this folder as processes that begin with the product imported: one has done that, and forks for each.

Importing takes two seconds of a processor, and tests that kill start hundreds. Nothing else is spared: signals, kills,
environment and exit codes are those of any process. What is about beginnings and ends as such (other interpreters, exit
handlers, the command as it is installed) starts one with `subprocess`.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

HELPERS = Path(__file__).resolve().parent
IMPORTED = (
    "clocks",
    "folder_evaluator",
    "facetline.streams.kafka.consumer",
    "facetline.streams.wiring",
    "facetline.streams.worker",
)
"""What every script needs; nothing that starts a thread, and not litellm, which few need."""

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(list(IMPORTED))


class Forked:
    """A running script, with the part of `subprocess.Popen` that its users need."""

    def __init__(self, script: str, *words: str, cwd: Path, env: Mapping[str, str], log: Path) -> None:
        """Run a script with its output in `log`; it ends with us at the latest."""
        given = (str(HELPERS / script), words, str(cwd), dict(env), str(log))
        self._process = _forks.Process(target=_run, args=given, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, minus the number of the signal that ended it; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code.

        Raises:
            TimeoutExpired: it has not ended after `timeout` seconds.
        """
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _run(script: str, words: tuple[str, ...], cwd: str, env: dict[str, str], log: str) -> None:
    """Be that process, in the fork."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    with Path(log).open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = [script, *words]
    runpy.run_path(script, run_name="__main__")
