"""Recorded calls: what an evaluator was asked, its answers, how long it took and what it cost.

One JSON object a line, in a fixed order of members, with the body in plain words, so that a file can be read and
reviewed. A call is found again by its key: the hash of all that its answer depends on. No name, address or secret of an
evaluator gets in.

Lines about embeddings may stand between them (`evaluators.embedders.recordings`), and are passed over here.
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

from facetline.evaluators import facet_values
from facetline.evaluators.contract import Evaluated, Identity
from facetline.facets import private_files
from facetline.facets import questions as questions_
from facetline.facets.answers import facet_values as public_form
from facetline.facets.questions import Question

T = TypeVar("T")

FILE_BYTES_MAX = 512 * 1024 * 1024
"""A file is held in memory: some 300,000 calls about short texts."""
LINE_KEYS = (
    "key",
    "body",
    "evaluator",
    "answers",
    "confidence_source",
    "model",
    "usage",
    "cost_usd",
    "notes",
    "latency_ms",
    "error",
)

OF_EMBEDDINGS = "embedder"
"""The member by which a line about an embedding is known."""

MILLISECONDS_MAX = 10**9
"""No call takes days."""

MESSAGE_CHARS_MAX = 300
"""Of an error's words."""
_PRIVATE = re.compile(r"\w+://\S+|\b(?=[\w.-]*\d)[\w.-]{20,}\b")
"""Addresses, and words that may be a key."""


class InvalidRecording(ValueError):
    """A line, or a file as a whole, is no recording; the message says what to fix."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who was asked: an evaluator's kind and model, and the fingerprint of it together with its questions."""

    kind: str
    model: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Why there is no answer: one of the reasons of documents, and the message."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Call:
    """One call: with `evaluated`, or with the `error` that it ended in. `latency_ms` is its wall-clock time."""

    key: str
    body: str
    asker: Asker
    latency_ms: float
    evaluated: Evaluated | None = None
    error: Problem | None = None


def key_of(identity: Identity, questions: Mapping[str, Question], body: str) -> str:
    """Return the hash of everything that an answer depends on, in hexadecimal."""
    depends_on = {
        "model": identity.model,
        "questions": questions_.canonical(questions),
        "version": f"{identity.kind}/{identity.version}",
        "parameters": identity.parameters,
        "body": body,
    }
    text = json.dumps(depends_on, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def encode(call: Call, questions: Mapping[str, Question]) -> str:
    """Return the call's line, without its end.

    Raises:
        ValueError: a part is no JSON or no Unicode, which the answer validator would have refused.
    """
    fields: dict[str, Any] = {
        "key": call.key,
        "body": call.body,
        "evaluator": {
            "kind": call.asker.kind,
            "model": call.asker.model,
            "fingerprint": call.asker.fingerprint,
        },
    }
    found = call.evaluated
    if found is not None:
        fields["answers"] = public_form(questions, found.answers)
        parts = {
            "confidence_source": found.confidence_source,
            "model": found.model,
            "usage": found.usage,
            "cost_usd": found.cost_usd,
            "notes": found.notes,
        }
        fields.update({name: value for name, value in parts.items() if value is not None})
    fields["latency_ms"] = round(call.latency_ms, 3)
    if call.error is not None:
        fields["error"] = {"reason": call.error.reason, "message": public(call.error.message)}
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)


def public(message: str) -> str:
    """Return an error's words without what may be an address or a key: a recording is read by many."""
    return _PRIVATE.sub("…", message)[:MESSAGE_CHARS_MAX]


def parsed(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line.

    Raises:
        InvalidRecording: the line is damaged.
    """
    try:
        data = json.loads(line, parse_constant=_refuse_constant, object_pairs_hook=_once)
    except InvalidRecording:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidRecording(f"it is not one JSON object ({str(error)[:200]})") from error
    if not isinstance(data, dict):
        raise InvalidRecording("it is not a JSON object")
    return data


def decode(line: bytes) -> Call | None:
    """Return the call that a line holds, None for one about an embedding.

    Its answers are not checked against questions: `evaluators.validation` does.

    Raises:
        InvalidRecording: the line is damaged.
    """
    data = parsed(line)
    if OF_EMBEDDINGS in data:
        return None
    unknown = [name for name in data if name not in LINE_KEYS]
    if unknown:
        raise InvalidRecording(f"unknown member '{unknown[0][:80]}'; a call has {', '.join(LINE_KEYS)}")
    asker = asker_of(data, "evaluator")
    return Call(
        key=part(data, "key", str),
        body=part(data, "body", str),
        asker=asker,
        latency_ms=milliseconds(data),
        evaluated=_evaluated(data),
        error=problem_of(data, "answers"),
    )


def read(path: Path) -> dict[str, Call]:
    """Return the calls of a file by their keys, of equal ones the last; a missing file holds none.

    A last line that was cut off while it was written is passed over; one that is whole but for its end is read.

    Raises:
        InvalidRecording: the message names the file and the line.
        OSError: the file cannot be read.
    """
    return {call.key: call for call in decoded(path, decode)}


def decoded(path: Path, decode_line: Callable[[bytes], T | None]) -> Iterator[T]:
    """Yield what the lines of a file hold, in order and without those for which there is None.

    Raises:
        InvalidRecording: the message names the file and the line.
        OSError: the file cannot be read.
    """
    try:
        file = private_files.open_regular(path)
    except FileNotFoundError:
        return
    with file:
        if os.fstat(file.fileno()).st_size > FILE_BYTES_MAX:
            raise InvalidRecording(f"{path} is larger than {FILE_BYTES_MAX >> 20} MiB; begin another file")
        for number, line in enumerate(file, 1):
            if not line.strip() or not (line.endswith(b"\n") or _is_whole(line)):
                continue
            try:
                found = decode_line(line)
            except InvalidRecording as error:
                raise InvalidRecording(f"{path}, line {number}: {error}; fix or delete the line") from error
            if found is not None:
                yield found


def find(calls: Mapping[str, Call], key: str, body: str) -> Call | None:
    """Return the call with this key, None when there is none.

    Raises:
        InvalidRecording: its line shows another body than `body`: what a reviewer reads is not what would be answered.
    """
    found = calls.get(key)
    if found is not None and found.body != body:
        raise InvalidRecording(
            f"the body of the call with the key {key} is not the one it was made about; restore it, or delete the line"
            " and record again"
        )
    return found


class Writer:
    """Appends calls to a file, each whole or not at all; used in a `with`. A file cut off in a line loses that line.

    Any number of processes of one machine may append to a file at once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        if self._path.exists():
            private_files.open_regular(self._path).close()  # a FIFO or a device is refused
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.fdopen(os.open(self._path, flags, private_files.FILE_MODE), "ab+", buffering=0)
        with _locked(self._file):
            _end_last_line(self._file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def append(self, call: Call, questions: Mapping[str, Question]) -> None:
        """Write one call.

        Raises:
            OSError: it cannot be written, for example because the disk is full.
        """
        self.append_line(encode(call, questions))

    def append_line(self, text: str) -> None:
        """Write one line, given without its end.

        Raises:
            OSError: it cannot be written, for example because the disk is full.
        """
        if self._file is None:
            raise ValueError("the file is closed; append within the `with`")
        line = (text + "\n").encode()
        with _locked(self._file):
            written = self._file.write(line)
        if written != len(line):  # a full disk takes a part; the next start cuts it off
            raise OSError(f"{self._path} took {written} of {len(line)} bytes")


@contextmanager
def _locked(file: BinaryIO) -> Iterator[None]:
    """Keep others from writing: a line that is half there while it is written is not one to be cut off."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _end_last_line(file: BinaryIO) -> None:
    """Take off what stands after the last line end: the process that wrote it was killed.

    A whole line stays and gets its end: it is someone's editor that left it out, and the call was paid for.
    """
    end = file.seek(0, os.SEEK_END)
    at = end
    while at > 0:
        start = max(0, at - 65_536)
        file.seek(start)
        found = file.read(at - start).rfind(b"\n")
        if found >= 0:
            at = start + found + 1
            break
        at = start
    if at == end:
        return
    file.seek(at)
    if _is_whole(file.read(end - at)):
        file.write(b"\n")
    else:
        file.truncate(at)


def _is_whole(line: bytes) -> bool:
    """Say whether a line without its end is a call all the same; no beginning of a longer one is."""
    try:
        decode(line)
    except InvalidRecording:
        return False
    return True


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that says something twice: readers of the file would see the first, programs take the last."""
    found = dict(members)
    if len(found) < len(members):
        names = [name for name, _ in members]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRecording(f"'{twice[:80]}' is there twice")
    return found


def milliseconds(fields: Mapping[str, Any]) -> float:
    """Return what a call took; a hand may have written any number.

    Raises:
        InvalidRecording: it is none that a call can take.
    """
    value = part(fields, "latency_ms", (int, float))
    if not 0 <= value <= MILLISECONDS_MAX:
        raise InvalidRecording(f"'latency_ms' is from 0 to {MILLISECONDS_MAX}")
    return float(value)


def _refuse_constant(name: str) -> Any:
    raise InvalidRecording(f"{name} is no number in JSON")


def asker_of(fields: Mapping[str, Any], name: str) -> Asker:
    """Return which evaluator or embedder was asked.

    Raises:
        InvalidRecording: a part of it is missing.
    """
    asker = part(fields, name, dict)
    return Asker(*(part(asker, each, str) for each in ("kind", "model", "fingerprint")))


def part(fields: Mapping[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:
    """Return a member of a line.

    Raises:
        InvalidRecording: it is missing, or of another type.
    """
    value = fields.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InvalidRecording(f"'{name}' is missing or of another type")
    return value


def _evaluated(fields: Mapping[str, Any]) -> Evaluated | None:
    if "answers" not in fields:
        return None
    try:
        answers = facet_values.answers_of(part(fields, "answers", dict))
    except facet_values.NotAFacetValue as error:
        raise InvalidRecording(str(error)) from error
    kinds: dict[str, type | tuple[type, ...]] = {
        "confidence_source": str,
        "usage": dict,
        "cost_usd": (int, float),
        "notes": dict,
    }
    parts = {name: None if fields.get(name) is None else part(fields, name, kind) for name, kind in kinds.items()}
    return Evaluated(answers, part(fields, "model", str), **parts)


def problem_of(fields: Mapping[str, Any], result: str) -> Problem | None:
    """Return the error of a line, None where it has a result, which is its member `result`.

    Raises:
        InvalidRecording: it has neither.
    """
    if "error" not in fields:
        if result not in fields:
            raise InvalidRecording(f"it has neither {result} nor an error")
        return None
    error = part(fields, "error", dict)
    return Problem(part(error, "reason", str), part(error, "message", str))
