"""Rows of a file as documents: NDJSON and CSV, read line by line however large the file is.

Pure: text lines in, rows and refusals out. A refusal names its line and does not stop the import; only what concerns
the whole file (a missing column) does. Numbers of lines count from 1.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Literal

from facetline.facets import errors
from facetline.facets.plurals import counted
from facetline.facets.questions import Question
from facetline.streams.files import csv_columns, json_elements
from facetline.streams.files.csv_columns import Columns
from facetline.streams.files.csv_records import CsvFile, Refusal, not_in
from facetline.streams.files.text_files import InvalidFile, as_utf8
from facetline.streams.files.typed_fields import typed, with_moments
from facetline.streams.wire import imported_answers

__all__ = ["Columns", "Form", "Format", "InvalidFile", "Refusal", "Row", "guess_format", "lines", "read_csv"]

Format = Literal["ndjson", "csv", "json"]
LINE_BYTES_MAX = 5 * 1024 * 1024
"""Above the largest body written with escapes (6 bytes for one); a longer line is refused and skipped."""
NDJSON_KEYS = ("key", "uri", "body", "state")
ANSWER_KEYS = ("facets", "evaluation")
"""What a line has in addition when answers of an earlier system are taken."""


@dataclass(frozen=True, slots=True)
class Row:
    """One document to write; exactly one of `key` and `uri` is given."""

    line: int
    key: str | None
    uri: str | None
    body: str | None
    state: dict[str, Any] | None
    facets: dict[str, Any] | None = None
    evaluation: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """How a file is written; what is None is found out."""

    delimiter: str | None = None
    encoding: str | None = None


def guess_format(name: str) -> Format:
    """Return the format that a file's name says; NDJSON where it says none."""
    ending = name.lower().rpartition(".")[2]
    return "csv" if ending in {"csv", "tsv"} else "json" if ending == "json" else "ndjson"


def form_of(name: str, delimiter: str | None, encoding: str | None) -> Form:
    """Return how a file of this name is written: a `.tsv` has tabs."""
    return Form(delimiter or ("tab" if name.lower().endswith(".tsv") else None), encoding)


@dataclass(frozen=True, slots=True)
class Moments:
    """The state's types, and the declared formats of its dates by field."""

    types: Mapping[str, str]
    formats: Mapping[str, str]


def read_ndjson(
    file: BinaryIO,
    questions: Mapping[str, Question] | None = None,
    *,
    form: Form = Form(),
    kind: Format = "ndjson",
    moments: Moments | None = None,
) -> Iterator[Row | Refusal]:
    """Read `{"key" or "uri", "body", "state"}` lines; blank lines are passed. `kind` json: the elements of an array.

    With `questions`, lines may have "facets", answers of an earlier system to them, and "evaluation". With `moments`,
    dates of the state may be written as these say.
    """
    for number, line in objects(file, kind, form):
        if isinstance(line, Refusal):
            yield line
        elif line.strip():
            row = _ndjson_row(number, line, questions)
            yield row if moments is None or isinstance(row, Refusal) else _dated(row, moments)


def objects(file: BinaryIO, kind: Format, form: Form) -> Iterator[tuple[int, bytes | Refusal]]:
    """Return the lines of NDJSON, or the elements of a JSON array, with their numbers of line."""
    text = as_utf8(file, form.encoding)
    return json_elements.elements(text) if kind == "json" else lines(text)


def _dated(row: Row, moments: Moments) -> Row | Refusal:
    if row.state is None:
        return row
    try:
        return replace(row, state=with_moments(row.state, moments.types, moments.formats))
    except ValueError as error:
        return Refusal(row.line, f"invalid_state: {error}")


def lines(file: BinaryIO) -> Iterator[tuple[int, bytes | Refusal]]:
    """Return the lines of a file with their numbers; one that is too long is a refusal."""
    number = 0
    while line := file.readline(LINE_BYTES_MAX):
        number += 1
        if len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
            while (rest := file.readline(LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
                pass
            yield number, Refusal(number, f"too_large: the line has more than {LINE_BYTES_MAX} bytes")
        else:
            yield number, line


def _ndjson_row(number: int, line: bytes, questions: Mapping[str, Question] | None) -> Row | Refusal:
    try:
        data = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError:
        return Refusal(number, "not_json: the line is not UTF-8; name the file's encoding, such as --encoding cp1252")
    except (ValueError, RecursionError) as error:
        return Refusal(number, f"not_json: {str(error)[:200]}")
    row = _object_row(number, data, NDJSON_KEYS if questions is None else (*NDJSON_KEYS, *ANSWER_KEYS))
    if isinstance(row, Refusal) or questions is None or not any(name in data for name in ANSWER_KEYS):
        return row
    return _with_answers(row, data.get("facets"), data.get("evaluation"), questions)


def _object_row(number: int, data: Any, keys: tuple[str, ...]) -> Row | Refusal:
    if not isinstance(data, dict):
        return Refusal(number, 'not_json: a line is an object {"key" or "uri", "body", "state"}')
    unknown = sorted(set(data).difference(keys))
    if unknown and unknown[0] in ANSWER_KEYS:
        return Refusal(number, f"invalid_facets: {unknown[0]!r} is taken with --facets only; pass it, or leave it out")
    if unknown:
        return Refusal(number, f"invalid_body: unknown member {unknown[0]!r}{errors.nearest(unknown[0], keys)}")
    key, uri = data.get("key"), data.get("uri")
    if (key is None) == (uri is None):
        return Refusal(number, "invalid_uri: give either key or uri")
    if not isinstance(uri if key is None else key, str):
        return Refusal(number, "invalid_uri: key and uri are text")
    return _checked_row(number, key, uri, data)


def _checked_row(number: int, key: str | None, uri: str | None, data: dict[str, Any]) -> Row | Refusal:
    body, state = data.get("body"), data.get("state")
    if "body" in data and not isinstance(body, str):
        return Refusal(number, "invalid_body: body is text; leave it out to keep the stored one")
    if "state" in data and not isinstance(state, dict):
        return Refusal(number, "invalid_state: state is an object; leave it out to keep the stored one")
    if body is None and state is None:
        return Refusal(number, "invalid_body: neither body nor state")
    return Row(number, key, uri, body, state)


def _with_answers(row: Row, facets: Any, evaluation: Any, questions: Mapping[str, Question]) -> Row | Refusal:
    if not isinstance(facets, dict):
        return Refusal(row.line, "invalid_facets: facets are missing, or no object of answers by question")
    if evaluation is not None and not isinstance(evaluation, dict):
        return Refusal(row.line, "invalid_facets: evaluation is an object")
    found = {}
    for name, given in facets.items():
        if name not in questions:
            guess = errors.nearest(name, questions)
            return Refusal(row.line, f"invalid_facets: question {name[:80]!r} is not asked{guess}")
        try:
            found[name] = imported_answers.value_of(questions[name], given)
        except ValueError as error:
            return Refusal(row.line, f"invalid_facets: question '{name}': {error}")
    return replace(row, facets=found, evaluation=evaluation)


def read_csv(
    file: BinaryIO,
    columns: Columns,
    questions: Mapping[str, Question] | None = None,
    *,
    form: Form = Form(),
    note: Callable[[str], None] | None = None,
) -> Iterator[Row | Refusal]:
    """Read a CSV file with a header line; `questions` are those that `columns.facets` names, and more.

    `note` is called with a message about columns that are left out, and at the end about rows of empty fields.

    Raises:
        InvalidFile: the header cannot be read, or a column that was named is missing.
    """
    sheet = CsvFile(file, delimiter=form.delimiter, encoding=form.encoding, wanted=columns.wanted())
    if not sheet.header:
        return
    places = csv_columns.bind(sheet.header, columns)
    found = csv_columns.left_out_note(places, columns)
    if found and note is not None:
        note(found)
    empty = 0
    for row, (line, last, values) in enumerate(sheet.records(), 1):
        if isinstance(values, Refusal):
            yield values
        elif any(values):  # a row of empty cells is an empty line
            yield _csv_row(line, last, row, values, places, columns, form.encoding, questions)
        else:
            empty += 1
    if empty and note is not None:
        note(f"{counted(empty, 'row')} of empty fields passed over")


def _csv_row(
    line: int,
    last: int,
    row: int,
    values: list[str],
    places: csv_columns.Places,
    columns: Columns,
    encoding: str | None,
    questions: Mapping[str, Question] | None,
) -> Row | Refusal:
    last_line = last if last > line else None
    body, key = values[places.body], str(row) if places.key is None else values[places.key]
    if not key:
        column = "" if columns.key is None else f" {columns.key!r}"
        return Refusal(line, f"invalid_uri: the key column{column} is empty", last_line)
    try:
        "".join([body, key, *[values[place] for _, place in places.state]]).encode()
    except UnicodeEncodeError:
        return Refusal(line, f"invalid_text: the line is {not_in(encoding)}", last_line)
    state: dict[str, Any] = {}
    for name, place in places.state:
        try:
            state[name] = typed(values[place], columns.state[name], columns.dates.get(name))
        except ValueError as error:
            hint = f"; see --date-format {name}=FORMAT" if columns.state[name] == "datetime" else ""
            column = columns.named.get(name, name)
            return Refusal(line, f"invalid_state: column {column!r}: {error}{hint}", last_line)
    found: Row | Refusal = Row(line, key, None, body, state or None)
    facets = {name: values[place] for name, place in places.facets if values[place]}
    if isinstance(found, Row) and facets and questions is not None:
        found = _with_answers(found, facets, None, questions)
    return found
