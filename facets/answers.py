"""What was said to a question, and the facet value that people see of it.

An answer is kept as the evaluator gave it. A facet value is the public JSON form: the same answer with the parts that
follow from it (a boolean's `value`, a score's `level`). Nothing here checks an answer against its question; that is
`evaluators.validation`, once, before an answer is stored.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from facets.questions import Question, Score


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    confidence: float | None = None


class ChoiceAnswer(_Answer):
    """The chosen option key; `probabilities` covers all options or is None."""

    type: Literal["choice"] = "choice"
    choice: str
    probabilities: dict[str, float] | None = None


class BooleanAnswer(_Answer):
    """`probability` is that of yes, 0 to 1: the answer itself, not a confidence in it."""

    type: Literal["boolean"] = "boolean"
    probability: float


class ScoreAnswer(_Answer):
    """`score` counts levels from 0 and may lie between two; `probabilities` is keyed "0", "1", … or None."""

    type: Literal["score"] = "score"
    score: float
    probabilities: dict[str, float] | None = None


Answer = Annotated[ChoiceAnswer | BooleanAnswer | ScoreAnswer, Field(discriminator="type")]
FacetValue = dict[str, Any]
"""The public JSON form of one answer (DESIGN §8, "Facet values")."""


def nearest_level(score: float, levels: tuple[str, ...]) -> str:
    """Return the level nearest to `score`, the lower one on a tie."""
    lower = min(int(score), len(levels) - 1)
    index = lower + 1 if score - lower > 0.5 else lower  # noqa: PLR2004 (half way is the tie)
    return levels[min(index, len(levels) - 1)]


def facet_value(question: Question, answer: Answer) -> FacetValue:
    """Return the public form of a valid answer to `question`."""
    if isinstance(answer, ChoiceAnswer):
        value: FacetValue = {"type": "choice", "choice": answer.choice, "confidence": answer.confidence}
        if answer.probabilities is not None:
            value["probabilities"] = answer.probabilities
        return value
    if isinstance(answer, BooleanAnswer):
        yes = answer.probability >= 0.5  # noqa: PLR2004 (DESIGN §8 draws the line here)
        return {"type": "boolean", "value": yes, "probability": answer.probability, "confidence": answer.confidence}
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
