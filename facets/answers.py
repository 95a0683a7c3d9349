"""Answers to questions, and the facet values made of them.

An answer is kept as the evaluator gave it. A facet value is the public JSON form: the same answer with the parts that
follow from it (a boolean's `value`, a score's `level`). Nothing here checks an answer against its question; that is
`evaluators.validation`, once, before an answer is stored.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from facetline.facets.questions import Question, Score

_YES = 0.5
"""A probability from here on is a yes (docs/concepts.md)."""
DECIMALS = 12
"""Of a confidence that is computed from a probability: `1 - 0.07` is 0.93, not 0.9299999999999999."""


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    confidence: float | None = None


class ChoiceAnswer(_Answer):
    """The chosen option key; `probabilities` covers all options or is None."""

    type: Literal["choice"] = "choice"
    choice: str
    probabilities: dict[str, float] | None = None


class BooleanAnswer(_Answer):
    """Yes or no: `probability` is that of yes, 0 to 1; where none is known, `value` is the answer."""

    type: Literal["boolean"] = "boolean"
    probability: float | None = None
    value: bool | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "BooleanAnswer":
        if (self.probability is None) == (self.value is None):
            raise ValueError("give the probability of yes, or value (true or false) where none is known")
        return self

    @property
    def yes(self) -> bool:
        """Whether the answer is yes."""
        return self.value is True if self.probability is None else self.probability >= _YES


class ScoreAnswer(_Answer):
    """`score` counts levels from 0 and may lie between two; `probabilities` is keyed "0", "1", … or None."""

    type: Literal["score"] = "score"
    score: float
    probabilities: dict[str, float] | None = None


Answer = Annotated[ChoiceAnswer | BooleanAnswer | ScoreAnswer, Field(discriminator="type")]
FacetValue = dict[str, Any]
"""The public JSON form of one answer (docs/search.md)."""


def nearest_level(score: float, levels: tuple[str, ...]) -> str:
    """Return the level nearest to `score`, the lower one on a tie."""
    lower = min(int(score), len(levels) - 1)
    index = lower + 1 if score - lower > 0.5 else lower  # noqa: PLR2004 (half way is the tie)
    return levels[min(index, len(levels) - 1)]


def sureness(probability: float | None) -> float | None:
    """Return how sure a boolean is, 0.5 to 1, given the probability of yes: that of its more likely value."""
    return None if probability is None else round(max(probability, 1 - probability), DECIMALS)


def confidence_of(answer: Answer) -> float | None:
    """Return what a least confidence is compared with: the answer's confidence, or else a boolean's sureness."""
    if isinstance(answer, BooleanAnswer) and answer.confidence is None:
        return sureness(answer.probability)
    return answer.confidence


def facet_value(question: Question, answer: Answer) -> FacetValue:
    """Return the public form of a valid answer to `question`."""
    if isinstance(answer, ChoiceAnswer):
        value: FacetValue = {"type": "choice", "choice": answer.choice, "confidence": answer.confidence}
        if answer.probabilities is not None:
            value["probabilities"] = answer.probabilities
        return value
    if isinstance(answer, BooleanAnswer):
        return {
            "type": "boolean",
            "value": answer.yes,
            "probability": answer.probability,
            "confidence": confidence_of(answer),
        }
    levels = question.levels if isinstance(question, Score) else ()
    value = {
        "type": "score",
        "score": answer.score,
        "level": nearest_level(answer.score, levels),
        "confidence": answer.confidence,
    }
    if answer.probabilities is not None:
        value["probabilities"] = answer.probabilities
    return value


def facet_values(questions: Mapping[str, Question], answers: Mapping[str, Answer]) -> dict[str, FacetValue]:
    """Return the public form of a full set of valid answers, in the order of the question ids."""
    return {name: facet_value(questions[name], answers[name]) for name in sorted(answers)}
