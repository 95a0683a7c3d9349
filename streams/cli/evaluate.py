"""`evaluate`: how often an evaluator is right, how sure it may be trusted, and what it costs, on labelled texts."""

import asyncio
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from facetline.facets.plurals import counted
from facetline.streams.cli import imports as imports_
from facetline.streams.cli import options, output, running

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from facetline.evaluators.quality.fit import Likened
    from facetline.evaluators.recorded.recordings import Call
    from facetline.facets.definitions import Definition
    from facetline.facets.questions import Question
    from facetline.streams.evaluation.runner import Run, Subject
    from facetline.streams.files.documents import Form
    from facetline.streams.files.labelled import Columns, Labelled
    from facetline.streams.project import Project

REFUSED_SHOWN_MAX = 20
CONCURRENCY_MAX = 256

EvaluatorOption = Annotated[
    list[str] | None, typer.Option("--evaluator", help="Instead of the collection's own; several: side by side.")
]
FormatOption = Annotated[
    Literal["ndjson", "csv", "json"] | None, typer.Option("--format", help="Default: by the name.")
]
LabelColumnOption = Annotated[
    list[str] | None,
    typer.Option("--label-column", help="QUESTION=COLUMN; default: columns called like questions."),
]
GroupsOption = Annotated[
    list[str] | None,
    typer.Option("--groups", help="[QUESTION=]FILE: JSON {option: [label, …]}, for labels finer than options."),
]
ConcurrencyOption = Annotated[
    int | None,
    typer.Option("--concurrency", min=1, max=CONCURRENCY_MAX, help="Calls at once; default: the evaluator's."),
]
CallsOption = Annotated[
    Path | None, typer.Option("--calls", help="Calls are taken from this file, and new ones are added to it.")
]
FitTemperatureOption = Annotated[
    bool,
    typer.Option("--fit-temperature", help="Fit an embedded evaluator on half of the texts, measure the rest."),
]
WriteOption = Annotated[
    bool, typer.Option("--write", help="Keep the fitted temperature beside the configuration file.")
]
SourceOption = Annotated[str | None, typer.Option("--source", help="What the texts are called; default: the file.")]


def evaluate(  # a command's parameters are its options
    file: Annotated[str, typer.Argument(metavar="FILE|-", help='{"body", "labels": {"topic": "billing"}}, or CSV.')],
    collection: Annotated[str, typer.Option("--collection", help="Whose questions are asked.")],
    evaluator: EvaluatorOption = None,
    format_: FormatOption = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    only_columns: Annotated[
        bool, typer.Option("--only-columns", help="CSV: take the columns of --body-column and --label-column alone.")
    ] = False,
    ignore_columns: options.IgnoreColumns = None,
    body_column: Annotated[str, typer.Option("--body-column", help="CSV column that holds the text.")] = "body",
    label_column: LabelColumnOption = None,
    groups: GroupsOption = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first so many lines.")] = None,
    concurrency: ConcurrencyOption = None,
    calls: CallsOption = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="Write the report to this file, too.")] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write the reliability curve to this file.")] = None,
    fit_temperature: FitTemperatureOption = False,
    write: WriteOption = False,
    source: SourceOption = None,
    json_: options.Json = False,
    config: options.Config = None,
) -> None:
    """Compare an evaluator's answers with labels. Nothing is stored in the pipeline; each text is one call."""
    if write and not fit_temperature:
        raise typer.BadParameter("--write keeps what --fit-temperature fits; give both")
    for path in (markdown, svg, calls):
        if path is not None and not path.resolve().parent.is_dir():
            raise typer.BadParameter(f"there is no folder {path.parent} to write {path.name} to")
    columns = options.named_columns(label_column or [], "--label-column")
    shown = _Shown(markdown, svg, json_=json_)

    async def work() -> int | None:
        from facetline.streams import project as project_
        from facetline.streams.files import documents, labelled

        settings = options.settings(config, None)
        project = project_.load_project(settings)
        try:
            definition = _definition(project, collection)
            subjects = [_subject(project, definition, name) for name in evaluator or [definition.evaluator]]
            file_groups = _groups(groups or [], definition.questions, columns)
            taken = labelled.Columns(body_column, columns, ignore_columns or (), only_columns)
            form = documents.form_of(file, delimiter, encoding)
            rows = _rows(file, format_, taken, form, definition.questions, file_groups, limit)
            if fit_temperature:
                name = source or Path(file).name.rsplit(".", 1)[0]
                return await _fit(subjects, rows, name, shown, settings.config.absolute().parent if write else None)
            return await _measure(subjects, rows, calls, concurrency, shown)
        finally:
            await project.close()

    kept = f"; run it again to go on, {calls} is read first" if calls else ""
    again = f"the figures are those of the calls that had ended{kept}"
    running.run(work, again="nothing was fitted" if fit_temperature else again)


class _Shown:
    """Where a report goes."""

    def __init__(self, markdown: Path | None, svg: Path | None, *, json_: bool) -> None:
        self._markdown = markdown
        self._svg = svg
        self._json = json_

    def show(self, report: "Mapping[str, Any]") -> None:
        """Print the report, and write what was asked for."""
        from facetline.streams.evaluation import markdown as evaluation_text
        from facetline.streams.evaluation import reliability_plot

        text = evaluation_text.markdown(report)
        if self._json:
            output.result(report)
        else:
            output.text(text.rstrip())
        for path, content in ((self._markdown, text), (self._svg, reliability_plot.svg(report))):
            if path is None:
                continue
            try:
                path.write_text(content, encoding="utf-8")
            except OSError as error:
                output.error(f"{path} cannot be written: {error.strerror}")
                raise typer.Exit(running.FAILED) from None


async def _measure(
    subjects: "Sequence[Subject]",
    rows: "Sequence[Labelled]",
    calls: Path | None,
    concurrency: int | None,
    shown: _Shown,
) -> int | None:
    from contextlib import ExitStack

    from facetline.evaluators.recorded import recordings
    from facetline.facets.errors import InvalidQuery
    from facetline.streams.evaluation import report as evaluation_report
    from facetline.streams.evaluation import runner

    known = _known(calls)
    try:
        runs = [runner.begun(subject, rows, known) for subject in subjects]
    except recordings.InvalidRecording as error:
        raise InvalidQuery(f"{calls}: {error}") from error
    for run in runs:
        _announce(run)
    try:
        with ExitStack() as stack:
            file = stack.enter_context(recordings.Writer(calls)) if calls is not None else None
            for run in runs:
                questions = run.subject.questions
                record = None if file is None else (lambda call, asked=questions: file.append(call, asked))
                await _load_library(run)
                with output.Progress(run.subject.name, len(run.waiting)) as progress:
                    at_once = concurrency or _at_once(run)
                    await runner.ask(run, concurrency=at_once, record=record, progress=progress.at)
    except asyncio.CancelledError:
        shown.show({**evaluation_report.report(runs, rows), "interrupted": True})
        raise
    except OSError as error:
        output.error(f"{calls} cannot be written: {error.strerror or error}; no further call was made")
        shown.show(evaluation_report.report(runs, rows))
        return running.FAILED
    shown.show(evaluation_report.report(runs, rows))
    for run in runs:
        _print_missing(run, calls)
    return running.FAILED if any(run.stopped is not None for run in runs) else None


async def _load_library(run: "Run") -> None:
    """Have the library there that asks models: loading it takes seconds, which are no latency of the first calls."""
    from facetline.evaluators.chat import evaluator as chat
    from facetline.evaluators.decisions import evaluator as decisions
    from facetline.evaluators.litellm_adapter import client

    if run.waiting and run.subject.evaluator.kind in {chat.KIND, decisions.KIND}:
        await client.load()


def _at_once(run: "Run") -> int:
    """Return how many calls are made at once; the embedded model's would only wait for each other."""
    return 1 if run.subject.evaluator.kind == "embedded" else run.subject.limits.concurrency


def _announce(run: "Run") -> None:
    """Say before the first call how many there will be."""
    waiting = len(run.waiting)
    asker = run.subject.asker
    known = f", {len(run.known)} are known" if run.known else ""
    costs = "" if run.subject.evaluator.limits.is_free or not waiting else "; each may cost money"
    calls = f"{counted(waiting, 'call')} to make"
    output.note(f"evaluator '{run.subject.name}' ({asker.kind}, {asker.model}): {calls}{known}{costs}")


def _print_missing(run: "Run", calls: Path | None) -> None:
    name = run.subject.name
    if run.stopped is not None:
        output.error(f"evaluator '{name}' was asked no further: {run.stopped}")
    missed = sum(run.missed.values())
    if missed:
        again = (
            f"run it again: {calls} is read first" if calls else "with --calls FILE a second run asks only for these"
        )
        output.note(
            f"evaluator '{name}': {counted(missed, 'call')} failed temporarily, not counted in the figures; {again}"
        )


def _known(calls: Path | None) -> "dict[str, Call]":
    from facetline.evaluators.recorded import recordings
    from facetline.facets.errors import InvalidQuery

    if calls is None:
        return {}
    try:
        return recordings.read(calls)
    except recordings.InvalidRecording as error:
        raise InvalidQuery(str(error)) from error
    except OSError as error:
        raise InvalidQuery(f"{calls} cannot be read: {error.strerror}") from error


async def _fit(
    subjects: "Sequence[Subject]", rows: "Sequence[Labelled]", source: str, shown: _Shown, folder: Path | None
) -> int | None:
    from datetime import UTC, datetime

    from facetline.evaluators.embedded.evaluator import Embedded
    from facetline.evaluators.quality import fit, temperatures
    from facetline.facets.errors import InvalidQuery
    from facetline.facets.questions import Choice
    from facetline.streams.evaluation import report as evaluation_report

    (subject, *others) = subjects
    if others or not isinstance(subject.evaluator, Embedded):
        raise InvalidQuery("--fit-temperature is for one evaluator of kind 'embedded'")
    if subject.evaluator.identity.parameters["temperature"] == "off":
        raise InvalidQuery(f"evaluator '{subject.name}' has confidence = \"off\", so that a temperature has no effect")
    choices = {name: each for name, each in subject.questions.items() if isinstance(each, Choice)}
    asked = {name: each for name, each in choices.items() if any(name in row.labels for row in rows)}
    likened: list[list[Likened]] = []
    with output.Progress("read", len(rows)) as progress:
        for row in rows:
            of_row = [
                fit.Likened(
                    name,
                    await asyncio.to_thread(subject.evaluator.similarities, row.body, question),
                    str(row.labels[name]),
                )
                for name, question in asked.items()
                if name in row.labels
            ]
            likened += [of_row] if of_row else []
            progress.at(len(likened))
    date, command = datetime.now(UTC).date().isoformat(), f"facetline {shlex.join(sys.argv[1:])}"
    try:
        found = fit.fit(likened, asked, source=source, date=date, command=command)
    except ValueError as error:
        raise InvalidQuery(f"nothing can be fitted: {error}") from error
    shown.show(evaluation_report.fit_report(subject.name, found, len(rows)))
    temperature = found.calibration.temperature
    if folder is None:
        output.note(f"keep it with --write, or as 'temperature = {temperature:g}' in [evaluators.{subject.name}]")
        return None
    try:
        path = temperatures.write(folder, {subject.name: found.calibration})
    except OSError as error:
        output.error(f"{temperatures.FILE} cannot be written in {folder}: {error.strerror}")
        return running.FAILED
    output.note(f"{path.name} has the temperature; answers given before are outdated: 'facetline reindex --outdated'")
    return None


def _definition(project: "Project", collection: str) -> "Definition":
    from facetline.facets import errors

    if collection not in project.by_name:
        guess = errors.nearest(collection, project.by_name)
        known = ", ".join(sorted(project.by_name))
        raise errors.UnknownCollection(f"no collection '{collection}'{guess}; the file has {known}")
    return project.by_name[collection]


def _subject(project: "Project", definition: "Definition", name: str) -> "Subject":
    """Return an evaluator of the file with the collection's questions, as if it were the collection's own."""
    from facetline.evaluators import factory
    from facetline.facets import collections, definitions, errors
    from facetline.streams.evaluation.runner import Subject

    found = project.evaluators.get(name)
    if found is None:
        guess = errors.nearest(name, project.evaluators)
        raise errors.InvalidQuery(
            f"no evaluator '{name}'{guess}; the file has {', '.join(sorted(project.evaluators))}",
            allowed=project.evaluators,
        )
    taken = found.limits
    problems = collections.check_evaluator(
        definition,
        question_types=taken.question_types,
        options_max=taken.options_max,
        levels_max=taken.levels_max,
        evaluator=name,
    )
    if problems:
        raise errors.InvalidQuery("\n".join(problems))
    fingerprint = definitions.fingerprint(definition.questions, factory.fingerprint_identity(found.identity))
    own = {"evaluator": name, "kind": found.identity.kind, "model": found.identity.model, "fingerprint": fingerprint}
    return Subject(name, found, definition.model_copy(update=own), project.limits[name])


def _rows(
    file: str,
    format_: Literal["ndjson", "csv", "json"] | None,
    columns: "Columns",
    form: "Form",
    questions: "Mapping[str, Question]",
    groups: "Mapping[str, Mapping[str, str]]",
    limit: int | None,
) -> "list[Labelled]":
    """Return the labelled texts; any line that cannot be taken stops the command before a call is made.

    Raises:
        InvalidFile: naming the lines and what is wrong with them.
    """
    from facetline.streams.files import documents, labelled

    unknown = [name for name in columns.labels if name not in questions]
    if unknown:
        raise documents.InvalidFile(f"--label-column: no question '{unknown[0]}'; there are {', '.join(questions)}")
    kind = format_ or documents.guess_format(file)
    with imports_.opened(file) as opened:
        read = labelled.read(opened, kind, columns, questions, groups, form)
        rows, refused = labelled.collect(read, limit)
    if refused:
        lines = [f"line {each.line}: {each.reason}" for each in refused[:REFUSED_SHOWN_MAX]]
        more = [f"and {len(refused) - REFUSED_SHOWN_MAX} more"] if len(refused) > REFUSED_SHOWN_MAX else []
        message = f"{len(refused)} of {len(rows) + len(refused)} lines cannot be taken; nothing was asked"
        raise documents.InvalidFile("\n".join([message, *lines, *more]))
    if not rows:
        raise documents.InvalidFile(f"{file} has no labelled texts")
    return rows


def _groups(
    given: list[str], questions: "Mapping[str, Question]", columns: "Mapping[str, str]"
) -> dict[str, dict[str, str]]:
    from facetline.facets.errors import InvalidQuery
    from facetline.streams.files import labelled

    found = {}
    for each in given:
        question, equals, path = each.rpartition("=")
        if not equals:
            choices = list(columns) or [name for name, asked in questions.items() if asked.type == "choice"]
            if len(choices) != 1:
                raise typer.BadParameter("--groups: say whose labels they are, as QUESTION=FILE")
            question = choices[0]
        if question not in questions:
            raise typer.BadParameter(f"--groups: no question '{question}'; there are {', '.join(questions)}")
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            found[question] = labelled.grouped(questions[question], data)
        except OSError as error:
            raise InvalidQuery(f"{path} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise InvalidQuery(f"{path}: {error}") from error
    return found
