"""What an evaluation found, as the JSON of `facetline evaluate --json`: figures by evaluator and question. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from facetline.evaluators.quality import measures
from facetline.evaluators.quality.fit import Fit
from facetline.evaluators.quality.measures import Judged, Measured
from facetline.streams.evaluation.runner import Run
from facetline.streams.files.labelled import Labelled

DECIMALS = 6
"""Of shares and dollars: finer digits of a few thousand texts say nothing."""


def report(runs: Sequence[Run], rows: Sequence[Labelled]) -> dict[str, Any]:
    """Return the figures of every evaluator, and how the later ones differ from the first."""
    found: dict[str, Any] = {"lines": len(rows), "evaluators": [_of_run(run, rows) for run in runs]}
    if len(runs) > 1:
        found["differences"] = [each for run in runs[1:] for each in _differences(runs[0], run, rows)]
    return _rounded_object(found)


def fit_report(name: str, fit: Fit, lines: int) -> dict[str, Any]:
    """Return the figures of a fit: those of the texts that were not fitted on."""
    calibration = fit.calibration
    one = {
        "evaluator": name,
        "kind": "embedded",
        "model": calibration.model,
        "fitted": calibration.model_dump(mode="json"),
        "lines": lines,
        "questions": {question: question_figures(found, found.n) for question, found in fit.measured.items()},
        "cost_usd": None,
    }
    return _rounded_object({"lines": lines, "evaluators": [one]})


def question_figures(found: Measured, labelled: int) -> dict[str, Any]:
    """Return one question's figures; `labelled` texts have a label, `n` of them an answer."""
    figures = {"n": found.n, "labelled": labelled, **asdict(found)}
    figures["reliability"] = [each.model_dump() for each in found.reliability]
    for name in ("brier", "mean_absolute_error"):
        if figures[name] is None:
            del figures[name]
    return figures


def rounded(value: Any) -> Any:
    """Return JSON with its fractions rounded."""
    if isinstance(value, float):
        return round(value, DECIMALS)
    if isinstance(value, Mapping):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    return value


def _rounded_object(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: rounded(part) for name, part in value.items()}


def judged(run: Run, rows: Sequence[Labelled], question: str) -> list[tuple[int, Judged]]:
    """Return the labelled and answered rows of a question, by their places."""
    found = []
    for place, row in enumerate(rows):
        call = run.call(place)
        if question in row.labels and call is not None and call.evaluated is not None:
            found.append((place, Judged(row.labels[question], call.evaluated.answers[question])))
    return found


def _of_run(run: Run, rows: Sequence[Labelled]) -> dict[str, Any]:
    subject, calls = run.subject, list(run.known.values())
    answered = sum((call := run.call(place)) is not None and call.evaluated is not None for place in range(len(rows)))
    failed = Counter(call.error.reason for place in range(len(rows)) if (call := run.call(place)) and call.error)
    cost_usd = _sum(call.evaluated.cost_usd for call in calls if call.evaluated is not None)
    latencies = [call.latency_ms for call in calls]
    questions = {}
    for name, question in subject.questions.items():
        labelled = sum(name in row.labels for row in rows)
        if labelled:
            of_it = [each for _, each in judged(run, rows, name)]
            questions[name] = question_figures(measures.measure(question, of_it), labelled)
    return {
        "evaluator": subject.name,
        "kind": subject.asker.kind,
        "model": subject.asker.model,
        "fingerprint": subject.asker.fingerprint,
        "lines": len(rows),
        "answered": answered,
        "failed": dict(failed),
        "failed_for_now": dict(run.missed),
        "stopped": run.stopped,
        "calls": {"made": run.made, "recorded": len(calls) - _kept(run)},
        "questions": questions,
        "cost_usd": None
        if cost_usd is None and run.failed_usd is None
        else (cost_usd or 0.0) + (run.failed_usd or 0.0),
        "latency_ms": {"p50": measures.quantile(latencies, 0.5), "p95": measures.quantile(latencies, 0.95)},
    }


def _kept(run: Run) -> int:
    """Return how many of the calls that were made now are kept: those that did not fail for now."""
    return run.made - sum(run.missed.values())


def _sum(costs: Any) -> float | None:
    lines = [cost for cost in costs if cost is not None]
    return sum(lines) if lines else None


def _differences(base: Run, run: Run, rows: Sequence[Labelled]) -> list[dict[str, Any]]:
    found = []
    for name, question in run.subject.questions.items():
        first, second = dict(judged(base, rows, name)), dict(judged(run, rows, name))
        pairs = [
            (measures.is_right(question, second[place]), measures.is_right(question, first[place]))
            for place in second
            if place in first
        ]
        if any(name in row.labels for row in rows):
            given = asdict(measures.difference(pairs))
            found.append({"evaluator": run.subject.name, "against": base.subject.name, "question": name, **given})
    return found
