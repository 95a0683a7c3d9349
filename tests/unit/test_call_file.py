"""Recorded calls in place of a model: recorded once, replayed without it, and never a live call where none may be.

Method: a real evaluator with a counter is wrapped; its calls are counted, the file is looked at as a reviewer would.
"""

import asyncio
import fcntl
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from facetline.evaluators import factory
from facetline.evaluators.call_file import CallFile, FromFile, Mode
from facetline.evaluators.contract import Evaluated, Identity, Limits
from facetline.facets import definitions
from facetline.facets.answers import BooleanAnswer, ChoiceAnswer
from facetline.facets.errors import EvaluationFailed, EvaluatorMisconfigured, EvaluatorUnavailable
from facetline.facets.questions import Question, boolean, choice

ASKED: dict[str, Question] = {
    "topic": choice(ask="About?", options={"billing": "Money", "other": "Else"}),
    "urgent": boolean(ask="Today?"),
}


class Counted:
    """Answers by the first letter of a body: b and o are topics, others go wrong in their own ways."""

    kind = "counted"
    limits = Limits(question_types=frozenset({"choice", "boolean"}), options_max=9, levels_max=0)

    def __init__(self, model: str = "counted-1") -> None:
        self.identity = Identity("counted", model)
        self.calls = 0
        self.closed = 0

    async def evaluate(self, body: str, questions: Mapping[str, Question], *, key: str, deadline_s: float) -> Evaluated:
        """Answer, or fail, and count."""
        self.calls += 1
        if body.startswith("refuse"):
            message = "Not by me; ask at https://model.example.org/v1?key=1 with sk-proj-0123456789abcdefghij"
            raise EvaluationFailed("refused", message)
        if body.startswith("later"):
            raise EvaluatorUnavailable("busy")
        topic = {"b": "billing", "o": "other"}.get(body[0], "nonsense")
        answers = {"topic": ChoiceAnswer(choice=topic, confidence=0.75), "urgent": BooleanAnswer(probability=0.25)}
        return Evaluated(answers, "counted-1-2026", "logprobs", {"total_tokens": 12}, 0.01, {"truncated": True})

    async def close(self) -> None:
        """Count."""
        self.closed += 1


def wrapped(folder: Path, mode: Mode, live: Counted | None = None) -> FromFile:
    """An evaluator on the folder's file."""
    return FromFile(live or Counted(), CallFile(folder / "calls.ndjson", mode))


async def ask(evaluator: FromFile, body: str) -> Evaluated:
    """Ask about a body."""
    return await evaluator.evaluate(body, ASKED, key="k", deadline_s=1)


def recorded(folder: Path) -> list[dict[str, object]]:
    """The file's lines."""
    return [json.loads(line) for line in (folder / "calls.ndjson").read_text(encoding="utf-8").splitlines()]


async def test_a_call_is_made_once_and_told_again(tmp_path: Path):
    """What was recorded is answered by the file: same answers, source and model, nothing used up, and said so."""
    live = Counted()
    evaluator = wrapped(tmp_path, "record", live)
    first, second = await ask(evaluator, "billing"), await ask(evaluator, "billing")
    await evaluator.close()
    replayed = await ask(wrapped(tmp_path, "replay"), "billing")

    assert live.calls == 1
    assert (first.cost_usd, second.cost_usd, second.usage) == (0.01, 0.0, None)
    assert second == replayed
    assert (replayed.answers, replayed.model) == (first.answers, "counted-1-2026")
    assert (replayed.confidence_source, replayed.notes) == ("logprobs", {"truncated": True, "recorded_call": True})
    assert [line["body"] for line in recorded(tmp_path)] == ["billing"]


async def test_without_a_recording_there_is_no_live_call(tmp_path: Path):
    """In replay what was not recorded just so fails: no model is asked, and the file stays as it is."""
    await ask(wrapped(tmp_path, "record"), "billing")
    before, live, other = recorded(tmp_path), Counted(), Counted("counted-2")

    for evaluator, body, asked in (
        (wrapped(tmp_path, "replay", live), "other", ASKED),
        (wrapped(tmp_path, "replay", live), "billing", {"urgent": ASKED["urgent"]}),
        (wrapped(tmp_path, "replay", other), "billing", ASKED),
    ):
        with pytest.raises(
            EvaluationFailed, match=r"calls\.ndjson has no call of counted .*FACETLINE_CALLS=record"
        ) as no:
            await evaluator.evaluate(body, asked, key="k", deadline_s=1)
        assert no.value.reason == "evaluator_error"
    assert (live.calls, other.calls) == (0, 0)
    assert recorded(tmp_path) == before


async def test_a_refusal_comes_again_and_keeps_no_secret(tmp_path: Path):
    """A permanent failure is recorded with its reason; addresses and what may be a key are not in the file."""
    with pytest.raises(EvaluationFailed):
        await ask(wrapped(tmp_path, "record"), "refuse this")
    with pytest.raises(EvaluationFailed, match="Not by me") as again:
        await ask(wrapped(tmp_path, "replay"), "refuse this")

    assert again.value.reason == "refused"
    assert recorded(tmp_path)[0]["error"] == {"reason": "refused", "message": "Not by me; ask at … with ***"}


async def test_a_call_whose_body_was_changed_by_hand_answers_nothing(tmp_path: Path):
    """The file shows what was asked, or it does not answer: neither from the file nor by a call that nobody expects."""
    await ask(wrapped(tmp_path, "record"), "billing")
    path, live = tmp_path / "calls.ndjson", Counted()
    path.write_text(path.read_text("utf-8").replace('"body": "billing"', '"body": "something else"'), "utf-8")

    for mode in ("record", "replay"):
        with pytest.raises(EvaluationFailed, match=r"calls\.ndjson: the body of the call .* restore it"):
            await ask(wrapped(tmp_path, mode, live), "billing")
    assert live.calls == 0


async def test_what_could_not_be_written_down_is_not_asked(tmp_path: Path):
    """A missing folder is told before a call is paid for, with the setting to mend; no call is made."""
    live = Counted()

    with pytest.raises(EvaluatorMisconfigured, match=r"calls\.ndjson cannot be written .*FACETLINE_CALLS_FILE"):
        await ask(wrapped(tmp_path / "missing", "record", live), "billing")
    assert live.calls == 0


@pytest.mark.parametrize(("body", "cost_usd"), [("billing", 0.01), ("nonsense", 0.01), ("refuse", None)])
async def test_a_call_that_could_not_be_written_down_was_paid_for(tmp_path: Path, body: str, cost_usd: float | None):
    """The file went away during the call: the error has what the call used up, for the ledger."""
    file = CallFile(tmp_path / "folder" / "calls.ndjson", "record")
    file.path.parent.mkdir()

    class Removing(Counted):
        """Loses the file's folder during its call."""

        async def evaluate(self, body: str, questions: Mapping[str, Question], **how: Any) -> Evaluated:
            """Answer after the folder is gone."""
            file.path.unlink(missing_ok=True)
            file.path.parent.rmdir()
            return await super().evaluate(body, questions, **how)

    with pytest.raises(EvaluatorMisconfigured) as failed:
        await ask(FromFile(Removing(), file), body)

    assert getattr(failed.value.spent, "cost_usd", None) == cost_usd


async def test_answers_that_do_not_fit_fail_again(tmp_path: Path):
    """What the validator refuses is recorded as its refusal; the answer goes to the pipeline, which refuses it."""
    said = await ask(wrapped(tmp_path, "record"), "xyz")
    with pytest.raises(EvaluationFailed) as again:
        await ask(wrapped(tmp_path, "replay"), "xyz")

    assert said.answers["topic"] == ChoiceAnswer(choice="nonsense", confidence=0.75)
    assert again.value.reason == "invalid_answer"


async def test_what_passes_by_itself_is_not_recorded(tmp_path: Path):
    """A provider that is busy is asked again the next time."""
    live = Counted()
    evaluator = wrapped(tmp_path, "record", live)
    for _ in range(2):
        with pytest.raises(EvaluatorUnavailable):
            await ask(evaluator, "later")

    assert live.calls == 2
    assert not (tmp_path / "calls.ndjson").exists()


async def test_the_fingerprint_is_the_live_ones(tmp_path: Path):
    """Kind, identity and limits are the wrapped evaluator's (a replay is free), the line names their fingerprint."""
    live = Counted()
    evaluator = wrapped(tmp_path, "record", live)
    await ask(evaluator, "billing")

    assert (evaluator.kind, evaluator.identity, evaluator.limits) == (live.kind, live.identity, live.limits)
    assert wrapped(tmp_path, "replay").limits == replace(live.limits, is_free=True)
    assert recorded(tmp_path)[0]["evaluator"] == {
        "kind": "counted",
        "model": "counted-1",
        "fingerprint": definitions.fingerprint(ASKED, factory.fingerprint_identity(live.identity)),
    }


async def test_a_damaged_file_stops_the_evaluator(tmp_path: Path):
    """Nobody's document fails for a damaged recording: the evaluator is misconfigured, and the line is named."""
    (tmp_path / "calls.ndjson").write_text("{\n")

    with pytest.raises(EvaluatorMisconfigured, match=r"calls\.ndjson, line 1"):
        await ask(wrapped(tmp_path, "replay"), "billing")


async def test_closing_closes_the_wrapped_evaluator(tmp_path: Path):
    """What the live evaluator has opened is released."""
    live = Counted()
    await wrapped(tmp_path, "record", live).close()

    assert live.closed == 1


async def test_processes_take_turns_at_one_file(tmp_path: Path):
    """A line is not written, nor anything cut off, while another process writes; then both stand whole."""
    path = tmp_path / "calls.ndjson"
    with path.open("ab") as other, ThreadPoolExecutor(1) as thread:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(b'{"half')
        other.flush()
        asked = thread.submit(asyncio.run, ask(wrapped(tmp_path, "record"), "billing"))
        waited, _ = wait([asked], timeout=0.3)
        other.write(b' a line": "by another process"}\n')
        other.flush()
        fcntl.flock(other, fcntl.LOCK_UN)
        asked.result(timeout=10)

    assert not waited
    assert [line.get("body", line) for line in recorded(tmp_path)] == [
        {"half a line": "by another process"},
        "billing",
    ]
