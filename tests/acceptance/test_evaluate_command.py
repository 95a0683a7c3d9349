"""`facetline evaluate`: what it prints, what it writes, what it refuses, and that an interrupted run goes on.

Method: recorded answers and the embedded model for what is shown, an evaluator that a file holds for the interruption.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from commands import Place, interrupt
from folder_evaluator import Script
from polling import eventually
from served import ServedPlace, Server

from facetline.evaluators.quality import temperatures

CONFIG = """
[evaluators.fixed]
kind = "recorded"
path = "answers.ndjson"

[evaluators.local]
kind = "embedded"

[collections.tickets]
pattern = "tickets/*"
evaluator = "fixed"

[collections.tickets.questions.topic]
type = "choice"
ask = "About?"
options = { billing = "A charge, an invoice, a refund", outage = "Down, slow, an error", other = "Anything else" }
"""
TEXTS = [
    ("I was charged twice", "billing", "billing", 0.9),
    ("Send me the invoice", "billing", "other", 0.4),
    ("The site is down", "outage", "outage", 0.95),
    ("Every page shows an error", "outage", "outage", 0.8),
]
MODULE = """
from pathlib import Path
from folder_evaluator import FolderEvaluator
from facetline.facets.collections import define_collection
from facetline.facets.questions import choice

evaluator = FolderEvaluator(Path(__file__).parent / "script")
topic = choice(ask="About?", options={"billing": "Money", "other": "Else"})
collections = [define_collection(name="tickets", pattern="tickets/*", evaluator=evaluator, questions={"topic": topic})]
"""


@pytest.fixture
def place(tmp_path: Path, server: Server) -> Place:
    """A folder with a project, recorded answers and labels."""
    (tmp_path / "facetline.toml").write_text(CONFIG)
    answers = [
        {"body": body, "answers": {"topic": {"type": "choice", "choice": said, "confidence": confidence}}}
        for body, _, said, confidence in TEXTS
    ]
    _write(tmp_path / "answers.ndjson", answers)
    _write(tmp_path / "labels.ndjson", [{"body": body, "labels": {"topic": label}} for body, label, _, _ in TEXTS])
    (tmp_path / "labels.csv").write_text("text,intent\n" + "".join(f"{body},{label}!\n" for body, label, _, _ in TEXTS))
    (tmp_path / "groups.json").write_text(json.dumps({"billing": ["billing!"], "outage": ["outage!"]}))
    return ServedPlace(tmp_path, server)


def _write(path: Path, lines: list[Any]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_json_is_as_documented(place: Place):
    """One object with the evaluator's figures by question; nothing else on standard output."""
    ended = place.run("evaluate", "labels.ndjson", "--collection", "tickets", "--json")
    (found,) = ended.json["evaluators"]
    topic = found["questions"]["topic"]

    assert ended.code == 0, ended.err
    assert (found["evaluator"], found["answered"], found["cost_usd"]) == ("fixed", 4, None)
    assert {"n", "accuracy", "interval", "ece", "options", "confusion", "coverage"} <= set(topic)
    assert (topic["n"], topic["accuracy"]) == (4, 0.75)
    assert topic["interval"] == pytest.approx([0.300642, 0.954413], abs=1e-6)
    assert topic["options"]["billing"]["recall"] == 0.5
    assert topic["confusion"]["billing"] == {"billing": 1, "other": 1}
    assert topic["suggested"]["min_confidence"] == 0.41
    assert "4 calls to make" in ended.err
    assert "may cost money" not in ended.err


def test_sheets_with_finer_labels_give_the_same(place: Place):
    """A CSV file with columns of its own and labels in groups is measured alike."""
    plain = place.run("evaluate", "labels.ndjson", "--collection", "tickets", "--json")
    words = ("--body-column", "text", "--label-column", "topic=intent", "--groups", "groups.json", "--json")
    grouped = place.run("evaluate", "labels.csv", "--collection", "tickets", *words)

    assert grouped.code == 0, grouped.err
    questions = [ended.json["evaluators"][0]["questions"] for ended in (plain, grouped)]
    assert questions[0] == questions[1]


def test_reports_are_written_and_evaluators_compared(place: Place):
    """Markdown on standard output and in a file, the curve as SVG, two evaluators side by side."""
    words = ("--evaluator", "fixed", "--evaluator", "local", "--markdown", "report.md", "--svg", "curve.svg")
    ended = place.run("evaluate", "labels.ndjson", "--collection", "tickets", *words)

    assert ended.code == 0, ended.err
    assert (place.folder / "report.md").read_text() == ended.out
    assert "| fixed | topic | 4 of 4 | 75.0% |" in ended.out
    assert "| local | topic | 4 of 4 |" in ended.out
    assert (place.folder / "curve.svg").read_text().startswith("<svg")


def test_a_temperature_is_fitted_kept_and_in_force(place: Place):
    """It lies beside the configuration file, and is part of the fingerprint from then on."""
    words = ("evaluate", "labels.ndjson", "--collection", "tickets", "--evaluator", "local", "--json")
    before = place.run(*words)
    fitted = place.run(*words, "--fit-temperature", "--write", "--source", "our tickets")
    after = place.run(*words)

    assert fitted.code == 0, fitted.err
    (told,) = fitted.json["evaluators"]
    kept = temperatures.read(place.folder)["local"]
    assert (kept.source, kept.fitted_on, kept.measured_on) == ("our tickets", 2, 2)
    assert told["fitted"]["temperature"] == kept.temperature
    assert told["questions"]["topic"]["n"] == 2
    assert before.json["evaluators"][0]["fingerprint"] != after.json["evaluators"][0]["fingerprint"]


def test_without_being_told_nothing_is_kept(place: Place):
    """A fit that is not written shows the line for the table, and changes nothing."""
    words = ("evaluate", "labels.ndjson", "--collection", "tickets", "--evaluator", "local", "--fit-temperature")
    ended = place.run(*words)

    assert ended.code == 0, ended.err
    assert "'temperature = " in ended.err
    assert not (place.folder / temperatures.FILE).exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["labels.ndjson", "--collection", "tikets"], "no collection 'tikets' (did you mean 'tickets'?)"),
        (["labels.ndjson", "--collection", "tickets", "--evaluator", "fixd"], "no evaluator 'fixd' (did you mean"),
        (["none.ndjson", "--collection", "tickets"], "none.ndjson cannot be read"),
        (["labels.csv", "--collection", "tickets"], "no column 'body'"),
        (["labels.csv", "--collection", "tickets", "--body-column", "text"], "--label-column QUESTION=COLUMN"),
        (["labels.ndjson", "--collection", "tickets", "--write"], "give both"),
        (["labels.ndjson", "--collection", "tickets", "--fit-temperature"], "kind 'embedded'"),
        (["labels.ndjson", "--collection", "tickets", "--svg", "no/curve.svg"], "there is no folder"),
        (["labels.ndjson", "--collection", "tickets", "--calls", "facetline.toml"], "facetline.toml, line 2"),
        (["labels.ndjson", "--collection", "tickets", "--groups", "answers.ndjson"], "answers.ndjson"),
    ],
)
def test_what_is_wrong_is_said_before_a_call(words: list[str], message: str, place: Place):
    """Exit code 2, the name that is wrong and the way out; nothing on standard output."""
    ended = place.run("evaluate", *words)

    assert (ended.code, ended.out) == (2, "")
    assert message in " ".join(ended.err.replace("│", " ").split())
    assert "calls to make" not in ended.err


def test_bad_lines_stop_it_before_a_call(place: Place):
    """Every line that cannot be taken is named; half a file is not measured."""
    with (place.folder / "labels.ndjson").open("a") as file:
        file.write('{"body": "x", "labels": {"topic": "biling"}}\n{\n')
    ended = place.run("evaluate", "labels.ndjson", "--collection", "tickets")

    assert (ended.code, ended.out) == (2, "")
    assert "2 of 6 lines cannot be taken; nothing was asked" in ended.err
    assert "line 5: the label of 'topic': 'biling' is no option (did you mean 'billing'?)" in ended.err
    assert "line 6: the line is not JSON" in ended.err


async def test_an_interrupted_run_tells_what_it_knows_and_goes_on(tmp_path: Path):
    """Ctrl-C prints the figures so far and ends with 130; with the file of calls the rerun pays for the rest only."""
    (tmp_path / "evaluated_collections.py").write_text(MODULE)
    limits = "[evaluators.tickets]\nconcurrency = 2\n"
    (tmp_path / "facetline.toml").write_text(f'collections = "evaluated_collections:collections"\n{limits}')
    bodies = [f"billing {number}" + (" hold=gate" if number > 2 else "") for number in range(6)]
    _write(tmp_path / "labels.ndjson", [{"body": body, "labels": {"topic": "billing"}} for body in bodies])
    place, script = Place(tmp_path), Script(tmp_path / "script")
    script.on("gate")
    words = ("evaluate", "labels.ndjson", "--collection", "tickets", "--calls", "calls.ndjson", "--json")
    with place.start(*words) as process:
        await eventually(lambda: len(script.calls()) == 5, deadline_s=30, what="two calls hang")
        interrupted = await asyncio.to_thread(interrupt, process)
    script.off("gate")
    again = await asyncio.to_thread(place.run, *words)

    assert (interrupted.code, interrupted.json["interrupted"]) == (130, True)
    assert interrupted.json["evaluators"][0]["answered"] == 3
    assert "6 calls to make; each may cost money" in interrupted.err
    assert "calls.ndjson is read first" in interrupted.err
    assert "Traceback" not in interrupted.err
    assert (again.code, again.json["evaluators"][0]["answered"]) == (0, 6)
    assert "3 calls to make, 3 are known" in again.err
    assert again.json["evaluators"][0]["calls"] == {"made": 3, "recorded": 3}
    assert len(script.calls()) == 5 + 3
