"""The three kinds of question and their canonical form.

Questions are values: frozen, comparable, without identity. Whether a set of them may stand in a collection is decided
in `facets.collections`; whether an answer fits one is decided in `evaluators.validation`.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Question(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    ask: str


class Choice(_Question):
    """One of several options: `options` maps each option key to its description, in the declared order."""

    type: Literal["choice"] = "choice"
    options: dict[str, str]


class Boolean(_Question):
    """Yes or no."""

    type: Literal["boolean"] = "boolean"


class Score(_Question):
    """A place on an ordered scale: `levels` describe it from the lowest (score 0) to the highest."""

    type: Literal["score"] = "score"
    # JSON has no tuples: a list is taken too, when a definition is read back.
    levels: Annotated[tuple[str, ...], Field(strict=False)]


Question = Annotated[Choice | Boolean | Score, Field(discriminator="type")]


def choice(*, ask: str, options: Mapping[str, str]) -> Choice:
    """Ask for one of `options` (option key to description)."""
    return Choice(ask=ask, options=dict(options))


def boolean(*, ask: str) -> Boolean:
    """Ask for yes or no."""
    return Boolean(ask=ask)


def score(*, ask: str, levels: Iterable[str]) -> Score:
    """Ask for a place on a scale of `levels`, lowest first."""
    return Score(ask=ask, levels=tuple(levels))


def ordered(questions: Mapping[str, Question]) -> dict[str, Question]:
    """Return the questions sorted by id: the order in which they are asked and hashed."""
    return {name: questions[name] for name in sorted(questions)}


def canonical(questions: Mapping[str, Question]) -> list[dict[str, Any]]:
    """Return what an answer depends on: questions and options sorted, levels as declared."""
    return [_canonical_question(name, question) for name, question in ordered(questions).items()]


def _canonical_question(name: str, question: Question) -> dict[str, Any]:
    dumped: dict[str, Any] = {"id": name, **question.model_dump(mode="json")}
    if isinstance(question, Choice):
        dumped["options"] = sorted(question.options.items())
    return dumped
