"""The installed command in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HELPERS = Path(__file__).resolve().parent
SERVICES = HELPERS.parent / "services"
COMMAND = (sys.executable, "-c", "from facetline.streams.cli.main import main; main()")
LIMIT_S = 90.0
_MEASURING = (
    "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]);"
    " print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); sys.exit(code)"
)
"""A small parent: a process counts the memory of the one that it was forked from as its own."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON value; anything else on it is an error."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Standard output as NDJSON."""
        return [json.loads(line) for line in self.out.splitlines()]


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Our own environment without settings of Facetline but one, with the repository and the helpers importable.

    Workers of tests serve no HTTP unless told where: there are more of them at once than ports that they would try.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("FACETLINE_")}
    ours = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, HELPERS, SERVICES))), "FACETLINE_WORKER_HTTP": "off"}
    return {**own, **ours, **given}


class Place:
    """A working directory with settings, in which commands are run."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.settings = dict(settings or {})

    def start(self, *words: str | Path, settings: Mapping[str, str] | None = None, **options: Any) -> Any:
        """Start a command; its streams are pipes unless told otherwise."""
        usual = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        given = environment({**self.settings, **(settings or {})})
        return subprocess.Popen([*COMMAND, *map(str, words)], cwd=self.folder, env=given, **{**usual, **options})

    def feed(self, lines: Iterable[bytes], *words: str | Path) -> tuple[Any, float]:
        """Run a command on lines that are made as it reads them; return its JSON and its peak memory in megabytes."""
        command = [sys.executable, "-c", _MEASURING, *COMMAND, *map(str, words)]
        given = environment(self.settings)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with (
            subprocess.Popen(command, cwd=self.folder, env=given, **pipes) as process,
            ThreadPoolExecutor(2) as reading,
        ):
            out, err = reading.submit(process.stdout.read), reading.submit(process.stderr.read)
            for line in lines:
                process.stdin.write(line)
            process.stdin.close()
            said = err.result().decode()
        assert process.returncode == 0, said
        unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
        return json.loads(out.result()), int(said.splitlines()[-1]) / unit

    def run(self, *words: str | Path, stdin: str | None = None, settings: Mapping[str, str] | None = None) -> Ended:
        """Run a command to its end."""
        with self.start(*words, settings=settings, stdin=subprocess.PIPE) as process:
            return finish(process, stdin)


def finish(process: "subprocess.Popen[str]", stdin: str | None = None) -> Ended:
    """Wait for a command's end; one that does not end is killed."""
    try:
        out, err = process.communicate(stdin, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the command did not end within {LIMIT_S:g} s\n{out}\n{err}") from None
    return Ended(process.returncode, out, err)


def interrupt(process: "subprocess.Popen[str]") -> Ended:
    """Press Ctrl-C, and wait for the end."""
    process.send_signal(signal.SIGINT)
    return finish(process)
