"""Measuring evaluators: each different text asked once, nothing lost from the count, stops told, reports complete.

Method: the scripted fake evaluator, asked through the same functions as the command; keys of documents pick behaviours.
"""

import asyncio
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from fake_evaluator import FakeEvaluator, Held, said

from facetline.evaluators import factory
from facetline.evaluators.contract import Evaluated
from facetline.evaluators.recorded import recordings
from facetline.facets import collections
from facetline.facets.collections import define_collection
from facetline.facets.errors import EvaluationFailed, EvaluatorMisconfigured, EvaluatorUnavailable, Spent
from facetline.facets.questions import boolean, choice, score
from facetline.streams.classify.call import CallLimits
from facetline.streams.evaluation import markdown, reliability_plot, runner
from facetline.streams.evaluation import report as evaluation_report
from facetline.streams.evaluation.runner import Run, Subject
from facetline.streams.files.labelled import Labelled

QUESTIONS = {
    "topic": choice(ask="About?", options={"billing": "Money", "outage": "Down", "other": "Else"}),
    "urgent": boolean(ask="Today?"),
    "severity": score(ask="How bad?", levels=["low", "high"]),
}
DEFINITION = define_collection(name="tickets", pattern="tickets/*", evaluator="one", questions=QUESTIONS)


def subject(evaluator: FakeEvaluator, name: str = "one", **limits: Any) -> Subject:
    """The evaluator with the questions."""
    identity = evaluator.identity
    made = collections.definition_of(
        DEFINITION,
        evaluator_name=name,
        kind=identity.kind,
        model=identity.model,
        identity=factory.fingerprint_identity(identity),
    )
    return Subject(name, evaluator, made, CallLimits(**limits))


def rows(*labels: str, body: str | None = None) -> list[Labelled]:
    """Texts with these topics; keys are k1, k2 and so on."""
    return [
        Labelled(number, f"k{number}", body or f"text {number}", {"topic": topic})
        for number, topic in enumerate(labels, 1)
    ]


async def ran(run: Run, concurrency: int = 2, record: Any = None) -> Run:
    """Ask to the end."""
    await runner.ask(run, concurrency=concurrency, record=record, progress=lambda _made: None)
    return run


def only(runs: list[Run], texts: list[Labelled]) -> Any:
    """The first evaluator's part of the report, which is JSON."""
    return json.loads(json.dumps(evaluation_report.report(runs, texts), allow_nan=False))["evaluators"][0]


async def test_every_text_is_asked_once_in_bounded_concurrency():
    """As many calls as texts, never more at once than allowed."""
    evaluator, texts = FakeEvaluator(0.005), rows(*["billing"] * 9)
    run = await ran(runner.begun(subject(evaluator), texts, {}), concurrency=3)

    assert sum(evaluator.calls.values()) == 9
    assert evaluator.in_flight_most == 3
    assert only([run], texts)["answered"] == 9


async def test_equal_texts_cost_one_call_and_count_each():
    """Two lines with one body share an answer, and both are in the figures."""
    evaluator, texts = FakeEvaluator(), rows("billing", "outage", "billing", body="the same")
    run = await ran(runner.begun(subject(evaluator), texts, {}))
    found = only([run], texts)

    assert sum(evaluator.calls.values()) == 1
    assert (found["questions"]["topic"]["n"], found["questions"]["topic"]["right"]) == (3, 2)
    assert found["cost_usd"] == 0.25


async def test_known_calls_are_not_made_again(tmp_path: Path):
    """What the file has is read first, failures for good too; only what is new or failed for now is paid for."""
    evaluator, texts, path = FakeEvaluator(), rows(*["billing"] * 4), tmp_path / "calls.ndjson"
    evaluator.script("k2", EvaluationFailed("refused", "no"))
    evaluator.script("k3", EvaluatorUnavailable("away"))
    with recordings.Writer(path) as file:
        await ran(runner.begun(subject(evaluator), texts, {}), record=lambda call: file.append(call, QUESTIONS))
    again = FakeEvaluator()
    run = runner.begun(subject(again), texts, recordings.read(path))

    assert [row.key for row in run.waiting] == ["k3"]
    await ran(run)
    found = only([run], texts)
    assert again.calls == {"k3": 1}
    assert (found["answered"], found["failed"], found["calls"]) == (3, {"refused": 1}, {"made": 1, "recorded": 3})
    assert found["cost_usd"] == 0.75


async def test_a_recorded_answer_that_does_not_fit_is_asked_anew():
    """A hand-edited file cannot bring an answer in that the validator would refuse."""
    evaluator, texts = FakeEvaluator(), rows("billing")
    one = subject(evaluator)
    bad = Evaluated({**said("nonsense", QUESTIONS).answers}, "m", "test")
    call = recordings.Call(one.key(texts[0]), texts[0].body, one.asker, 1.0, bad)

    assert [row.key for row in runner.begun(one, texts, {call.key: call}).waiting] == ["k1"]


async def test_what_failed_is_counted_and_said():
    """Answered, failed for good, failed for now and invalid texts are told apart; none is dropped silently."""
    evaluator, texts = FakeEvaluator(), rows(*["billing"] * 5)
    evaluator.script("k2", EvaluationFailed("refused", "no", spent=Spent(cost_usd=0.5)))
    evaluator.script("k3", EvaluatorUnavailable("slow down", reason="rate_limited"))
    evaluator.script("k4", Evaluated(said("nonsense", QUESTIONS).answers, "m", "test", cost_usd=0.125))
    run = await ran(runner.begun(subject(evaluator), texts, {}), concurrency=1)
    found = only([run], texts)

    assert (found["lines"], found["answered"]) == (5, 2)
    assert found["failed"] == {"refused": 1, "invalid_answer": 1}
    assert found["failed_for_now"] == {"rate_limited": 1}
    assert (found["questions"]["topic"]["n"], found["questions"]["topic"]["labelled"]) == (2, 5)
    assert found["cost_usd"] == pytest.approx(2 * 0.25 + 0.5 + 0.125)
    text = markdown.markdown(evaluation_report.report([run], texts))
    assert "2 of 5 answered, 1 failed as `invalid_answer`, 1 failed as `refused`, 1 failed for now" in text
    assert "3 of 5 not answered, and not counted" in text


async def test_an_evaluator_that_is_not_set_up_is_asked_once():
    """A bad key stops the run after the calls that were on their way, and the report says why."""
    evaluator, texts = FakeEvaluator(EvaluatorMisconfigured("the key is refused")), rows(*["billing"] * 50)
    run = await ran(runner.begun(subject(evaluator), texts, {}), concurrency=1)

    assert sum(evaluator.calls.values()) == 1
    assert only([run], texts)["stopped"] == "the key is refused"


async def test_an_evaluator_that_keeps_failing_is_left_alone():
    """Five failures in a row end the run; one success between begins the count anew."""
    evaluator, texts = FakeEvaluator(EvaluatorUnavailable("away")), rows(*["billing"] * 50)
    evaluator.script("k4", "billing")
    run = await ran(runner.begun(subject(evaluator), texts, {}), concurrency=1)

    assert sum(evaluator.calls.values()) == 4 + 5
    assert "5 calls in a row failed" in (run.stopped or "")


async def test_a_run_costs_no_more_than_a_day():
    """It stops at the evaluator's own limit of dollars a day, counted anew in each run, and says so."""
    evaluator, texts = FakeEvaluator(), rows(*["billing"] * 50)
    evaluator.script("k2", EvaluationFailed("refused", "no", spent=Spent(cost_usd=0.5)))
    run = await ran(runner.begun(subject(evaluator, max_usd_per_day=1.0), texts, {}), concurrency=1)

    assert sum(evaluator.calls.values()) == 3
    assert "max_usd_per_day is 1" in (run.stopped or "")


async def test_a_call_that_takes_too_long_is_a_timeout():
    """The wall-clock limit of the evaluator holds here too."""
    evaluator, texts = FakeEvaluator(60.0), rows("billing")
    run = await ran(runner.begun(subject(evaluator, call_s=0.02), texts, {}))

    assert run.missed == {"timeout": 1}


async def test_requests_a_minute_are_kept():
    """Calls start evenly, no oftener than the evaluator's limit."""
    evaluator, texts = FakeEvaluator(), rows(*["billing"] * 4)
    await ran(runner.begun(subject(evaluator, requests_per_minute=3000), texts, {}), concurrency=4)
    starts = sorted(call.at_s for call in evaluator.history)

    assert starts[-1] - starts[0] >= 3 * 60 / 3000 * 0.95


async def test_an_interrupted_run_knows_what_had_ended():
    """When it is cancelled, the calls that ended are in the report, and those that did not are not."""
    evaluator, texts = FakeEvaluator(), rows(*["billing"] * 3)
    held = Held()
    evaluator.script("k2", held)
    run = runner.begun(subject(evaluator), texts, {})
    task = asyncio.create_task(ran(run, concurrency=1))
    while "k2" not in evaluator.calls:  # noqa: ASYNC110 (what the run does next is all there is to wait for)
        await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert only([run], texts)["answered"] == 1
    assert evaluator.in_flight == 0


async def test_a_full_disk_stops_the_calls():
    """What cannot be recorded is not paid for: the first error ends the run."""
    evaluator, texts = FakeEvaluator(), rows(*["billing"] * 9)

    def full(_call: recordings.Call) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        await ran(runner.begun(subject(evaluator), texts, {}), concurrency=1, record=full)
    assert sum(evaluator.calls.values()) == 1


async def test_evaluators_are_compared_where_both_answered():
    """The difference is that of the same texts, the first evaluator is what the others are compared with."""
    good, bad, texts = (
        FakeEvaluator("billing"),
        FakeEvaluator("outage"),
        rows("billing", "billing", "outage", "billing"),
    )
    bad.script("k4", EvaluationFailed("refused", "no"))
    runs = [runner.begun(subject(good, "good"), texts, {}), runner.begun(subject(bad, "bad"), texts, {})]
    for run in runs:
        await ran(run)
    report = evaluation_report.report(runs, texts)

    (gap,) = report["differences"]
    assert (gap["evaluator"], gap["against"], gap["question"], gap["n"]) == ("bad", "good", "topic", 3)
    assert gap["difference"] == pytest.approx(-1 / 3, abs=1e-6)
    text = markdown.markdown(report)
    assert "| bad | topic | 3 of 4 | 33.3% |" in text
    assert "| -33.3 points (" in text


async def test_answers_without_a_confidence_are_said_to_have_no_threshold():
    """A report of choices without a confidence says why it has no table of thresholds; one with them does not."""
    texts, told = rows("billing"), "No answer has a confidence"
    run = await ran(runner.begun(subject(FakeEvaluator("billing")), texts, {}))
    sure = evaluation_report.report([run], texts)
    unsure = evaluation_report.report([run], texts)
    unsure["evaluators"][0]["questions"]["topic"]["coverage"] = []

    assert told not in markdown.markdown(sure)
    assert told in markdown.markdown(unsure)


async def test_the_report_has_figures_of_every_labelled_question():
    """All three types are measured, each with what is its own; a question without labels is left out."""
    texts = [Labelled(1, "k1", "a", {"urgent": True, "severity": 1}), Labelled(2, "k2", "b", {"severity": 0})]
    run = await ran(runner.begun(subject(FakeEvaluator()), texts, {}))
    found = only([run], texts)

    assert sorted(found["questions"]) == ["severity", "urgent"]
    assert found["questions"]["urgent"]["brier"] == 0.0
    assert found["questions"]["severity"]["mean_absolute_error"] == 0.5
    assert set(found["latency_ms"]) == {"p50", "p95"}


async def test_the_curve_is_a_picture():
    """Well-formed SVG with a point for each bin; names are escaped; without confidences it says so."""
    texts = rows("billing", "outage")
    run = await ran(runner.begun(subject(FakeEvaluator(), "a<b>&c"), texts, {}))
    picture = ET.fromstring(reliability_plot.svg(evaluation_report.report([run], texts)))  # noqa: S314 (our own text)
    empty = reliability_plot.svg({"evaluators": []})

    assert len([each for each in picture.iter() if each.tag.endswith("circle")]) == 1
    assert any((each.text or "").startswith("a<b>&c: topic, ECE") for each in picture.iter())
    assert "no answer has a confidence" in empty
