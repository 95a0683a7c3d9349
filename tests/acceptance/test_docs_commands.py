"""Every example of the documentation runs as it stands: shell and Python, on the local runtime and on a real Kafka.

Method: a page's blocks run in order, in one folder, as a reader would type them; a block ends with the exit code that
stands beside its language (`exit=1`), else with 0. `kafka` marks what needs a broker, `background` what runs on until
it is told to stop, `kcat` what needs that tool.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import commands
import documented
import pytest
from commands import Ended
from documented import PAGES, Block
from served import ServedPlace, serving

LIMIT_S = 120
KAFKA_IN_EXAMPLES = "127.0.0.1:9092"
# Python blocks await at the top level, as in an asyncio REPL; a `pipeline` that they do not open is open already.
RUN_PYTHON = """
import ast, asyncio, inspect, sys
for block in sys.argv[1:]:
    if "pipeline." in block and "open_local" not in block:
        lines = "".join(f"    {line}\\n" for line in block.splitlines())
        block = "from facetline.streams.local import open_local\\nasync with open_local() as pipeline:\\n" + lines
    code = compile(block, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    made = eval(code, {"__name__": "block"})
    if inspect.iscoroutine(made):
        asyncio.run(made)
"""


def shell_blocks(page: str, *, kafka: bool) -> list[Block]:
    """A page's shell blocks that run facetline, on one of the runtimes."""
    found = [block for block in documented.blocks(page, "sh") if ("kafka" in block.words) is kafka]
    return [block for block in found if re.search(r"^[^#]*\bfacetline\b", block.text, re.MULTILINE)]


def python_blocks(page: str) -> list[Block]:
    """A page's Python blocks; cells of a notebook are one program, and have a test of their own."""
    return [block for block in documented.blocks(page, "python") if "notebook" not in block.words]


def pages(*, kafka: bool) -> list[str]:
    """The pages with such blocks."""
    return [page for page in PAGES if shell_blocks(page, kafka=kafka)]


def prepared(folder: Path, page: str) -> dict[str, str]:
    """Make the folder that a page's examples run in; return the environment, with the command on its path."""
    documented.files(folder)
    if page != "README.md":  # it begins with `facetline init`, the others have documents already
        documented.project(folder)
    bin_ = folder / "bin"
    bin_.mkdir()
    script = bin_ / "facetline"
    python = shlex.quote(sys.executable)
    script.write_text(f'#!/bin/sh\nexec {python} -c "from facetline.streams.cli.main import main; main()" "$@"\n')
    script.chmod(0o755)
    environment = commands.environment({"PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"})
    if page != "README.md":
        run(Block(page, 0, (), "facetline import tickets.ndjson --collection tickets"), folder, environment)
    return environment


def run(block: Block, folder: Path, environment: dict[str, str], text: str | None = None) -> None:
    """Run a block in a shell that stops at the first failure, and compare its end with what the page says."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text or block.text],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == block.code, f"{block.place}\n{done.stdout}\n{done.stderr}"


def plain_lines(block: Block) -> list[list[str]] | None:
    """Return the words of each command; None when a line of the block needs a shell."""
    lines = [shlex.split(line, comments=True) for line in block.text.splitlines()]
    needs_shell = any(mark in block.text for mark in ("|", "$", "export", "\\\n"))
    return None if needs_shell else [words for words in lines if words]


def run_served(block: Block, lines: list[list[str]], place: ServedPlace) -> None:
    """Run a block's commands, and compare the end of the first that fails, or of the last, with what the page says."""
    done = Ended(0, "", "")
    for words in lines:
        assert words[0] == "facetline", block.place
        done = place.run(*words[1:])
        if done.code:
            break
    assert done.code == block.code, f"{block.place}\n{done.out}\n{done.err}"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", pages(kafka=False))
def test_shell_examples_run(page: str, tmp_path: Path):
    """On the local runtime each shell block of a page ends as the page says, one after another.

    What is marked `background` runs from its place to the end of the page, and then stops when told to.
    """
    environment = prepared(tmp_path, page)

    with serving() as server, contextlib.ExitStack() as running_on:
        place = ServedPlace(tmp_path, server)
        for block in shell_blocks(page, kafka=False):
            lines = plain_lines(block)
            if "background" in block.words:
                running_on.enter_context(background(block.text.partition("#")[0].strip(), tmp_path, environment))
            elif lines is None:
                run(block, tmp_path, environment)
            else:
                run_served(block, lines, place)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)])
def test_python_examples_run(page: str, tmp_path: Path):
    """Each Python block of a page runs without an error."""
    documented.project(tmp_path)
    found = [textwrap.dedent(block.text) for block in python_blocks(page)]

    done = subprocess.run(
        [sys.executable, "-c", RUN_PYTHON, *found],
        cwd=tmp_path,
        env=commands.environment({}),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@contextmanager
def background(text: str, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run a command until the end; it must take a SIGTERM and end with 0. A server says when it is there."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec {text}"], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        if "serve" in text.split() and process.stdout is not None:
            assert process.stdout.readline().startswith(b"serving on http://127.0.0.1:"), process.communicate()
        yield
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, said
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", pages(kafka=True))
def test_kafka_examples_run(page: str, tmp_path: Path, kafka_bootstrap: str, topic_prefix: str):
    """With a real Kafka and a worker the blocks marked `kafka` end as the page says; kcat's where it is installed."""
    environment = prepared(tmp_path, page)
    environment["FACETLINE_KAFKA__BOOTSTRAP_SERVERS"] = kafka_bootstrap
    environment["FACETLINE_KAFKA__TOPIC_PREFIX"] = environment["FACETLINE_KAFKA__GROUP_ID"] = topic_prefix
    blocks = shell_blocks(page, kafka=True)

    def fitted(block: Block) -> str:
        own = block.text.replace(KAFKA_IN_EXAMPLES, kafka_bootstrap)
        return own.replace("facetline.documents.v1", f"{topic_prefix}.documents.v1").replace(
            "facetline.facets.v1", f"{topic_prefix}.facets.v1"
        )

    with_worker = [block for block in blocks if "background" in block.words]
    others = [block for block in blocks if "background" not in block.words]
    run(others[0], tmp_path, environment, "facetline topics create")
    with background((with_worker[0].text if with_worker else "facetline worker").strip(), tmp_path, environment):
        for block in others:
            if "kcat" not in block.words or shutil.which("kcat"):
                run(block, tmp_path, environment, fitted(block))
