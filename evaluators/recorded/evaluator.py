"""Answers from a file instead of a model: for tests, demonstrations and replays without a key.

One JSON object a line: `{"body" or "key", "answers": {question id: facet value}}`, and if its confidences come from
somewhere worth naming `"confidence_source"`. The whole file is read and checked when the evaluator is made; after that
an answer is one look-up, and the memory it takes is about the file's size. There is never a live call: a body without
a line fails.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from facetline.evaluators import facet_values
from facetline.evaluators.contract import Evaluated, Identity, Limits
from facetline.facets import private_files
from facetline.facets.answers import nearest_level
from facetline.facets.errors import EvaluationFailed, InvalidAnswer, InvalidDefinition, nearest
from facetline.facets.questions import Question, Score

KIND = "recorded"
FILE_BYTES_MAX = 512 * 1024 * 1024
"""The file is held in memory: some 500,000 answers about short texts."""

LINE_KEYS = ("answers", "body", "confidence_source", "key")
LIMITS = Limits(question_types=frozenset({"choice", "boolean", "score"}), options_max=255, levels_max=10, is_free=True)


class _Damaged(ValueError):
    """A line cannot be taken; the message says what to fix."""


class Recorded:
    """Look answers up by the document's key, or else by its exact body.

    Raises:
        InvalidDefinition: the file cannot be read; the message names the line and the way out.
    """

    def __init__(self, path: Path, *, confidence_source: str = "recorded") -> None:
        self._name = path.name
        self._source = confidence_source
        self._by = _read(path)

    @property
    def kind(self) -> str:
        """The kind's name."""
        return KIND

    @property
    def identity(self) -> Identity:
        """The file's content, and the source of confidence for lines that name none."""
        return Identity(KIND, KIND, {"confidence_source": self._source, "sha256": self._by.sha256})

    @property
    def limits(self) -> Limits:
        """Whatever any evaluator may be asked: a recording can be of any."""
        return LIMITS

    async def evaluate(self, body: str, questions: Mapping[str, Question], *, key: str, deadline_s: float) -> Evaluated:
        """Return the line's answers as they were recorded; `deadline_s` is never reached."""
        del deadline_s
        line = self._by.key.get(key) or self._by.body.get(_digest(body))
        if line is None:
            raise EvaluationFailed("evaluator_error", f"{self._name} has no answers for key '{key}' nor for its body.")
        data = json.loads(line)
        answers = facet_values.answers_of(data["answers"])
        for name, value in data["answers"].items():
            _check_level(name, value, questions.get(name))
        source = data.get("confidence_source", self._source)
        confident = any(answer.confidence is not None for answer in answers.values())
        return Evaluated(answers, KIND, source if confident else None)

    async def close(self) -> None:
        """Nothing is open."""


@dataclass(slots=True)
class _Recording:
    """The file's lines by what they are looked up by; a body by its digest."""

    sha256: str = ""
    key: dict[str, bytes] = field(default_factory=dict)
    body: dict[bytes, bytes] = field(default_factory=dict)


def _read(path: Path) -> _Recording:
    try:
        with private_files.open_regular(path) as file:
            if path.stat().st_size > FILE_BYTES_MAX:
                raise InvalidDefinition([f"{path} is larger than {FILE_BYTES_MAX >> 20} MiB; split the collection"])
            return _read_lines(path, file)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidDefinition([f"{path} cannot be read ({reason}); `path` is relative to facetline.toml"]) from error


def _read_lines(path: Path, file: BinaryIO) -> _Recording:
    found, digest = _Recording(), hashlib.sha256()
    for number, line in enumerate(file, 1):
        digest.update(line)
        if not line.strip():
            continue
        try:
            _take(found, line)
        except _Damaged as error:
            raise InvalidDefinition([f"{path}, line {number}: {error}"]) from error
    found.sha256 = digest.hexdigest()
    return found


def _take(found: _Recording, line: bytes) -> None:
    given = _checked(_parsed(line))
    kept = json.dumps({name: given[name] for name in ("answers", "confidence_source") if name in given}).encode()
    if "key" in given:
        known = found.key.setdefault(given["key"], kept)
    else:
        known = found.body.setdefault(_digest(given["body"]), kept)
    if known is not kept:
        raise _Damaged("an earlier line is about the same document; keep one of them")


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line, parse_constant=_refuse_constant)
    except _Damaged:
        raise
    except UnicodeDecodeError as error:
        raise _Damaged("it is not UTF-8; write the file again as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise _Damaged(f"it is not one JSON object ({error}); fix or delete the line") from error


def _refuse_constant(name: str) -> Any:
    raise _Damaged(f"{name} is no number in JSON; fix or delete the line")


def _checked(given: Any) -> dict[str, Any]:
    """Return a line that has one subject and answers that are facet values."""
    if not isinstance(given, dict):
        raise _Damaged('it is not a JSON object; write {"body": "…", "answers": {…}}')
    for name in given:
        if name not in LINE_KEYS:
            raise _Damaged(f"unknown key '{name}'{nearest(name, LINE_KEYS)}; a line has {_listed(LINE_KEYS)}")
    if ("body" in given) == ("key" in given):
        raise _Damaged('it must have either "body" or "key"')
    for name in ("body", "key", "confidence_source"):
        if name in given and not (isinstance(given[name], str) and given[name]):
            raise _Damaged(f'"{name}" must be text that is not empty')
    if not isinstance(given.get("answers"), dict):
        raise _Damaged('"answers" must be an object: question id to facet value')
    try:
        facet_values.answers_of(given["answers"])
    except facet_values.NotAFacetValue as error:
        raise _Damaged(str(error)) from error
    return given


def _check_level(name: str, value: Mapping[str, Any], question: Question | None) -> None:
    """Refuse a recorded level name that is not the one of its score: the levels have changed since."""
    if "level" not in value or not isinstance(question, Score) or not 0 <= value["score"] <= len(question.levels) - 1:
        return  # another type or a score beyond the levels is the validator's to refuse
    level = nearest_level(value["score"], question.levels)
    if value["level"] != level:
        raise InvalidAnswer(f"Question '{name}': score {value['score']} is level '{level}', not '{value['level']}'.")


def _digest(body: str) -> bytes:
    # A body with a lone surrogate is in no recording; its digest only has to exist.
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).digest()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
