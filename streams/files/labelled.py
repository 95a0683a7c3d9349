"""Labelled texts: lines of a file with a body and what would be the right answers, for measuring evaluators.

Pure: lines in, rows and refusals out, as `streams.files.documents` reads. Every problem names its line; nothing is
guessed. NDJSON: `{"body", "labels": {question id: option, true or false, level or its index}, "key"?}`; CSV: a
column of bodies and one of labels for each question. An empty CSV field is no label.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

from facetline.evaluators.quality.measures import Label
from facetline.facets import errors
from facetline.facets.documents import BODY_BYTES_MAX
from facetline.facets.questions import Boolean, Choice, Question, Score
from facetline.streams.files import documents
from facetline.streams.files.csv_columns import Header
from facetline.streams.files.csv_records import CsvFile, Refusal

LINE_KEYS = ("body", "labels", "key")
ROWS_MAX = 100_000
"""More than any interval needs; at the price of a small model some tens of dollars."""
BYTES_MAX = 256 * 1024 * 1024
"""The bodies are held in memory."""

Groups = Mapping[str, Mapping[str, str]]
"""Question → label of the file → option, where labels are finer than options."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """One text with its labels; `key` is given to the evaluator, which may look recorded answers up by it."""

    line: int
    key: str
    body: str
    labels: Mapping[str, Label]


@dataclass(frozen=True, slots=True)
class Columns:
    """Which CSV column is what; `labels` maps question ids to columns, empty: the columns called like questions.

    With `only` no column is taken that is not named.
    """

    body: str
    labels: Mapping[str, str]
    ignore: Collection[str] = ()
    only: bool = False


class _Wrong(ValueError):
    """A label or a line cannot be taken."""


def read(
    file: BinaryIO,
    kind: documents.Format,
    columns: Columns,
    questions: Mapping[str, Question],
    groups: Groups,
    form: documents.Form = documents.Form(),  # noqa: B008 (a frozen value)
) -> Iterator[Labelled | Refusal]:
    """Read labelled lines; blank ones are passed over.

    Raises:
        InvalidFile: a CSV column is missing, or none holds labels.
    """
    if kind == "csv":
        yield from _read_csv(file, columns, questions, groups, form)
        return
    for number, line in documents.objects(file, kind, form):
        if isinstance(line, Refusal):
            yield line
        elif line.strip():
            try:
                yield _ndjson_row(number, line, questions, groups)
            except _Wrong as error:
                yield Refusal(number, str(error))


def collect(rows: Iterator[Labelled | Refusal], limit: int | None) -> tuple[list[Labelled], list[Refusal]]:
    """Return the first `limit` rows (all: None) and the refusals among them.

    Raises:
        InvalidFile: there are more rows or bytes than are held in memory.
    """
    found: list[Labelled] = []
    refused: list[Refusal] = []
    size = 0
    for row in rows:
        if limit is not None and len(found) + len(refused) >= limit:
            break
        if isinstance(row, Refusal):
            refused.append(row)
            continue
        found.append(row)
        size += len(row.body)
        if len(found) > ROWS_MAX or size > BYTES_MAX:
            raise documents.InvalidFile(
                f"more than {ROWS_MAX} texts or {BYTES_MAX >> 20} MiB; some hundreds do, take them with --limit"
            )
    return found, refused


def label_of(question: Question, given: Any, groups: Mapping[str, str] | None = None) -> Label:
    """Return what a label of a file says about a question.

    Raises:
        ValueError: it is no possible answer; the message names the nearest one.
    """
    if isinstance(question, Choice):
        return _option(question, given, groups)
    if isinstance(question, Boolean):
        if isinstance(given, bool):
            return given
        fields = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if str(given).strip().lower() not in fields:
            raise _Wrong(f"{given!r:.80} is neither true nor false")
        return fields[str(given).strip().lower()]
    return _level(question, given)


def grouped(question: Question, groups: Any) -> dict[str, str]:
    """Return label → option from a JSON value {option: [label, …]}.

    Raises:
        ValueError: it has another shape, names an unknown option, or a label twice.
    """
    if not isinstance(question, Choice):
        raise _Wrong("only labels of a choice can be grouped")
    if not isinstance(groups, Mapping):
        raise _Wrong("groups are an object {option: [label, …]}")
    found: dict[str, str] = {}
    for option, labels in groups.items():
        if option not in question.options:
            guess = errors.nearest(option, question.options)
            known = ", ".join(question.options)
            raise _Wrong(f"the groups name '{option}', which is none of the options{guess}; there are {known}")
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise _Wrong(f"the group of '{option}' is no list of labels")
        for label in labels:
            if found.setdefault(label, option) != option:
                raise _Wrong(f"the groups name the label '{label}' twice")
    return found


def _option(question: Choice, given: Any, groups: Mapping[str, str] | None) -> str:
    known = question.options if groups is None else groups
    if not isinstance(given, str) or given not in known:
        guess = errors.nearest(str(given), known)
        if groups is not None:
            raise _Wrong(f"label {given!r:.80} is in no group{guess}; name it in the groups")
        raise _Wrong(f"{given!r:.80} is no option{guess}; there are {_listed(list(known))}")
    return given if groups is None else groups[given]


def _level(question: Score, given: Any) -> int:
    levels = question.levels
    if isinstance(given, str) and given in levels:
        return levels.index(given)
    index = given
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) <= 3:  # noqa: PLR2004 (an index)
        index = int(given)
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(levels):
        guess = errors.nearest(str(given), levels)
        raise _Wrong(f"{given!r:.80} is no level{guess}; there are {_listed(list(levels))}, or 0 to {len(levels) - 1}")
    return index


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""  # noqa: PLR2004 (a line's worth)
    return ", ".join(names[:10]) + more


def _ndjson_row(number: int, line: bytes, questions: Mapping[str, Question], groups: Groups) -> Labelled:
    try:
        data = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        raise _Wrong("the line is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise _Wrong(f"the line is not JSON: {str(error)[:200]}") from error
    if not isinstance(data, dict):
        raise _Wrong('a line is an object {"body", "labels"}')
    unknown = [name for name in data if name not in LINE_KEYS]
    if unknown:
        guess = errors.nearest(unknown[0], LINE_KEYS)
        raise _Wrong(f"unknown member {unknown[0]!r:.80}{guess}; a line has {', '.join(LINE_KEYS)}")
    labels, key = data.get("labels"), data.get("key", f"line-{number}")
    if not isinstance(labels, dict) or not labels:
        raise _Wrong('"labels" is an object: question id to the right answer')
    if not isinstance(key, str):
        raise _Wrong('"key" is text')
    return Labelled(number, key, _body(data.get("body")), _labels(labels, questions, groups))


def _labels(given: Mapping[str, Any], questions: Mapping[str, Question], groups: Groups) -> dict[str, Label]:
    found = {}
    for name, label in given.items():
        if name not in questions:
            guess = errors.nearest(name, questions)
            raise _Wrong(f"question {name!r:.80} is not asked{guess}; there are {_listed(list(questions))}")
        try:
            found[name] = label_of(questions[name], label, groups.get(name))
        except ValueError as error:
            raise _Wrong(f"the label of '{name}': {error}") from error
    return found


def _body(body: Any) -> str:
    if not isinstance(body, str):
        raise _Wrong('"body" is the text')
    if not body.strip():
        raise _Wrong("the body is blank; a document without text is never asked about")
    try:
        size = len(body.encode())
    except UnicodeEncodeError as error:
        raise _Wrong("the body holds half a surrogate pair, which is no text") from error
    if "\0" in body:
        raise _Wrong("the body holds a NUL character, which no document can have")
    if size > BODY_BYTES_MAX:
        raise _Wrong(f"the body has {size} bytes, documents have {BODY_BYTES_MAX} at most")
    return body


def _read_csv(
    file: BinaryIO, columns: Columns, questions: Mapping[str, Question], groups: Groups, form: documents.Form
) -> Iterator[Labelled | Refusal]:
    wanted = (columns.body, *columns.labels.values())
    sheet = CsvFile(file, delimiter=form.delimiter, encoding=form.encoding, wanted=wanted)
    if not sheet.header:
        return
    header = Header(sheet.header)
    body = header.find(columns.body, "; name another one with --body-column")
    labels = _label_columns(header, columns, questions)
    for line, _, values in sheet.records():
        if isinstance(values, Refusal):
            yield replace(values, reason=values.reason.removeprefix("not_csv: "))
        elif any(values):
            try:
                yield _csv_row(line, values, body, labels, questions, groups)
            except ValueError as error:
                yield Refusal(line, str(error))


def _label_columns(header: Header, columns: Columns, questions: Mapping[str, Question]) -> dict[str, int]:
    """Return question id → place of the column with its labels."""
    ignored = header.ignored(columns.ignore)
    likely = () if columns.only else questions
    named = dict(columns.labels) or {
        name: name for name in likely if any(place not in ignored for place in header.all(name))
    }
    if not named:
        why = "--only-columns takes no column by itself that is called" if columns.only else "no column is called"
        raise documents.InvalidFile(
            f"{why} like a question ({_listed(list(questions))}); name one with --label-column QUESTION=COLUMN",
            allowed=questions,
        )
    return {name: header.find(column) for name, column in named.items()}


def _csv_row(
    line: int,
    values: Sequence[str],
    body: int,
    columns: Mapping[str, int],
    questions: Mapping[str, Question],
    groups: Groups,
) -> Labelled:
    given = {name: values[column] for name, column in columns.items() if values[column]}
    if not given:
        raise _Wrong("the line has no label")
    return Labelled(line, f"line-{line}", _body(values[body]), _labels(given, questions, groups))
