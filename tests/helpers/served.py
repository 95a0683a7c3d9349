"""Commands in a process that stays: the imports of a command cost more than what most commands do.

What is printed and how a command ends is the same as in a process of its own, by the same entry point. What is about
processes (signals, kills, memory, several at once) needs a real one: `commands.Place`.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commands import Ended, Place, environment

STOP_S = 20.0
SERVE = """
import contextlib, io, json, os, sys
from facetline.streams.cli.main import main
for line in sys.stdin:
    asked = json.loads(line)
    os.chdir(asked["folder"])
    before = dict(os.environ)
    os.environ.update(asked["settings"])
    sys.argv = asked["words"]
    out, err, stdin = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(asked["stdin"].encode()), encoding="utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main()
        except SystemExit as end:
            code = end.code
    sys.stdin = stdin
    os.environ.clear()
    os.environ.update(before)
    print(json.dumps([code or 0, out.getvalue(), err.getvalue()]), flush=True)
"""


class Server:
    """A running process; `run` gives it one command after another."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, folder: Path, words: list[str], stdin: str, settings: Mapping[str, str]) -> Ended:
        """Run `facetline WORDS` in a folder, with these settings on top of the process's own."""
        asked = {"folder": str(folder), "words": ["facetline", *words], "stdin": stdin, "settings": dict(settings)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return Ended(*json.loads(self._process.stdout.readline()))


@contextmanager
def serving(given: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run the process; one that does not end is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVE],
        env=environment(given or {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Server(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:  # in the middle of a command that does not end
                process.kill()


class ServedPlace(Place):
    """A working directory whose commands run in the process that stays; `start` still makes a process."""

    def __init__(self, folder: Path, server: Server, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, settings)
        self._server = server

    def run(self, *words: str | Path, stdin: str | None = None, settings: Mapping[str, str] | None = None) -> Ended:
        """Run a command to its end."""
        given: dict[str, Any] = {**self.settings, **(settings or {})}
        return self._server.run(self.folder, [str(word) for word in words], stdin or "", given)
