"""A sentence as a search: one call to the collection's evaluator turns it into answers to look for.

The evaluator is asked the collection's own choice questions about the sentence, each with one option more: that the
sentence says nothing about it. Only declared options can come out, whatever the sentence says. What the evaluator is
unsure of is left out, and reported. Nothing here runs unless it is requested: searching itself asks no model.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from facetline.evaluators import asking, validation
from facetline.evaluators.contract import Evaluated, Evaluator, spent_of
from facetline.facets import errors
from facetline.facets.answers import ChoiceAnswer
from facetline.facets.definitions import Definition
from facetline.facets.questions import Choice, Question
from facetline.streams.classify import call
from facetline.streams.classify.call import CallLimits

UNMENTIONED = "__any__"
"""The added option; more underscores where a question has one of this name."""
NOTHING_SAID = "The request does not say anything about this"
SENTENCE_BYTES_MAX = 4096
"""A sentence or a few; a document given by mistake costs nothing."""
CONFIDENCE_MIN = 0.5
"""Below, the evaluator itself finds it likelier that something else is meant."""


@dataclass(frozen=True, slots=True)
class Taken:
    """An answer that the sentence was understood to look for; `confidence` None: the evaluator gives none."""

    value: str
    confidence: float | None


@dataclass(frozen=True, slots=True)
class Understood:
    """What a sentence was taken for, by question; `unsure` holds what was left out for its low confidence.

    `unasked`: questions that the evaluator cannot take with one option more. `cost_usd` None: not reported.
    """

    sentence: str
    taken: Mapping[str, Taken]
    unsure: Mapping[str, Taken]
    unasked: tuple[str, ...]
    evaluator: str
    model: str
    cost_usd: float | None
    latency_ms: float
    usage: Mapping[str, Any] | None = None

    def shown(self) -> dict[str, Any]:
        """Return it as search replies show it."""

        def values(found: Mapping[str, Taken]) -> dict[str, Any]:
            return {name: {"value": each.value, "confidence": each.confidence} for name, each in found.items()}

        return {
            "sentence": self.sentence,
            "facets": values(self.taken),
            "unsure": values(self.unsure),
            "unasked": list(self.unasked),
            "evaluator": self.evaluator,
            "model": self.model,
            "cost_usd": self.cost_usd,
            "latency_ms": round(self.latency_ms, 3),
        }


def questions_of(definition: Definition, options_max: int) -> tuple[dict[str, Choice], tuple[str, ...]]:
    """Return the questions to ask about a sentence, and the ids of those that would have too many options.

    Raises:
        InvalidQuery: the collection has no choice question that can be asked.
    """
    asked, unasked = {}, []
    for name, question in definition.questions.items():
        if not isinstance(question, Choice):
            continue
        if len(question.options) >= options_max:
            unasked.append(name)
            continue
        request = "The text is a search request, not a document."
        ask = (
            f'{request} Which answer to the question "{question.ask}" must the wanted documents have?'
            " If the request says nothing about it, say so."
        )
        asked[name] = Choice(ask=ask, options={**question.options, unmentioned(question): NOTHING_SAID})
    if not asked:
        raise errors.InvalidQuery(
            f"collection '{definition.name}' has no choice question that a sentence could be understood by; search with"
            " --filter"
        )
    return asked, tuple(unasked)


def unmentioned(question: Question) -> str:
    """Return the name of the added option: none of the question's own, also when letters' case does not count."""
    known = {option.casefold() for option in question.options} if isinstance(question, Choice) else set()
    name = UNMENTIONED
    while name in known:
        name = f"_{name}_"
    return name


async def understand(sentence: str, definition: Definition, evaluator: Evaluator, limits: CallLimits) -> Understood:
    """Make the one call.

    Raises:
        InvalidQuery: there is no sentence, or nothing of the collection to understand it by.
        EvaluatorUnavailable, EvaluatorMisconfigured, EvaluationFailed: there is no answer; nothing was understood.
    """
    _check(sentence)
    asked, unasked = questions_of(definition, evaluator.limits.options_max)
    started_s = time.monotonic()
    evaluated = await _ask(sentence, asked, evaluator, limits.call_s)
    taken: dict[str, Taken] = {}
    unsure: dict[str, Taken] = {}
    for name, answer in evaluated.answers.items():
        if not isinstance(answer, ChoiceAnswer) or answer.choice == unmentioned(definition.questions[name]):
            continue
        found = Taken(answer.choice, answer.confidence)
        (taken if found.confidence is None or found.confidence >= CONFIDENCE_MIN else unsure)[name] = found
    return Understood(
        sentence=sentence,
        taken=taken,
        unsure=unsure,
        unasked=unasked,
        evaluator=definition.evaluator,
        model=evaluated.model,
        cost_usd=evaluated.cost_usd,
        latency_ms=(time.monotonic() - started_s) * 1000,
        usage=evaluated.usage,
    )


def nothing(understood: Understood) -> errors.InvalidQuery:
    """Return the error of a sentence that would leave a search without any answer to look for."""
    unsure = ", ".join(f"{name}={each.value} ({each.confidence:.2f})" for name, each in understood.unsure.items())
    guessed = f" with some confidence (unsure: {unsure})" if unsure else ""
    return errors.InvalidQuery(
        f"evaluator '{understood.evaluator}' found nothing in the sentence that the questions ask{guessed}; name"
        " answers yourself, such as topic=billing"
    )


async def _ask(sentence: str, asked: Mapping[str, Choice], evaluator: Evaluator, call_s: float) -> Evaluated:
    try:
        async with asyncio.timeout(call_s):
            evaluated = await asking.ask(evaluator, sentence, asked, key="", deadline_s=call_s)
    except TimeoutError as error:
        message = f"no answer within {call_s:g} s"
        raise errors.EvaluatorUnavailable(message, reason="timeout", spent=call.UNHEARD) from error
    except errors.PipelineError:
        raise
    except Exception as error:  # the evaluator may be anybody's
        message = f"{type(error).__name__}: {call.message_of(error)}"
        raise errors.EvaluationFailed("evaluator_error", message) from error
    try:
        validation.check_evaluated(asked, evaluated)
    except errors.InvalidAnswer as error:  # it was paid for all the same
        error.spent = spent_of(evaluated)
        raise
    return evaluated


def _check(sentence: str) -> None:
    if not sentence.strip():
        raise errors.InvalidQuery("the sentence is blank; say what the documents are about")
    try:
        size = len(sentence.encode())
    except UnicodeEncodeError as error:
        raise errors.InvalidQuery("the sentence holds half a surrogate pair; give valid Unicode") from error
    if size > SENTENCE_BYTES_MAX or "\0" in sentence:
        raise errors.InvalidQuery(f"a sentence has at most {SENTENCE_BYTES_MAX} bytes, and no NUL; shorten it")
