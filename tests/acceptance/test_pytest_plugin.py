"""The pytest plugin as people use it: in a folder of their own, with pytest in a process of its own.

Method: the tests of docs/testing.md and some that must fail, run as a whole once with live calls that are recorded, and
then without; each live call leaves a line in a file.
"""

import asyncio
import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import commands
import documented
import kafka_topics
import pytest

LIMIT_S = 110

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
MODULE = """
from pathlib import Path
from facetline.evaluators.contract import Evaluated, Identity, Limits
from facetline.facets.answers import ChoiceAnswer
from facetline.facets.collections import define_collection
from facetline.facets.questions import choice

class Counted:
    kind = "counted"
    identity = Identity("counted", "counted-1")
    limits = Limits(question_types=frozenset({"choice"}), options_max=9, levels_max=0)
    async def evaluate(self, body, questions, *, key, deadline_s):
        with (Path(__file__).parent / "live.log").open("a") as file:
            file.write(body + "\\n")
        choice = "billing" if "charged" in body.lower() else "other"
        return Evaluated({"topic": ChoiceAnswer(choice=choice, confidence=0.75)}, "counted-1", "words")
    async def close(self):
        pass

questions = {"topic": choice(ask="About?", options={"billing": "Money", "other": "Anything else"})}
collections = [define_collection(name="tickets", pattern="tickets/*", evaluator=Counted(), questions=questions)]
"""
MORE = """
import pytest

pytestmark = pytest.mark.usefixtures("facetline_recorded")

def test_data_is_the_tests_own(facetline_pipeline):
    assert facetline_pipeline.search("tickets")["total"] == 0

def test_documents_can_be_looked_at(facetline_replay, facetline_pipeline):
    found = facetline_replay("tickets.events.ndjson")
    assert sorted(found) == ["tickets/t1", "tickets/t2"]
    assert facetline_pipeline.delete("tickets/t1")["status"] == "deleted"
    assert sorted(facetline_pipeline.documents()) == ["tickets/t2"]

@pytest.mark.facetline(kafka=True)
def test_kafka_is_asked_for(facetline_pipeline):
    written = facetline_pipeline.write("tickets/t1", body="Charged again, 3")
    assert written["facets"]["topic"]["choice"] == "billing"
    print("topics of", facetline_pipeline.settings.kafka.topic_prefix)
"""
ASYNC = """
async def test_asynchronous_tests_may_use_it(facetline_recorded, facetline_pipeline):
    written = facetline_pipeline.write("tickets/t1", body="Charged again, 3")
    assert written["facets"]["topic"]["choice"] == "billing"
"""
WITH_ASYNCIO = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function", "tests/test_async.py")
GOOD = ("tests/test_documented.py", "tests/test_more.py")
WITHOUT_ASYNCIO = ("-p", "no:asyncio")
WRONG = """
import pytest

@pytest.mark.facetline(calls="none.ndjson")
def test_no_calls(facetline_pipeline): pass

@pytest.mark.facetline(call="calls.ndjson")
def test_no_mark(facetline_pipeline): pass

@pytest.mark.facetline(config="costly.toml")
def test_no_money(facetline_pipeline): pass

@pytest.mark.facetline(config="broken.toml")
def test_no_project(facetline_pipeline): pass

def test_no_expectation(facetline_recorded, facetline_replay):
    facetline_replay("tickets.events.ndjson", expected="missing.facets.ndjson")

def test_no_events(facetline_recorded, facetline_replay):
    facetline_replay("damaged.ndjson")

def test_no_call_was_recorded(facetline_recorded, facetline_pipeline):
    written = facetline_pipeline.write("tickets/t9", body="Never recorded")
    assert written["reason"] == "evaluator_error", written

def test_other_facets(facetline_recorded, facetline_replay):
    facetline_replay("tickets.events.ndjson", expected="other.facets.ndjson")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with tests, whose calls and facets have been recorded by a first run, with pytest-asyncio."""
    made = tmp_path_factory.mktemp("project")
    tests = made / "tests"
    tests.mkdir()
    (made / "facetline.toml").write_text('collections = "ours:collections"\n')
    (made / "ours.py").write_text(MODULE)
    (made / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tests / "costly.toml").write_text(COSTLY)
    (tests / "broken.toml").write_text("[collections.tickets]\n")
    (tests / "tickets.events.ndjson").write_text("".join(json.dumps(each) + "\n" for each in documented.EVENTS))
    (tests / "damaged.ndjson").write_text("{\n")
    (tests / "test_documented.py").write_text(
        "\n\n".join(b.text for b in documented.blocks("docs/testing.md", "python"))
    )
    (tests / "test_more.py").write_text(MORE)
    (tests / "test_async.py").write_text(ASYNC)
    done = run(made, *GOOD, *WITH_ASYNCIO, "--facetline-calls=record", "--facetline-update")
    assert done.returncode == 0, done.stdout + done.stderr
    return made


COSTLY = """
[evaluators.hosted]
kind = "chat"
model = "openai/some-model"
[collections.tickets]
pattern = "tickets/*"
evaluator = "hosted"
[collections.tickets.questions.topic]
type = "choice"
ask = "?"
options = { billing = "Money", other = "Anything else" }
"""


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run pytest in a folder; the plugin comes by its entry point where that is installed."""
    installed = any(
        each.value == "facetline.streams.testing.plugin" for each in importlib.metadata.entry_points(group="pytest11")
    )
    words = [] if installed else ["-p", "facetline.streams.testing.plugin"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *words, *arguments],
        cwd=folder,
        env=commands.environment({"FACETLINE_STORE_URL": "sqlite:////nobodys/store.db"}),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def live(folder: Path) -> list[str]:
    """The bodies of live calls, each once for every call."""
    return (folder / "live.log").read_text().splitlines()


def test_recorded_tests_pass_without_a_call(folder: Path):
    """The page's tests and others pass a second time, now without pytest-asyncio, and no model is called."""
    before = live(folder)
    done = run(folder, *GOOD, *WITHOUT_ASYNCIO)

    assert done.returncode == 0, done.stdout + done.stderr
    assert live(folder) == before
    assert "needs a Kafka: pytest --facetline-kafka=" in done.stdout
    assert before
    assert len(before) == len(set(before))


@pytest.mark.kafka
def test_kafka_runs_when_it_is_asked_for(folder: Path, kafka_bootstrap: str):
    """With an address the marked test runs through the broker, with recorded calls, on topics that are gone then."""
    before = live(folder)
    which = "tests/test_more.py::test_kafka_is_asked_for"
    done = run(folder, *WITHOUT_ASYNCIO, which, f"--facetline-kafka={kafka_bootstrap}")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert live(folder) == before
    (prefix,) = re.findall(r"^topics of (test-\w+)$", done.stdout, re.MULTILINE)
    assert [name for name in asyncio.run(kafka_topics.names(kafka_bootstrap)) if name.startswith(prefix)] == []


def test_what_is_wrong_is_said(folder: Path):
    """Each mistake fails its test with a message that names the way out; a difference names document and question."""
    expected = (folder / "tests" / "tickets.facets.ndjson").read_text()
    (folder / "tests" / "other.facets.ndjson").write_text(
        expected.replace('"billing", "confidence": 0.75', '"other", "confidence": 0.5')
    )
    (folder / "tests" / "test_wrong.py").write_text(WRONG)
    before = live(folder)
    done = run(folder, *WITHOUT_ASYNCIO, "tests/test_wrong.py")
    said = dict(re.findall(r"^(?:FAILED|ERROR) tests/test_wrong.py::(\w+) - (.*)$", done.stdout, re.MULTILINE))

    assert sorted(said) == sorted(set(re.findall(r"test_\w+(?=\()", WRONG)) - {"test_no_call_was_recorded"})
    for name, words in {
        "test_no_calls": "pytest --facetline-calls=record makes it",
        "test_no_mark": "the mark takes config, calls, kafka by name, not call",
        "test_no_money": "evaluator 'hosted' may cost money",
        "test_no_project": "collection 'tickets'",
        "test_no_expectation": "pytest --facetline-update writes it",
        "test_no_events": "1 lines of damaged.ndjson were refused",
        "test_other_facets": "2 of 2 documents differ",
    }.items():
        assert words in done.stdout, name
    assert "tickets/t1: topic: expected other (confidence 0.5), got billing (confidence 0.75)" in done.stdout
    assert live(folder) == before
