"""Recorded calls: what is written is read back, keys cover what answers depend on, damage is named."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from facetline.evaluators.contract import Evaluated, Identity
from facetline.evaluators.recorded import recordings
from facetline.evaluators.recorded.recordings import Asker, Call, InvalidRecording, Problem
from facetline.facets.answers import BooleanAnswer, ChoiceAnswer, ScoreAnswer
from facetline.facets.questions import boolean, choice, score

QUESTIONS = {
    "topic": choice(ask="About?", options={"billing": "Money", "other": "Else"}),
    "urgent": boolean(ask="Today?"),
    "severity": score(ask="How bad?", levels=["low", "high"]),
}
IDENTITY = Identity("chat", "some/model", {"temperature": 0}, "3")
ASKER = Asker("chat", "some/model", "f" * 64)
ANSWERS = {
    "topic": ChoiceAnswer(choice="billing", confidence=0.9, probabilities={"billing": 0.9, "other": 0.1}),
    "urgent": BooleanAnswer(probability=0.25),
    "severity": ScoreAnswer(score=0.7),
}
SAID = Evaluated(ANSWERS, "some/model-1", "logprobs", {"input_tokens": 12}, 0.002, {"truncated": True})


def call(body: str = "Zu viel bezahlt", *, said: Evaluated | None = SAID, error: Problem | None = None) -> Call:
    """A call about a body."""
    return Call(recordings.key_of(IDENTITY, QUESTIONS, body), body, ASKER, 12.5, said, error)


def with_latency(number: str) -> str:
    """A call's line in which its time was written by hand."""
    return recordings.encode(call(), QUESTIONS).replace('"latency_ms": 12.5', f'"latency_ms": {number}')


@pytest.mark.parametrize("given", [call(), call(said=None, error=Problem("refused", "no")), call('\u2028 \\ "ü\n')])
def test_what_is_written_is_read_back(given: Call, tmp_path: Path):
    """A call survives the file exactly: answers, usage, cost, notes, time and failure."""
    with recordings.Writer(tmp_path / "calls.ndjson") as file:
        file.append(given, QUESTIONS)

    assert recordings.read(tmp_path / "calls.ndjson") == {given.key: given}


def test_a_line_is_one_that_people_can_review():
    """The members come in a fixed order, the body in plain letters, on one line."""
    line = recordings.encode(call("Größe"), QUESTIONS)

    assert list(json.loads(line)) == [name for name in recordings.LINE_KEYS if name != "error"]
    assert "Größe" in line
    assert "\n" not in line


def test_the_key_covers_all_that_an_answer_depends_on():
    """Another model, version, parameter, question, kind or body is another key; the order of questions is not."""
    base = recordings.key_of(IDENTITY, QUESTIONS, "b")
    others = [
        recordings.key_of(Identity("chat", "x", {"temperature": 0}, "3"), QUESTIONS, "b"),
        recordings.key_of(Identity("decisions", "some/model", {"temperature": 0}, "3"), QUESTIONS, "b"),
        recordings.key_of(Identity("chat", "some/model", {"temperature": 1}, "3"), QUESTIONS, "b"),
        recordings.key_of(Identity("chat", "some/model", {"temperature": 0}, "4"), QUESTIONS, "b"),
        recordings.key_of(IDENTITY, {**QUESTIONS, "urgent": boolean(ask="Now?")}, "b"),
        recordings.key_of(IDENTITY, QUESTIONS, "c"),
    ]

    assert len({base, *others}) == len(others) + 1
    assert recordings.key_of(IDENTITY, dict(reversed(QUESTIONS.items())), "b") == base


def test_a_torn_last_line_is_lost_alone(tmp_path: Path):
    """After a kill in the middle of a line the others are read, and what is appended next stands on its own line."""
    path = tmp_path / "calls.ndjson"
    with recordings.Writer(path) as file:
        file.append(call("one"), QUESTIONS)
    path.write_bytes(path.read_bytes() + recordings.encode(call("two"), QUESTIONS).encode()[:40])

    assert [each.body for each in recordings.read(path).values()] == ["one"]
    with recordings.Writer(path) as file:
        file.append(call("three"), QUESTIONS)
    assert [each.body for each in recordings.read(path).values()] == ["one", "three"]


def test_a_last_line_without_its_end_is_read_and_kept(tmp_path: Path):
    """An editor that leaves out the last line's end loses no call, neither for a reader nor for the next writer."""
    path = tmp_path / "calls.ndjson"
    lines = [recordings.encode(call(body), QUESTIONS) for body in ("one", "two")]
    path.write_text("\n".join(lines), encoding="utf-8")

    assert [each.body for each in recordings.read(path).values()] == ["one", "two"]
    with recordings.Writer(path) as file:
        file.append(call("three"), QUESTIONS)
    assert [each.body for each in recordings.read(path).values()] == ["one", "two", "three"]


def test_a_call_that_shows_another_body_is_refused():
    """What a reviewer reads is what is answered: a line whose body was changed by hand does not answer for its key."""
    given = call("one")

    assert recordings.find({given.key: given}, given.key, "one") == given
    assert recordings.find({given.key: given}, call("two").key, "two") is None
    with pytest.raises(InvalidRecording, match=f"{given.key} is not the one it was made about"):
        recordings.find({given.key: replace(given, body="redacted")}, given.key, "one")


def test_of_equal_calls_the_last_counts(tmp_path: Path):
    """A call that was made again is the one that is found."""
    with recordings.Writer(tmp_path / "calls.ndjson") as file:
        file.append(call(said=None, error=Problem("timeout", "late")), QUESTIONS)
        file.append(call(), QUESTIONS)

    assert [each.error for each in recordings.read(tmp_path / "calls.ndjson").values()] == [None]


def test_a_missing_file_holds_no_calls(tmp_path: Path):
    """The first run has nothing to read yet."""
    assert recordings.read(tmp_path / "none.ndjson") == {}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not one JSON object"),
        ("[]", "not a JSON object"),
        ('{"kez": 1}', "unknown member 'kez'"),
        ('{"key": 1}', "'evaluator' is missing"),
        ('{"latency_ms": NaN}', "NaN is no number"),
        ('{"key": "a", "key": "b"}', "'key' is there twice"),
        (with_latency("1e999"), "'latency_ms' is from 0"),
        (with_latency("1" + "0" * 400), "'latency_ms' is from 0"),
        (with_latency("-1"), "'latency_ms' is from 0"),
        (with_latency('1, "notes": ["truncated"]').replace('"notes": {"truncated": true}, ', ""), "'notes' is missing"),
        (with_latency('1, "cost_usd": "2"').replace('"cost_usd": 0.002, ', ""), "'cost_usd' is missing"),
        (json.dumps({**json.loads(recordings.encode(call(), QUESTIONS)), "answers": {"topic": 1}}), "facet value"),
        (
            json.dumps({k: v for k, v in json.loads(recordings.encode(call(), QUESTIONS)).items() if k != "answers"}),
            "neither answers nor an error",
        ),
    ],
)
def test_damage_is_named(line: str, message: str, tmp_path: Path):
    """A damaged line is refused with its number and what is wrong with it."""
    path = tmp_path / "calls.ndjson"
    path.write_text(recordings.encode(call(), QUESTIONS) + "\n" + line + "\n", encoding="utf-8")

    with pytest.raises(InvalidRecording, match="line 2") as caught:
        recordings.read(path)
    assert message in str(caught.value)


def test_no_address_and_no_key_gets_in():
    """What a provider's error says is written down without what others must not read."""
    error = Problem("refused", "key sk-proj-0123456789abcdefghij at https://user:pass@host.example/v1 refused: no")
    line = recordings.encode(call(said=None, error=error), QUESTIONS)

    assert json.loads(line)["error"]["message"] == "key … at … refused: no"
