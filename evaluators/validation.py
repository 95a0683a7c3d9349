"""The one check between a model's answer and what is stored.

An answer passes as it is or not at all: nothing here repairs, clamps, renormalises, drops or fills in. A set of answers
passes whole or not at all. Rules and tolerances are those of the AI SDK's decision models (specification v4), because
that is what hosted decision models hold themselves to.

Rounding: a model that reports two decimals may give probabilities that add up to 0.99. A caller who knows the number of
decimals says so. Otherwise a distribution is taken as rounded to as many decimals as its longest value shows, and to
two at least, so that 0.5 and 0.4 do not pass as "rounded to one".
"""

import json
import math
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from facetline.evaluators.contract import Evaluated
from facetline.facets.answers import Answer, BooleanAnswer, ChoiceAnswer, ScoreAnswer
from facetline.facets.errors import InvalidAnswer
from facetline.facets.questions import Boolean, Choice, Question, Score

VERSION = "1"
"""Part of every fingerprint: raise it when answers that passed would no longer pass, or the other way round."""

EXACT = 1e-6
"""What float arithmetic may add up to over the most options there can be (255)."""

DECIMALS_MIN, DECIMALS_MAX = 2, 15
"""Hosted decision models round to two decimals without declaring it; a double has 15 that can be relied on."""

PART_CHARS_MAX = 16 * 1024
DEPTH_MAX = 8
"""Usage and notes are a few numbers and words; each document keeps its own."""

SHOWN_CHARS_MAX = 80
"""A message quotes no more than this of a model's answer: it may be a piece of the document."""

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
"""Made once: every answer passes through it."""
NUL_ESCAPED = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""A NUL character in JSON text: PostgreSQL refuses it."""


def check_evaluated(questions: Mapping[str, Question], evaluated: Evaluated, *, decimals: int | None = None) -> None:
    """Refuse a call's result that cannot be stored as it is: its answers (see `check`), model id, usage or notes.

    Raises:
        InvalidAnswer: names the question, or the part of the result, and what is wrong with it.
    """
    for part in ("model", "confidence_source"):
        _check_text(part, getattr(evaluated, part))
    if not evaluated.model:
        raise InvalidAnswer("The evaluator did not say which model answered.")
    for part in ("usage", "notes"):
        _check_mapping(part, getattr(evaluated, part))
    if evaluated.cost_usd is not None and not (_is_number(evaluated.cost_usd) and evaluated.cost_usd >= 0):
        raise InvalidAnswer(f"The cost must be a finite number of dollars, 0 or more, not {shown(evaluated.cost_usd)}.")
    for part in ("model", "confidence_source", "usage", "notes"):
        _check_storable(part, getattr(evaluated, part))
    check(questions, evaluated.answers, confidence_source=evaluated.confidence_source, decimals=decimals)


def check(
    questions: Mapping[str, Question],
    answers: Mapping[str, Answer],
    *,
    confidence_source: str | None = None,
    decimals: int | None = None,
) -> None:
    """Refuse `answers` unless they are a full and valid set for `questions`.

    Args:
        questions: The collection's questions.
        answers: The answers, by question id.
        confidence_source: The statistic behind the confidences. Without one, any confidence is refused.
        decimals: To how many decimals the model rounds probabilities and scores; None: see the module.

    Raises:
        InvalidAnswer: names the question and what is wrong with its answer.
    """
    _check_names("answers", "question", answers, questions)
    for name, question in questions.items():
        try:
            _check_answer(question, answers[name], decimals)
            _check_confidence(answers[name].confidence, confidence_source)
        except InvalidAnswer as error:
            raise InvalidAnswer(f"Question '{name}': {error.message}") from None


def _check_answer(question: Question, answer: Answer, decimals: int | None) -> None:
    match question, answer:
        case Choice(), ChoiceAnswer():
            _check_choice(question, answer, decimals)
        case Boolean(), BooleanAnswer(probability=None, value=bool()):
            pass
        case Boolean(), BooleanAnswer():
            _check_fraction("the probability", answer.probability)
        case Score(), ScoreAnswer():
            _check_score(question, answer, decimals)
        case _:
            message = getattr(answer, "type", type(answer).__name__)
            raise InvalidAnswer(f"a {question.type} question was answered with {shown(message)}.")


def _check_choice(question: Choice, answer: ChoiceAnswer, decimals: int | None) -> None:
    _check_option(answer.choice, question.options)
    if answer.probabilities is None:
        return
    half_unit = _check_distribution(answer.probabilities, question.options, decimals)
    chosen, highest = answer.probabilities[answer.choice], max(answer.probabilities.values())
    if chosen < highest - EXACT - 2 * half_unit:
        raise InvalidAnswer(f"it chose '{answer.choice}' at {chosen}, but another option has {highest}.")


def _check_option(choice: Any, options: Collection[str]) -> None:
    if not isinstance(choice, str) or choice not in options:
        raise InvalidAnswer(f"{shown(choice)} is none of its options: {_listed(options)}.")


def _check_score(question: Score, answer: ScoreAnswer, decimals: int | None) -> None:
    top = len(question.levels) - 1
    if not _is_number(answer.score) or not 0 <= answer.score <= top:
        raise InvalidAnswer(f"the score must be a finite number from 0 to {top}, not {shown(answer.score)}.")
    if answer.probabilities is None:
        return
    half_unit = _check_distribution(answer.probabilities, [str(index) for index in range(top + 1)], decimals)
    mean = sum(int(level) * probability for level, probability in answer.probabilities.items())
    # A rounded probability of level i moves the mean by up to i half-units, and the score itself may be rounded too.
    tolerance = EXACT + half_unit * top * (top + 1) / 2 + _half_unit([answer.score], decimals)
    if abs(answer.score - mean) > tolerance:
        raise InvalidAnswer(f"the score {answer.score} is not the mean of its probabilities, {mean:.6g}.")


def _check_distribution(probabilities: Mapping[str, float], expected: Collection[str], decimals: int | None) -> float:
    """Refuse an incomplete or impossible distribution; return half a unit of its last decimal."""
    if not isinstance(probabilities, Mapping):
        raise InvalidAnswer(f"the probabilities must be a map, not {shown(probabilities)}.")
    _check_names("probabilities", "option", probabilities, expected)
    for option, probability in probabilities.items():
        _check_fraction(f"the probability of '{option}'", probability)
    half_unit = _half_unit(probabilities.values(), decimals)
    total = math.fsum(probabilities.values())
    if abs(total - 1) > EXACT + len(probabilities) * half_unit:
        raise InvalidAnswer(f"the probabilities add up to {total:.6g} instead of 1.")
    return half_unit


def _check_confidence(confidence: float | None, source: str | None) -> None:
    if confidence is None:
        return
    _check_fraction("the confidence", confidence)
    if not source:
        raise InvalidAnswer("it has a confidence, but the evaluator does not say which statistic that is.")


def _check_fraction(what: str, value: Any) -> None:
    if not _is_number(value) or not 0 <= value <= 1:
        raise InvalidAnswer(f"{what} must be a finite number from 0 to 1, not {shown(value)}.")


def _check_names(what: str, one: str, found: Iterable[str], expected: Collection[str]) -> None:
    given = set(found)
    missing, unknown = [name for name in expected if name not in given], given.difference(expected)
    if missing:
        raise InvalidAnswer(f"{what} are incomplete, {one} {_listed(missing)} is missing.")
    if unknown:
        raise InvalidAnswer(f"{what} name an unknown {one}, {_listed(sorted(map(str, unknown)))}.")


def _check_text(part: str, value: Any) -> None:
    if value is not None and not isinstance(value, str):
        raise InvalidAnswer(f"The result's {part} must be text, not {shown(value)}.")


def _check_mapping(part: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidAnswer(f"The result's {part} must be an object with text for names, not {shown(value)}.")
    if _is_deeper(value, DEPTH_MAX):
        raise InvalidAnswer(f"The result's {part} is nested deeper than {DEPTH_MAX} levels.")


def _is_deeper(value: Any, levels: int) -> bool:
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else None
    return parts is not None and (levels == 0 or any(_is_deeper(part, levels - 1) for part in parts))


def _check_storable(part: str, value: Any) -> None:
    """Refuse what JSON in UTF-8 or a text column cannot hold: NaN, infinities, lone surrogates, NUL, foreign types."""
    if value is None:
        return
    try:
        text = _encode(dict(value) if isinstance(value, Mapping) else value)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidAnswer(f"The result's {part} cannot be stored as JSON: {shown(str(error))}.") from error
    if len(text) > PART_CHARS_MAX:
        raise InvalidAnswer(
            f"The result's {part} has {len(text)} characters as JSON, at most {PART_CHARS_MAX} are kept."
        )
    if NUL_ESCAPED.search(text):
        raise InvalidAnswer(f"The result's {part} contains a NUL character.")


def _half_unit(values: Collection[float], decimals: int | None) -> float:
    return 0.5 * 10.0 ** -(_decimals_shown(values) if decimals is None else decimals)


def _decimals_shown(values: Collection[float]) -> int:
    shown = range(DECIMALS_MIN, DECIMALS_MAX)
    return next((count for count in shown if all(value == round(value, count) for value in values)), DECIMALS_MAX)


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _listed(names: Iterable[str]) -> str:
    return ", ".join(shown(name) for name in list(names)[:10])


def shown(value: Any) -> str:
    """Return a value as a message may quote it: it can be a piece of the document."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 (anybody's object, or an integer of too many digits)
        text = f"a {type(value).__name__}"
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"
