"""From a reply's text to answers: strictly what was asked for, or nothing at all.

A reply is one JSON object with exactly the sheet's keys. One code fence around it, and one closed block of thoughts
before it (its opening mark may be missing), are taken off; prose around it is not searched. Values are codes, or
exactly the option's key; a code or key in other letters or with white space around is taken where it can mean one thing
only. Numbers are JSON numbers, or text that is exactly one. Nothing is ever a default, clamped or guessed.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from facetline.evaluators.chat import logprobs
from facetline.evaluators.chat.logprobs import Shares
from facetline.evaluators.chat.question_codes import TRUE, Line, Sheet
from facetline.evaluators.chat.reply import Reply
from facetline.evaluators.validation import shown
from facetline.facets.answers import Answer, BooleanAnswer, ChoiceAnswer, ScoreAnswer
from facetline.facets.errors import InvalidAnswer
from facetline.facets.questions import Choice, Score

FENCE = "```"
FENCE_OPENS = re.compile(r"```[A-Za-z]{0,10}[ \t]*\n")
_TAG = r"(?:seed:)?(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflection)"
_OPENS = rf"<{_TAG}>|\[THINK\]|◁think▷|<\|begin_of_thought\|>|<unused94>|<\|channel\|>analysis"
_CLOSES = (
    rf"</{_TAG}>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|<unused95>|"
    r"<\|channel\|>final(?: ?<\|constrain\|>\w{1,20})?<\|message\|>"
)
THOUGHTS = re.compile(rf"\s*(?:{_OPENS}).*?(?:{_CLOSES})|\s*(?![\s{{`]).*?(?:{_CLOSES})", re.DOTALL)
"""Thoughts before an answer, in the tags and marks of the models that write them (DeepSeek, Qwen, Seed, Mistral, Kimi,
Sky-T1, MedGemma, gpt-oss). The opening one may be missing: some servers put it into the prompt."""
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
SPACE = re.compile(r"[ \t\r\n]*")
NUMBER_CHARS_MAX = 40
"""No number that answers anything is longer."""

REPLY_CHARS_MAX = 1024 * 1024
"""Some thoughts come with a reply, but none are longer."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What was answered on one line.

    `meaning` is what the code stands for, None where a number was asked for or given. `code` and `place` are the code
    and where it begins in the text, None where something else than the bare code stands there.
    """

    meaning: str | None = None
    number: float | None = None
    code: str | None = None
    place: int | None = None
    sure: float | None = None


class Undecided(Exception):
    """A boolean was answered with a letter, but its tokens do not say how likely that letter was."""


def read(text: str, sheet: Sheet) -> dict[str, Statement]:
    """Return what `text` says to each question.

    Raises:
        InvalidAnswer: it is not one object with exactly the sheet's keys, or a value is none that was asked for.
    """
    found = _object(text)
    wanted = {key for line in sheet for key in (line.key, line.sure_key) if key}
    missing, more = sorted(wanted - set(found)), sorted(set(found) - wanted)
    if missing:
        raise InvalidAnswer(f"The reply has no {_listed(sheet, missing)}.")
    if more:
        raise InvalidAnswer(f"The reply has keys that were not asked for: {', '.join(map(shown, more[:5]))}.")
    return {line.id: _statement(line, found) for line in sheet}


def answers(reply: Reply, sheet: Sheet) -> dict[str, Answer]:
    """Return the answers in a reply, with as much of a distribution and a confidence as its tokens carry.

    Raises:
        InvalidAnswer: as `read`.
        Undecided: the tokens do not give the probability of a boolean's letter.
    """
    found = read(reply.text, sheet)
    start = logprobs.start_of(reply.tokens, reply.text)
    return {line.id: _answer(line, found[line.id], _shares(line, found[line.id], reply, start)) for line in sheet}


def _shares(line: Line, given: Statement, reply: Reply, start: int | None) -> Shares | None:
    if start is None or given.place is None or given.code is None:
        return None
    return logprobs.shares(reply.tokens, start + given.place, codes=line.codes, chosen=given.code)


def _answer(line: Line, given: Statement, shares: Shares | None) -> Answer:
    by_code = shares.by_code if shares else None
    by_name = {line.codes[code]: share for code, share in by_code.items()} if by_code else None
    confidence = given.sure if line.sure_key else shares.chosen if shares else None
    match line.question:
        case Choice():
            return ChoiceAnswer(choice=str(given.meaning), probabilities=by_name, confidence=confidence)
        case Score() as question:
            score = given.number if given.meaning is None else _mean(given.meaning, by_name, len(question.levels) - 1)
            return ScoreAnswer(score=float(score or 0.0), probabilities=by_name, confidence=confidence)
        case _:
            return BooleanAnswer(probability=_yes(given, shares))


def _mean(level: str, by_level: Mapping[str, float] | None, top: int) -> float:
    if by_level is None:
        return float(level)
    return min(math.fsum(int(each) * share for each, share in by_level.items()), float(top))


def _yes(given: Statement, shares: Shares | None) -> float:
    if given.meaning is None and given.number is not None:
        return given.number
    if shares is None or shares.by_code is None:  # what "no" has is not known, and the probability is the answer
        raise Undecided
    return shares.chosen if given.meaning == TRUE else round(1 - shares.chosen, logprobs.DECIMALS)


def _statement(line: Line, found: Mapping[str, "_Value"]) -> Statement:
    value, sure = found[line.key], found.get(line.sure_key or "")
    opinion = None if sure is None else _fraction(line, sure.value)
    if not line.codes:
        return Statement(number=_fraction(line, value.value))
    meaning, code = _meaning(line, value.value)
    if meaning is None:
        return Statement(number=_level(line, value.value), sure=opinion)
    return Statement(meaning, code=code, place=None if code is None else value.start + 1, sure=opinion)


def _meaning(line: Line, value: Any) -> tuple[str | None, str | None]:
    """Return what a value stands for, and the code where it is exactly one; no meaning for a score's number."""
    if isinstance(value, str):
        if value in line.codes:
            return line.codes[value], value
        if value in line.codes.values():
            return value, None
        folded = value.strip().casefold()
        near = {name for code, name in line.codes.items() if folded in (code.casefold(), name.casefold())}
        if len(near) == 1:
            return near.pop(), None
    elif isinstance(value, bool) and line.question.type == "boolean":
        return json.dumps(value), None
    if isinstance(line.question, Score):
        return None, None
    raise InvalidAnswer(f"Question '{line.id}': {shown(value)} is none of its codes.")


def _level(line: Line, value: Any) -> float:
    top = len(line.codes) - 1
    return _number(line, value, top, f"must be a level's digit or a number from 0 to {top}")


def _fraction(line: Line, value: Any) -> float:
    return _number(line, value, 1, "must be a number from 0 to 1")


def _number(line: Line, value: Any, top: int, rule: str) -> float:
    number = value
    if isinstance(value, str) and len(value) <= NUMBER_CHARS_MAX and NUMBER.fullmatch(value):
        number = float(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= top:  # no NaN either
        raise InvalidAnswer(f"Question '{line.id}': the answer {rule}, not {shown(value)}.")
    return float(number)


@dataclass(frozen=True, slots=True)
class _Value:
    """A member's value, and where it begins."""

    value: Any
    start: int


def _object(text: str) -> dict[str, _Value]:
    """Return the members of the one object that `text` is."""
    if len(text) > REPLY_CHARS_MAX:
        raise InvalidAnswer(f"The reply has {len(text)} characters, at most {REPLY_CHARS_MAX} are read.")
    start, end = _bounds(text)
    found: dict[str, _Value] = {}
    try:
        for name, value in _members(text, start, end):
            if name in found:
                raise InvalidAnswer(f"The reply says {shown(name)} twice.")
            found[name] = value
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer(f"The reply is not one JSON object: {shown(text.strip())}.") from error
    return found


def _bounds(text: str) -> tuple[int, int]:
    """Return where the object begins and ends, without thoughts, fence and white space around."""
    thoughts = THOUGHTS.match(text)
    start, end = _skip(text, thoughts.end() if thoughts else 0), len(text.rstrip())
    opens = FENCE_OPENS.match(text, start)
    if opens and opens.end() <= end - len(FENCE) and text.endswith(FENCE, 0, end):
        return opens.end(), end - len(FENCE)
    return start, end


def _members(text: str, start: int, end: int) -> Iterator[tuple[str, _Value]]:
    """Yield an object's members; `json.loads` would keep neither places nor the first of two equal keys."""
    decoder = json.JSONDecoder()
    text = text[:end]
    place = _expect(text, _skip(text, start), "{")
    place = _skip(text, place)
    more = not text.startswith("}", place)
    while more:
        name, place = decoder.raw_decode(text, place)
        if not isinstance(name, str):
            raise ValueError("a key is text")  # noqa: TRY004 (of a wrong text, not of a wrong call)
        value_at = _skip(text, _expect(text, _skip(text, place), ":"))
        value, value_end = decoder.raw_decode(text, value_at)
        yield name, _Value(value, value_at)
        place = _skip(text, value_end)
        more = text.startswith(",", place)
        place = _skip(text, place + 1) if more else place
    place = _skip(text, _expect(text, place, "}"))
    if place != len(text):
        raise ValueError("something follows the object")


def _skip(text: str, place: int) -> int:
    found = SPACE.match(text, place)
    return found.end() if found else place


def _expect(text: str, place: int, sign: str) -> int:
    if not text.startswith(sign, place):
        raise ValueError(f"{sign} expected")
    return place + 1


def _listed(sheet: Sheet, keys: list[str]) -> str:
    of_key = {key: line.id for line in sheet for key in (line.key, line.sure_key) if key}
    return ", ".join(f"{key} (question '{of_key[key]}')" for key in keys[:5])
