"""`facetline replay` as people run it, on the local runtime: what it prints, what it refuses, how it ends."""

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import documented
import pytest
from commands import Place, finish
from polling import eventually
from served import ServedPlace, Server

KAFKA = {"FACETLINE_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"}


@pytest.fixture
def place(tmp_path: Path, server: Server) -> Place:
    """A folder with the project of the reference, and recorded events."""
    documented.project(tmp_path)
    documented.files(tmp_path)
    return ServedPlace(tmp_path, server)


def lines(*changes: dict[str, Any]) -> str:
    """The recorded events, each with changes of its own."""
    events = [{**event, **change} for event, change in zip(documented.EVENTS, changes, strict=False)]
    return "".join(json.dumps(event) + "\n" for event in events)


def test_a_replay_says_what_became_of_the_events(place: Place):
    """The first time all are applied and answered, the second time all are known; programs read the same in JSON."""
    first = place.run("replay", "events.ndjson")
    second = place.run("replay", "events.ndjson", "--json")
    found = place.run("get", "tickets/t1", "--json").json

    assert (first.code, first.out) == (0, "4 sent, 4 applied, 0 unchanged, 0 known before, 0 refused\n")
    assert second.json == {
        "dry_run": False,
        "sent": 4,
        "applied": 0,
        "unchanged": 0,
        "known": 4,
        "rejected": {},
        "refused": [],
    }
    assert found["facets"]["topic"]["choice"] == "billing"
    assert found["calls"]["made"] == 1


def test_refused_lines_are_named_and_the_rest_is_sent(place: Place):
    """From standard input: a line that is no record, and one that no collection takes, with their reasons."""
    text = lines({}, {"key": "nobodys/t1"}, {}) + "{\n"
    done = place.run("replay", "-", stdin=text)
    rejected = place.run("replay", "-", stdin=lines({"key": "tickets/t3", "payload": '{"state": {"priority": 1}}'}))

    assert (done.code, done.out) == (1, "2 sent, 2 applied, 0 unchanged, 0 known before, 2 refused\n")
    assert "line 2 refused, unknown_collection: " in done.err
    assert "line 4 refused, it is not one JSON object" in done.err
    assert rejected.out == "1 sent, 0 applied, 0 unchanged, 0 known before, 1 rejected (id_reused), 0 refused\n"


def test_a_pipe_that_stays_open_is_replayed_as_it_comes(place: Place):
    """An event is applied while the pipe waits for the next one; its end ends the command."""
    process = place.start("replay", "-", "--wait", "applied", stdin=subprocess.PIPE)
    process.stdin.write(lines({}))
    process.stdin.flush()
    until(lambda: place.run("get", "tickets/t1").code == 0, what="the first event is applied")
    process.stdin.write(lines({}, {}))
    done = finish(process)

    assert (done.code, done.out) == (0, "3 sent, 2 applied, 0 unchanged, 1 known before, 0 refused\n")


def until(condition: Callable[[], bool], *, what: str) -> None:
    """Wait for a condition, for a while."""

    async def wait() -> None:
        await eventually(condition, deadline_s=60, what=what)

    asyncio.run(wait())


def test_a_dry_run_touches_nothing(place: Place):
    """Lines are judged by facetline.toml; no store is made, no broker asked."""
    done = place.run("replay", "-", "--dry-run", stdin=lines({}, {"key": "nobodys/t1"}), settings=KAFKA)

    assert (done.code, done.out) == (1, "1 would be sent, 1 refused\n")
    assert "line 2 refused, unknown_collection" in done.err
    assert not (place.folder / ".facetline").exists()


@pytest.mark.parametrize(
    ("words", "settings", "said"),
    [
        (["missing.ndjson"], {}, "missing.ndjson cannot be read"),
        (["events.ndjson", "--speed", "fast"], {}, "neither max nor a number such as 1x"),
        (["events.ndjson", "--speed", "0x"], {}, "neither max nor a number such as 1x"),
        (["events.ndjson", "--speed", "nan"], {}, "neither max nor a number such as 1x"),
        (["events.ndjson", "--gap-max", "soon"], {}, "is no time"),
        (["events.ndjson", "--topic-prefix", "other"], {}, "belongs to the Kafka runtime"),
        (["events.ndjson", "--topic-prefix", "o/ther"], KAFKA, "topics are named by letters"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(place: Place, words: list[str], settings: dict[str, str], said: str):
    """Wrong options end with 2 and say what would be right."""
    done = place.run("replay", *words, settings=settings)

    assert (done.code, done.out) == (2, "")
    assert said in " ".join(done.err.replace("│", " ").split())


def test_a_broker_that_is_away_is_said(place: Place):
    """Nothing was sent, and the way to go on is the same command."""
    done = place.run("replay", "events.ndjson", "--wait", "none", settings={**KAFKA, "FACETLINE_WRITE_DEADLINE_S": "1"})

    assert done.code == 1
    assert "stopped after line 0: 0 sent" in done.err
    assert "127.0.0.1:1 does not answer" in done.err


def test_doctor_leaves_a_recording_alone(place: Place):
    """Looking after the installation adds no call to the file, and says where calls come from."""
    text = (place.folder / "facetline.toml").read_text()
    questions, _ = text.split("[collections.tickets.questions.urgent]")
    (place.folder / "facetline.toml").write_text(
        questions.replace('kind = "recorded" ', 'kind = "embedded" ').replace('path = "answers.ndjson"', "")
    )
    done = place.run("doctor", settings={"FACETLINE_CALLS": "record"})

    assert done.code == 0, done.out + done.err
    assert "triage is embedded, calls: record calls.ndjson" in done.out
    assert not (place.folder / "calls.ndjson").exists()
