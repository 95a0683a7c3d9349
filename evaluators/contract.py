"""What an evaluator is: the one interface that the side chain calls.

An evaluator makes exactly one provider call per `evaluate`. It never retries, sleeps, falls back or remembers: those
belong to the pipeline. It gives answers as its model gave them; `evaluators.validation` decides whether they fit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from facetline.facets.answers import Answer
from facetline.facets.errors import Spent
from facetline.facets.questions import Question

UNSENT = "cut off before anything was sent"
"""A note on the `CancelledError` of a call that had not reached its provider: no crash is recorded, and nothing may be
billed.
"""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the fingerprint takes from an evaluator: all that changes answers, no name, address, key or limit."""

    kind: str
    model: str
    parameters: dict[str, Any] = field(default_factory=dict)
    version: str = "1"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the evaluator can take. `body_bytes_max` None: it deals with any body itself.

    `is_free`: its calls cost nothing, whatever an answer reports (a model of this machine, a recording).
    """

    question_types: frozenset[str]
    options_max: int
    levels_max: int
    body_bytes_max: int | None = None
    is_free: bool = False


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One call's result.

    `model` is the id that the provider reported. `confidence_source` names the statistic behind the confidences (None
    when no answer has one). `usage` holds token counts as reported. `notes` says what the reader of an answer must
    know, for example `{"truncated": true, "tokens_dropped": 812}`.
    """

    answers: Mapping[str, Answer]
    model: str
    confidence_source: str | None = None
    usage: Mapping[str, Any] | None = None
    cost_usd: float | None = None
    notes: Mapping[str, Any] | None = None


def spent_of(evaluated: Evaluated) -> Spent:
    """Return what the call behind a result used up."""
    return Spent(evaluated.model, evaluated.usage, evaluated.cost_usd)


@runtime_checkable
class Evaluator(Protocol):
    """Asks one model all questions about one body, in one call."""

    @property
    def kind(self) -> str:
        """The kind's name, as in `kind = "embedded"`."""

    @property
    def identity(self) -> Identity:
        """What answers depend on; equal identities and questions mean interchangeable answers."""

    @property
    def limits(self) -> Limits:
        """What may be asked, checked when a collection is defined."""

    async def evaluate(self, body: str, questions: Mapping[str, Question], *, key: str, deadline_s: float) -> Evaluated:
        """Answer all `questions` about `body` within `deadline_s` seconds, in one call.

        `key` is the document's key within its collection (recordings may be looked up by it; models never see it).

        Raises:
            EvaluatorUnavailable: try again later.
            EvaluatorMisconfigured: no document is at fault; stop calling until it is fixed.
            EvaluationFailed: this body will not get an answer (its `reason` says why).
            CancelledError: cut off from outside; with the note `UNSENT` when nothing had been sent.
        """

    async def close(self) -> None:
        """Release what was opened; safe to call twice."""
