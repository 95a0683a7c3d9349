"""The pipeline as blocking calls: the same verbs, errors as they are, and nothing left behind when it is closed.

Method: the real local runtime with recorded answers, in this process; interrupts and forks in fresh ones.
"""

import asyncio
import inspect
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from facetline.facets import errors
from facetline.streams.blocking_pipeline import BlockingPipeline
from facetline.streams.local import open_local
from facetline.streams.pipeline import NewDocument, Pipeline, new_id

CONFIG = """
[evaluators.fixed]
kind = "recorded"
path = "answers.ndjson"

[collections.tickets]
pattern = "tickets/*"
evaluator = "fixed"

[collections.tickets.questions.topic]
type = "choice"
ask = "About?"
options = { billing = "Money", outage = "Down" }
"""
ANSWER = {"body": "charged twice", "answers": {"topic": {"type": "choice", "choice": "billing", "confidence": 0.9}}}
OF_THE_LOOP = {"close", "asked_by", "follower", "follow_by"}
"""What is `close` of both, or for parts that run in the pipeline's own loop."""
SCRIPT_S = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a configuration and recorded answers."""
    (tmp_path / "facetline.toml").write_text(CONFIG)
    (tmp_path / "answers.ndjson").write_text(json.dumps(ANSWER) + "\n")
    return tmp_path


@pytest.fixture
def pipeline(folder: Path) -> Iterator[BlockingPipeline]:
    """A pipeline on that folder."""
    with open_local(config=folder / "facetline.toml", folder=folder / "data") as opened:
        yield opened


def script(folder: Path, text: str) -> "subprocess.Popen[str]":
    """Start a plain script there, with `p` open."""
    opening = "from facetline.streams.local import open_local\np = open_local().open()\n"
    return subprocess.Popen(
        [sys.executable, "-c", opening + text],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_every_verb_of_the_pipeline_is_there_with_its_arguments():
    """A verb that is added to one face and not to the other is missed here."""
    verbs = {name for name, each in vars(Pipeline).items() if not name.startswith("_") and inspect.isfunction(each)}
    for name in verbs - OF_THE_LOOP:
        blocking = getattr(BlockingPipeline, name)
        assert inspect.signature(blocking) == inspect.signature(getattr(Pipeline, name)), name
        assert not inspect.iscoroutinefunction(blocking)


def test_all_verbs_do_what_the_asynchronous_ones_do(pipeline: BlockingPipeline):
    """Written, answered, found, read, written in bulk and deleted, without a word of asyncio."""
    written = pipeline.write("tickets/a", body="charged twice", wait="answered")
    active = pipeline.definitions()
    many = pipeline.write_many(active, [NewDocument("tickets/b", "charged twice", None, new_id())], source="test")
    found = pipeline.search("tickets", {"topic": ["billing"]}, min_confidence=0.5)
    gone = pipeline.delete("tickets/a")

    assert written["status"] == "indexed"
    assert [getattr(each, "outcome", None) for each in many] == ["applied"]
    assert "a" in found["keys"]
    assert gone["status"] == "deleted"
    assert pipeline.definition("tickets").name == "tickets"
    assert pipeline.get("tickets/b")["body"] == "charged twice"
    assert pipeline.warnings("tickets") == []


def test_errors_arrive_as_they_are(pipeline: BlockingPipeline):
    """What the asynchronous verb raises is raised, and the pipeline goes on."""
    with pytest.raises(errors.NotFound, match="tickets/never"):
        pipeline.get("tickets/never")
    with pytest.raises(errors.InvalidEvent):
        pipeline.write("nothing/here", body="…")
    with pytest.raises(errors.UnknownCollection):
        pipeline.search("ticket")

    assert pipeline.write("tickets/a", body="charged twice")["status"] == "indexed"


def test_a_refused_configuration_is_raised_and_leaves_no_thread(folder: Path):
    """An error of opening is the caller's, and the thread is gone."""
    before = set(threading.enumerate())
    (folder / "facetline.toml").write_text(
        CONFIG.replace('"fixed"\n\n[collections.tickets.q', '"other"\n\n[collections.tickets.q')
    )

    with pytest.raises(errors.PipelineError):
        open_local(config=folder / "facetline.toml", folder=folder / "data").open()

    assert set(threading.enumerate()) == before


def test_closing_leaves_no_thread_and_may_be_repeated(folder: Path):
    """After the end every thread of the pipeline is gone; a second close is harmless, a later call a clear error."""
    before = set(threading.enumerate())
    with open_local(config=folder / "facetline.toml", folder=folder / "data") as pipeline:
        pipeline.write("tickets/a", body="charged twice")
        pipeline.search("tickets")
    pipeline.close()

    assert set(threading.enumerate()) == before
    with pytest.raises(RuntimeError, match="is closed; open another one"):
        pipeline.search("tickets")


def test_an_error_in_the_body_closes_and_passes(folder: Path):
    """The caller's own exception leaves the `with` as it is."""
    with (
        pytest.raises(ZeroDivisionError),
        open_local(config=folder / "facetline.toml", folder=folder / "data") as opened,
    ):
        _ = 1 / 0

    with pytest.raises(RuntimeError, match="is closed"):
        opened.get("tickets/a")


async def test_it_works_where_a_loop_runs_already(folder: Path):
    """In a notebook's cell, where `asyncio.run` is refused; and both faces are there at once."""
    with open_local(config=folder / "facetline.toml", folder=folder / "data") as blocking:
        assert blocking.write("tickets/a", body="charged twice")["status"] == "indexed"
        async with open_local(config=folder / "facetline.toml", folder=folder / "data") as pipeline:
            assert (await pipeline.search("tickets"))["keys"] == ["a"]


def test_many_threads_share_one(pipeline: BlockingPipeline):
    """Calls of several threads are all served."""
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda number: pipeline.write(f"tickets/t{number}", body="charged twice"), range(24)))

    assert {reply["status"] for reply in replies} == {"indexed"}
    assert pipeline.search("tickets")["total"] == 24


def test_a_blocking_call_in_its_own_loop_is_refused(pipeline: BlockingPipeline):
    """It would wait for itself for ever: the error says to await."""

    async def inside(_: Pipeline) -> None:
        pipeline.get("tickets/a")

    with pytest.raises(RuntimeError, match="use 'await'"):
        pipeline._running.run(inside)


def test_a_call_that_times_out_by_itself_raises_its_own_error(pipeline: BlockingPipeline):
    """A TimeoutError of the work is not taken for the waiting of the caller's thread."""

    async def inside(_: Pipeline) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        pipeline._running.run(inside)


def test_ctrl_c_cancels_the_call_and_closes(folder: Path):
    """A script that waits for an answer that never comes ends by one Ctrl-C, with a KeyboardInterrupt and closed."""
    started = script(
        folder,
        "import asyncio, threading\n"
        "async def wait(_):\n    print('waits', flush=True)\n    await asyncio.Event().wait()\n"
        "try:\n    with p:\n        p._running.run(wait)\n"
        "except KeyboardInterrupt:\n    print('interrupted', threading.active_count(), flush=True)\n",
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "waits\n"
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=SCRIPT_S)

    assert (out, err, started.returncode) == ("interrupted 1\n", "", 0)


def test_a_forked_process_is_told_to_open_its_own(folder: Path):
    """In the child every call is refused by a clear error, close is harmless, and the parent goes on."""
    started = script(
        folder,
        "import os\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n        p.get('tickets/a')\n"
        "    except RuntimeError as error:\n        p.close(); print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(p.write('tickets/a', body='charged twice')['status'])\n"
        "p.close()\n",
    )
    out, err = started.communicate(timeout=SCRIPT_S)

    told, status = out.splitlines()
    assert "forked; open one in the new process" in told
    assert (status, started.returncode) == ("indexed", 0), err


def test_a_script_that_never_closes_ends(folder: Path):
    """A program is not held up by a pipeline that it forgot, and what it wrote is there."""
    out, err = script(folder, "print(p.write('tickets/a', body='charged twice')['status'])\n").communicate(
        timeout=SCRIPT_S
    )

    assert (out, err) == ("indexed\n", "")
    with open_local(config=folder / "facetline.toml", folder=folder / ".facetline") as later:
        assert later.get("tickets/a")["status"] == "indexed"
