"""Answers of an earlier system that come with a document: checked like any model's, and marked as imported.

An imported answer may be to some of the questions only; the others stay without one, and are counted as outdated. Its
fingerprint is never an active one, so the document is outdated as a whole: it is found by its answers, and asked about
again by `reindex --outdated`, never before.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from facetline.evaluators import facet_values, validation
from facetline.facets import answers, errors
from facetline.facets.definitions import Definition
from facetline.facets.documents import EventReason
from facetline.facets.questions import Question
from facetline.storage.log.events import IMPORTED_FINGERPRINT, Answered

KIND = "imported"
EVALUATION_KEYS = ("evaluator", "model", "classified_at", "confidence_source")
WORDS_CHARS_MAX = 512
"""Of a model's or a system's name."""
UNKNOWN = "unknown"
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def answered(definition: Definition, facets: Any, evaluation: Any) -> Answered:
    """Return what an event says about a document's answers, as it is stored.

    Raises:
        InvalidEvent: `invalid_facets`, naming the question or the part, and what would be right.
    """
    given = _facets(definition.questions, facets)
    words = _evaluation(evaluation)
    try:
        found = facet_values.answers_of(given)
        confident = any(answer.confidence is not None for answer in found.values())
        source = words.get("confidence_source", KIND) if confident else None
        asked = {name: definition.questions[name] for name in found}
        validation.check(asked, found, confidence_source=source)
    except (facet_values.NotAFacetValue, errors.InvalidAnswer) as error:
        raise _invalid(str(error)) from error
    public = answers.facet_values(asked, found)
    _check_levels(given, public)
    fields = {
        "evaluator": words.get("evaluator", KIND),
        "kind": KIND,
        "model": words.get("model", UNKNOWN),
        "confidence_source": source,
        "cached": False,
        "usage": None,
        "cost_usd": None,
        "notes": None,
    }
    at = _classified_at(words.get("classified_at"))
    text = json.dumps([public, fields, words.get("classified_at")], sort_keys=True, allow_nan=False)
    fingerprint = IMPORTED_FINGERPRINT + hashlib.sha256(text.encode()).hexdigest()
    return Answered(public, fields, fingerprint, None if at is None else round(at.timestamp() * 1000))


def value_of(question: Question, given: Any) -> answers.FacetValue:
    """Return a plain answer as a facet value: an option, yes or no, a probability of yes, a level, or a score.

    A facet value is returned as it is: whether it fits is for `answered` to say.

    Raises:
        ValueError: it is no possible answer; the message names the nearest one.
    """
    if isinstance(given, Mapping):
        return dict(given)
    if question.type == "choice":
        if not isinstance(given, str) or given not in question.options:
            guess = errors.nearest(str(given), question.options)
            raise ValueError(f"{given!r:.80} is no option{guess}; there are {_listed(question.options)}")
        return {"type": "choice", "choice": given, "confidence": None}
    if question.type == "boolean":
        return _boolean(given)
    if isinstance(given, str) and given in question.levels:
        return {"type": "score", "score": float(question.levels.index(given)), "confidence": None}
    number = _number(given)
    if number is None:
        guess = errors.nearest(str(given), question.levels)
        raise ValueError(f"{given!r:.80} is no score and no level{guess}; there are {_listed(question.levels)}")
    return {"type": "score", "score": number, "confidence": None}


def _boolean(given: Any) -> answers.FacetValue:
    known = {"true": True, "yes": True, "false": False, "no": False}
    value, probability = known.get(str(given).strip().lower()), _number(given)
    if value is None and probability is None:
        raise ValueError(f"{given!r:.80} is neither yes nor no, nor a probability of yes")
    # A plain yes comes without a probability, so it has no confidence.
    message = {"value": value} if probability is None else {"probability": probability}
    return {"type": "boolean", **message, "confidence": None}


def _number(given: Any) -> float | None:
    """Return a number, or a text that is exactly one (as in CSV), as a float; None when it is neither."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return None
    if isinstance(given, str) and not NUMBER.fullmatch(given.strip()):
        return None  # Python would read 1_0 as ten
    try:
        return float(given)
    except (ValueError, OverflowError):
        return None


def _facets(questions: Mapping[str, Question], facets: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(facets, dict) or not facets:
        raise _invalid('facets are an object of answers, such as {"topic": {"type": "choice", "choice": "billing"}}')
    for name, value in facets.items():
        if name not in questions:
            guess = errors.nearest(name, questions)
            raise _invalid(f"question {name!r:.80} is not asked{guess}; there are {_listed(questions)}")
        if not isinstance(value, dict):
            raise _invalid(f"the answer to '{name}' is no facet value; see docs/reference.md, Events")
    return facets


def _check_levels(given: Mapping[str, Mapping[str, Any]], public: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse the name of a level that is not its score's: the levels have changed since, or one of both is wrong."""
    for name, value in given.items():
        if "level" in value and value["level"] != public[name].get("level"):
            right = public[name].get("level")
            raise _invalid(f"question '{name}': score {value['score']} is level {right!r}, not {value['level']!r:.80}")


def _evaluation(evaluation: Any) -> dict[str, str]:
    if evaluation is None:
        return {}
    if not isinstance(evaluation, dict):
        raise _invalid('evaluation is an object, such as {"model": "…", "classified_at": "2026-01-31T12:00:00Z"}')
    for name, value in evaluation.items():
        if name not in EVALUATION_KEYS:
            guess = errors.nearest(name, EVALUATION_KEYS)
            raise _invalid(f"evaluation has no {name!r:.80}{guess}; it takes {_listed(EVALUATION_KEYS)}")
        if not _is_words(value):
            raise _invalid(f"evaluation's {name} is text of 1 to {WORDS_CHARS_MAX} letters, without NUL")
    return evaluation


def _is_words(value: Any) -> bool:
    if not isinstance(value, str) or not 0 < len(value) <= WORDS_CHARS_MAX or "\0" in value:
        return False
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


def _classified_at(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = datetime.min  # noqa: DTZ901 (a time without an offset is refused just below)
    if at.tzinfo is None or not 1970 <= at.year < 9999:  # noqa: PLR2004 (what any zone shifts stays a year that there is)
        raise _invalid(f"evaluation's classified_at is an RFC 3339 time with its offset, not {text!r:.80}")
    return at.astimezone(UTC)


def _listed(names: Any) -> str:
    shown = list(names)[:10]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def _invalid(message: str) -> errors.InvalidEvent:
    return errors.InvalidEvent(EventReason.INVALID_FACETS, message)
