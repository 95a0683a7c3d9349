"""Rows of a file as documents: NDJSON and CSV, read line by line however large the file is.

Pure: text lines in, rows and refusals out. A refusal names its line and does not stop the import; only what concerns
the whole file (a missing column) does. Numbers of lines count from 1.
"""

import csv
import io
import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Literal, Self, TextIO

from facets import errors
from facets.documents import BODY_BYTES_MAX
from facets.questions import Question
from streams import imported

Format = Literal["ndjson", "csv"]
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
class Refusal:
    """A line that cannot be a document."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Columns:
    """Which CSV columns are what; `key` None takes the number of the row. The columns of `state` give its types.

    `facets` maps questions to columns with answers of an earlier system; an empty field is none. `named` maps fields of
    the state to columns that are called otherwise.
    """

    body: str
    key: str | None
    ignore: frozenset[str]
    state: Mapping[str, str]
    facets: Mapping[str, str] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)

    def of_state(self) -> dict[str, str]:
        """Return the fields of the state with their columns."""
        return {name: self.named.get(name, name) for name in self.state}


class InvalidFile(errors.InvalidQuery):
    """The file's columns are not what was asked for."""

    code = "invalid-file"


def guess_format(name: str) -> Format:
    """Return the format that a file's name says; NDJSON where it says none."""
    return "csv" if name.lower().endswith(".csv") else "ndjson"


def read_ndjson(file: BinaryIO, questions: Mapping[str, Question] | None = None) -> Iterator[Row | Refusal]:
    """Read `{"key" or "uri", "body", "state"}` lines; blank lines are passed.

    With `questions`, lines may have "facets", answers of an earlier system to them, and "evaluation".
    """
    for number, line in lines(file):
        if isinstance(line, Refusal):
            yield line
        elif line.strip():
            yield _ndjson_row(number, line, questions)


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
        return Refusal(number, "not_json: the line is not UTF-8")
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
            found[name] = imported.value_of(questions[name], given)
        except ValueError as error:
            return Refusal(row.line, f"invalid_facets: question '{name}': {error}")
    return replace(row, facets=found, evaluation=evaluation)


def read_csv(
    file: BinaryIO, columns: Columns, questions: Mapping[str, Question] | None = None
) -> Iterator[Row | Refusal]:
    """Read a CSV file with a header line; `questions` are those that `columns.facets` names, and more.

    Raises:
        InvalidFile: a column that was named is missing, or one is neither body, key, state nor ignored.
    """
    records = csv_records(file)
    first = next(records, None)
    if first is None:
        return
    header = header_of(first)
    _check_header(header, columns)
    row = 0
    for line, values in records:
        if isinstance(values, Refusal):
            yield values
            continue
        row += 1
        fields = dict(zip(header, values, strict=False))
        found = _csv_row(line, row, fields, len(values) - len(header), columns)
        facets = {name: fields[column] for name, column in columns.facets.items() if fields.get(column)}
        if isinstance(found, Row) and facets and questions is not None:
            found = _with_answers(found, facets, None, questions)
        yield found


def csv_records(file: BinaryIO) -> Iterator[tuple[int, list[str] | Refusal]]:
    """Return the records of a CSV file, the header too, with the numbers of their first lines; empty ones are left out.

    What is not UTF-8 comes as lone surrogates. Fields are separated by commas; by semicolons or tabs in a file whose
    first line has some of these and no comma, as spreadsheets write them where a comma is part of a number.
    """
    csv.field_size_limit(2 * BODY_BYTES_MAX)
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    lines_ = _BoundedLines(text)
    reader = csv.reader(lines_, strict=True, delimiter=_delimiter(lines_.first))
    while True:
        line = reader.line_num + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, Refusal(line, f"not_csv: {error}")
            continue
        if values:
            yield line, values


def _delimiter(header: str) -> str:
    """Return what separates the fields of a file with this first line."""
    if "," in header:
        return ","
    return next((each for each in (";", "\t") if each in header), ",")


def header_of(first: tuple[int, list[str] | Refusal]) -> list[str]:
    """Return the first record as the names of the columns.

    Raises:
        InvalidFile: it is not CSV, or names a column twice.
    """
    _, names = first
    if isinstance(names, Refusal):
        raise InvalidFile(f"the header line is not CSV: {names.reason.removeprefix('not_csv: ')}")
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise InvalidFile(f"column {twice[0]!r} stands twice in the file; name each column once")
    return names


class _BoundedLines:
    """The lines of a CSV file; one that is too long is passed over, and is an error of its record."""

    def __init__(self, text: TextIO) -> None:
        self._text = text
        self.first = text.readline(LINE_BYTES_MAX)
        self._read_first = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = self._text.readline(LINE_BYTES_MAX) if self._read_first else self.first
        self._read_first = True
        if not line:
            raise StopIteration
        if len(line) == LINE_BYTES_MAX and not line.endswith("\n"):
            while (rest := self._text.readline(LINE_BYTES_MAX)) and not rest.endswith("\n"):
                pass
            raise csv.Error(f"the line has more than {LINE_BYTES_MAX} characters")
        return line


def _check_header(header: list[str], columns: Columns) -> None:
    options = {columns.body: "--body-column", columns.key: "--key-column"}
    for wanted in (columns.body, columns.key, *columns.facets.values(), *columns.named.values()):
        if wanted is not None and wanted not in header:
            guess = errors.nearest(wanted, header)
            way_out = f"; name another one with {options[wanted]}" if wanted in options else ""
            raise InvalidFile(
                f"the file has no column {wanted!r}{guess}; it has {', '.join(header)}{way_out}", allowed=header
            )
    for name in sorted(columns.ignore - set(header)):
        raise InvalidFile(f"the file has no column {name!r} to ignore; it has {', '.join(header)}", allowed=header)
    of_state = columns.of_state().values()
    taken = {columns.body, columns.key, *columns.ignore, *of_state, *columns.facets.values()}
    if left := [name for name in header if name not in taken]:
        shown = ", ".join(map(repr, left))
        raise InvalidFile(
            f"{'column' if len(left) == 1 else 'columns'} {shown}: neither the body, the key, answers nor in the"
            f" collection's state ({', '.join(columns.state) or 'which has no fields'}); add a field there, take the"
            f" column for one with --state-column FIELD={shlex.quote(left[0])}, or pass --ignore-columns"
            f" {shlex.quote(','.join(left))}",
            allowed=columns.state,
        )


def _csv_row(line: int, row: int, values: dict[str, str], surplus: int, columns: Columns) -> Row | Refusal:
    if surplus:
        return Refusal(line, f"not_csv: {abs(surplus)} fields too {'many' if surplus > 0 else 'few'}")
    try:
        "".join(values.values()).encode()
    except UnicodeEncodeError:
        return Refusal(line, "invalid_text: the line is not UTF-8")
    state: dict[str, Any] = {}
    other = {columns.body, columns.key, *columns.facets.values(), *columns.ignore} - set(columns.named.values())
    for name, column in columns.of_state().items():
        if column not in values or column in other:
            continue
        try:
            state[name] = typed(values[column], columns.state[name])
        except ValueError as error:
            return Refusal(line, f"invalid_state: column {column!r}: {error}")
    key = str(row) if columns.key is None else values[columns.key]
    return Row(line, key, None, values[columns.body], state or None)


def typed(text: str, kind: str) -> Any:
    """Return a CSV field as a value of a state type; an empty one is null.

    Raises:
        ValueError: the text is no such value.
    """
    if text == "":
        return None
    if kind == "integer":
        return _number(text, int, kind)
    if kind == "number":
        return _number(text, float, kind)
    if kind == "boolean":
        known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.strip().lower() not in known:
            raise ValueError(f"{text[:40]!r} is not true or false")
        return known[text.strip().lower()]
    return text


def _number(text: str, make: type[int] | type[float], kind: str) -> int | float:
    try:
        return make(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not of type {kind}") from None
