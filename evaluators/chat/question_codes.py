"""The questions as a chat model sees them: short codes in place of ids, option keys and levels.

A code is a single letter wherever there are few enough options: one token in practically every vocabulary, so that its
probability is the option's and no option is preferred for its length. Codes never equal an option's key, so that a
reply with the key instead of the code is understood.

Questions are asked in the order of their ids, and options in that of their keys or shuffled for each document: both
are in no fingerprint, so the order in which they were declared must change nothing.
"""

import hashlib
import itertools
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from facetline.facets import questions as asked
from facetline.facets.questions import Boolean, Choice, Question, Score

OPTIONS_MAX = 100
LEVELS_MAX = 10
"""A level is answered with its digit."""

YES, NO = "T", "F"
TRUE, FALSE = "true", "false"

Order = Callable[[str, Iterable[str]], list[str]]
"""From a question's id and its option keys to the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Line:
    """One question of a sheet.

    `key` names its answer in the reply. `codes` are what may be answered, each with what it stands for: an option's
    key, a level's index as text, or `true` and `false`; empty where a probability is asked for instead. `sure_key`
    names the model's own opinion of its answer, None where that is not asked.
    """

    id: str
    key: str
    question: Question
    codes: Mapping[str, str]
    sure_key: str | None = None


Sheet = tuple[Line, ...]


def sheet_of(questions: Mapping[str, Question], *, order: Order, letters: bool, sure: bool) -> Sheet:
    """Return the sheet for `questions`.

    Args:
        questions: Any, with at most `OPTIONS_MAX` options and `LEVELS_MAX` levels.
        order: How options are arranged.
        letters: Ask a boolean as a letter, whose token has a probability; else as the probability of yes, a number.
        sure: Ask also how sure the model is of each choice and score.
    """
    lines = enumerate(asked.ordered(questions).items())
    return tuple(
        Line(
            name,
            f"q{number}",
            question,
            _codes(name, question, order, letters),
            f"c{number}" if sure and not isinstance(question, Boolean) else None,
        )
        for number, (name, question) in lines
    )


def fixed(_question: str, options: Iterable[str]) -> list[str]:
    """Arrange options by their keys."""
    return sorted(options)


def permuted(seed: int, document: str) -> Order:
    """Return an arrangement that differs from document to document, and is the same at every asking."""

    def order(question: str, options: Iterable[str]) -> list[str]:
        return sorted(options, key=lambda option: _digest(str(seed), document, question, option))

    return order


def option_codes(options: Sequence[str]) -> list[str]:
    """Return a code for each option, all of one length: letters, or pairs of letters when there are too few."""
    taken = {option.casefold() for option in options}
    letters = string.ascii_uppercase + string.ascii_lowercase
    free = [letter for letter in letters if letter.casefold() not in taken]
    if len(options) <= len(free):
        return free[: len(options)]
    pairs = ("".join(pair) for pair in itertools.product(string.ascii_uppercase, repeat=2))
    return list(itertools.islice((pair for pair in pairs if pair.casefold() not in taken), len(options)))


def _codes(name: str, question: Question, order: Order, letters: bool) -> dict[str, str]:
    match question:
        case Choice():
            options = order(name, question.options)
            return dict(zip(option_codes(options), options, strict=True))
        case Score():
            return {str(index): str(index) for index in range(len(question.levels))}
        case Boolean():
            return {YES: TRUE, NO: FALSE} if letters else {}


def _digest(*parts: str) -> bytes:
    # Lengths go in, so that no two lists of parts have one text.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
