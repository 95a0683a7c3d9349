"""Fit the embedded model's temperature on labelled texts, and measure what its confidence is worth.

    python -m evaluators.fit LABELLED.csv --config facetline.toml --collection tickets --question topic

reads the columns `text` and `category`, fits on the even rows (0, 2, …), measures on the odd ones, and prints a report
in Markdown with the line for facetline.toml. `--groups` names a JSON file {option: [label, …]} where labels are finer
than options. `--write` stores the calibration as this package ships it.
"""

import argparse
import csv
import itertools
import json
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evaluators import calibration, embedded
from evaluators.calibration import Calibration
from facets.questions import Choice

ROWS_MIN, ROWS_MAX = 2, 100_000
"""One row to fit on and one to measure on; a quarter of an hour for the model."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text's similarity to each option, and which option is right."""

    similarities: tuple[float, ...]
    label: int


@dataclass(frozen=True, slots=True)
class Fit:
    """A calibration, with what the report says beside it."""

    calibration: Calibration
    options: tuple[str, ...]
    measured: Sequence[Labelled]
    texts_per_second: float


def read_question(config: Path, collection: str, question: str) -> Choice:
    """Return the choice question of a project file.

    Raises:
        ValueError: there is no such question, or it is no choice.
    """
    found: Any = tomllib.loads(config.read_text(encoding="utf-8"))
    for name in ("collections", collection, "questions", question):
        if not isinstance(found, dict) or name not in found:
            raise ValueError(f"{config} has no collections.{collection}.questions.{question}")
        found = found[name]
    if found.get("type") != "choice":
        raise ValueError(f"question '{question}' is no choice: only a choice has a confidence to fit")
    return Choice.model_validate(found)


def read_rows(path: Path, text_column: str, label_column: str) -> list[tuple[str, str]]:
    """Return (text, label) of each row.

    Raises:
        ValueError: a column is missing, or there are fewer than 2 rows or more than `ROWS_MAX`.
    """
    with path.open(encoding="utf-8", newline="") as file:
        table = csv.DictReader(file)
        columns = table.fieldnames or ()
        for column in (text_column, label_column):
            if column not in columns:
                raise ValueError(f"{path} has no column '{column}', only {', '.join(columns)}")
        rows = [(row[text_column], row[label_column]) for row in itertools.islice(table, ROWS_MAX + 1)]
    if not ROWS_MIN <= len(rows) <= ROWS_MAX:
        raise ValueError(f"{path} has {len(rows)} rows or more; a fit takes {ROWS_MIN} to {ROWS_MAX}, some hundreds do")
    return rows


def option_by_label(question: Choice, groups: Mapping[str, Sequence[str]] | None) -> dict[str, str]:
    """Return label → option: the options themselves, or as `groups` (option → labels) says.

    Raises:
        ValueError: the groups name an unknown option, or a label twice.
    """
    if groups is None:
        return {option: option for option in question.options}
    found: dict[str, str] = {}
    for option, labels in groups.items():
        if option not in question.options:
            raise ValueError(f"the groups name '{option}', which is none of the options {', '.join(question.options)}")
        for label in labels:
            if found.setdefault(label, option) != option:
                raise ValueError(f"the groups name the label '{label}' twice")
    return found


def judge(rows: Sequence[tuple[str, str]], question: Choice, labels: Mapping[str, str]) -> list[Labelled]:
    """Return each row's similarities, in the order of the sorted options.

    Raises:
        ValueError: a row's label belongs to no option.
    """
    evaluator, options = embedded.Embedded(), sorted(question.options)
    judged = []
    for text, label in rows:
        if label not in labels:
            raise ValueError(f"the label '{label}' belongs to no option; name it in the groups")
        near = evaluator.similarities(text, question)
        judged.append(Labelled(tuple(near[option] for option in options), options.index(labels[label])))
    return judged


def calibrate(judged: Sequence[Labelled], *, options: int, source: str, date: str, command: str) -> Calibration:
    """Fit on the even rows and measure on the odd ones."""
    fitted, measured = judged[::2], judged[1::2]
    temperature = calibration.fit([each.similarities for each in fitted], [each.label for each in fitted])
    temperature = round(temperature, 3)
    right = [_best(each.similarities) == each.label for each in measured]
    bins = calibration.reliability(
        [max(calibration.softmax(each.similarities, temperature)) for each in measured], right
    )
    return Calibration(
        model=embedded.MODEL,
        source=source,
        options=options,
        fitted_on=len(fitted),
        measured_on=len(measured),
        temperature=temperature,
        accuracy=round(sum(right) / len(right), 4),
        ece=round(calibration.expected_error(bins), 4),
        reliability=tuple(bins),
        date=date,
        command=command,
    )


def report(fit: Fit) -> str:
    """Return the figures in Markdown."""
    known = fit.calibration
    summary = (
        f"{known.source}: temperature {known.temperature:g} fitted on {known.fitted_on} texts; on the other "
        f"{known.measured_on}: right {known.accuracy:.1%}, ECE {known.ece:.3f}; {fit.texts_per_second:.0f} texts/s"
    )
    lines = [
        summary,
        "",
        "| confidence | answers | mean confidence | right |",
        "|---|---|---|---|",
        *(
            f"| {each.at_least:.1f} to {each.at_least + 1 / calibration.BINS:.1f} | {each.answers} "
            f"| {each.confidence:.3f} | {each.right:.3f} |"
            for each in known.reliability
        ),
        "",
        "| option | texts | found (recall) | right when said (precision) |",
        "|---|---|---|---|",
        *(_option_line(fit, index) for index in range(len(fit.options))),
        "",
        f"temperature = {known.temperature:g}",
    ]
    return "\n".join(lines) + "\n"


def _option_line(fit: Fit, index: int) -> str:
    of_it = [each for each in fit.measured if each.label == index]
    said = [each for each in fit.measured if _best(each.similarities) == index]
    right = sum(each.label == index for each in said)
    recall = f"{right / len(of_it):.3f}" if of_it else "-"
    precision = f"{right / len(said):.3f}" if said else "-"
    return f"| {fit.options[index]} | {len(of_it)} | {recall} | {precision} |"


def _best(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m evaluators.fit", description=__doc__.split("\n", 1)[0])
    parser.add_argument("labelled", type=Path, help="CSV file of labelled texts, at least two")
    parser.add_argument("--config", type=Path, default=Path("facetline.toml"))
    parser.add_argument("--collection", required=True)
    parser.add_argument("--question", required=True)
    parser.add_argument("--groups", type=Path, help="JSON file {option: [label, …]}")
    parser.add_argument("--text-column", default="text")
    parser.add_argument("--label-column", default="category")
    parser.add_argument("--source", help="what the texts are called (default: the file's name)")
    parser.add_argument("--write", type=Path, help="where to store the calibration")
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    """Fit, print the report and return the exit code."""
    wish = _arguments(given)
    try:
        question = read_question(wish.config, wish.collection, wish.question)
        groups = json.loads(wish.groups.read_text(encoding="utf-8")) if wish.groups else None
        rows = read_rows(wish.labelled, wish.text_column, wish.label_column)
        started = time.perf_counter()
        judged = judge(rows, question, option_by_label(question, groups))
        speed = len(rows) / (time.perf_counter() - started)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    found = calibrate(
        judged,
        options=len(question.options),
        source=wish.source or wish.labelled.stem,
        date=datetime.now(UTC).date().isoformat(),
        command=f"python -m evaluators.fit {wish.labelled.name} {' '.join(given[1:])}",
    )
    if wish.write:
        wish.write.write_text(found.model_dump_json(indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(report(Fit(found, tuple(sorted(question.options)), judged[1::2], speed)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
