"""The three kinds of question and their canonical form.

Questions are values: frozen, comparable, without identity. Whether a set of them may stand in a collection is decided
in `facets.collections`; whether an answer fits one is decided in `evaluators.validation`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from facetline.facets.errors import InvalidDefinition


def _tuple_of_list(levels: object) -> object:
    # JSON has no tuples. Sets are not taken: their order is not declared.
    return tuple(levels) if isinstance(levels, list) else levels


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
    levels: Annotated[tuple[str, ...], BeforeValidator(_tuple_of_list)]


Question = Annotated[Choice | Boolean | Score, Field(discriminator="type")]
_Kind = TypeVar("_Kind", Choice, Boolean, Score)


def choice(*, ask: str, options: Mapping[str, str]) -> Choice:
    """Ask for one of `options` (option key to description).

    Raises:
        InvalidDefinition: a part is not fixed text; so do `boolean` and `score`.
    """
    return _made(Choice, ask=ask, options=dict(options) if hasattr(options, "keys") else options)


def boolean(*, ask: str) -> Boolean:
    """Ask for yes or no."""
    return _made(Boolean, ask=ask)


def score(*, ask: str, levels: Sequence[str]) -> Score:
    """Ask for a place on a scale of `levels`, lowest first."""
    return _made(Score, ask=ask, levels=levels)


def _made(kind: type[_Kind], **parts: object) -> _Kind:
    try:
        return kind.model_validate(parts)
    except ValidationError as error:
        raise InvalidDefinition(_part_problem(kind, dict(problem)) for problem in error.errors()) from error


def _part_problem(kind: type[BaseModel], problem: Mapping[str, Any]) -> str:
    part = ".".join(str(step) for step in problem["loc"])
    fix = "write fixed text, nothing is computed per call"
    return f"a {kind.__name__.lower()}'s {part:.80}: {problem['msg']}; {fix}"


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
