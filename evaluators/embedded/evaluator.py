"""The evaluator that needs no key and no network: options ranked by the likeness of their descriptions to the body.

It answers choices and scores, in English; it knows nothing of negation, so booleans are refused when a collection is
defined. A choice is the likest option; its confidence is that option's softmax probability, and the source says by
which temperature. A score is the likest level, without a confidence: no labelled set was at hand to fit one on.

The model runs in one thread of its own, outside the event loop, and is loaded by the first evaluation.
"""

import asyncio
import functools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal

from facetline.evaluators.contract import Evaluated, Identity, Limits
from facetline.evaluators.embedded import calibration, minilm, reading, similarity
from facetline.evaluators.embedded.calibration import Calibration
from facetline.evaluators.embedded.reading import Model, Read
from facetline.facets.answers import Answer, ChoiceAnswer, ScoreAnswer
from facetline.facets.errors import EvaluationFailed, EvaluatorUnavailable
from facetline.facets.questions import Choice, Question, Score

KIND = "embedded"
MODEL = minilm.MODEL
OFF: Final = "off"
CLOSED = "The embedded evaluator is closed."

VERSION = "1"
"""Raise it with any change of option texts, windows, scoring or rounding: each changes answers."""

LIMITS = Limits(question_types=frozenset({"choice", "score"}), options_max=255, levels_max=10, is_free=True)

DECIMALS = 4
"""Of probabilities. Finer ones would differ between processors for no gain."""

QUESTIONS_KEPT = 256
"""Questions whose option vectors stay in memory; some hundred kilobytes each at most."""


class Embedded:
    """Rank options by likeness.

    Args:
        temperature: Of the softmax behind probabilities and confidences: a number, or one fitted on labelled texts;
            None is the one fitted on Banking77, "off" is none at all: then choices come without probabilities and
            confidence.
        load: Returns the model; called in the evaluator's thread at every evaluation, so it keeps what it loaded.
    """

    def __init__(
        self,
        *,
        temperature: float | Calibration | Literal["off"] | None = None,
        load: Callable[[], Model] = minilm.shared,
    ) -> None:
        self._load = load
        self._temperature, self._source = _temperature(temperature)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedded")
        self._closed = False
        self._options = functools.lru_cache(maxsize=QUESTIONS_KEPT)(self._embed)

    @property
    def kind(self) -> str:
        """The kind's name."""
        return KIND

    @property
    def identity(self) -> Identity:
        """The pinned files, the temperature, and the version of the way options are ranked."""
        parameters: dict[str, Any] = {
            "temperature": OFF if self._temperature is None else self._temperature,
            "vocabulary_sha256": minilm.VOCABULARY_SHA256,
            "weights_sha256": minilm.WEIGHTS_SHA256,
        }
        return Identity(KIND, MODEL, parameters, VERSION)

    @property
    def limits(self) -> Limits:
        """Choices and scores. Any body: what its windows leave out is in the notes."""
        return LIMITS

    async def evaluate(self, body: str, questions: Mapping[str, Question], *, key: str, deadline_s: float) -> Evaluated:
        """Answer all `questions` about `body`.

        A call that was still waiting for the model at its deadline costs nothing; one that was running finishes unseen.

        Raises:
            EvaluatorUnavailable: not done within `deadline_s` seconds, or closed.
            EvaluatorMisconfigured: the model's files are missing or not the pinned ones.
            EvaluationFailed: the body is not Unicode text.
        """
        del key
        if self._closed:
            raise EvaluatorUnavailable(CLOSED)
        try:
            async with asyncio.timeout(deadline_s):
                return await self._in_thread(body, dict(questions))
        except TimeoutError as error:
            message = f"The embedded model did not answer within {deadline_s:g} s."
            raise EvaluatorUnavailable(message, reason="timeout") from error

    async def _in_thread(self, body: str, questions: dict[str, Question]) -> Evaluated:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, self._evaluate, body, questions)
        except asyncio.CancelledError as error:
            if self._closed and task is not None and not task.cancelling():
                raise EvaluatorUnavailable(CLOSED) from error  # `close` took the call from the queue, not its caller
            raise

    async def close(self) -> None:
        """Take no more calls; a running one ends by itself, waiting ones are cancelled."""
        self._closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)

    def similarities(self, body: str, question: Choice | Score) -> dict[str, float]:
        """Return how near `body` is to each option (by key) or level (by index): what a temperature is fitted to.

        Blocks for as long as the model takes.
        """
        return self._rank(reading.read(self._load(), body), question)

    def _evaluate(self, body: str, questions: dict[str, Question]) -> Evaluated:
        read = reading.read(self._load(), body)
        answers = {name: self._answer(read, question) for name, question in questions.items()}
        confident = any(answer.confidence is not None for answer in answers.values())
        notes = {"truncated": True, "tokens_dropped": read.dropped, "windows": len(read.vectors)}
        return Evaluated(
            answers,
            MODEL,
            confidence_source=self._source if confident else None,
            usage={"input_tokens": read.tokens},
            notes=notes if read.dropped else None,
        )

    def _answer(self, read: Read, question: Question) -> Answer:
        if not isinstance(question, Choice | Score):
            raise EvaluationFailed("evaluator_error", "The embedded model cannot answer yes-or-no questions.")
        ranked = self._rank(read, question)
        best = max(ranked, key=ranked.__getitem__)
        if isinstance(question, Score):
            return ScoreAnswer(score=float(best))
        return choice_of(ranked, self._temperature)

    def _rank(self, read: Read, question: Choice | Score) -> dict[str, float]:
        candidates = _candidates(question)
        found = similarity.similarities(self._options(candidates), read.vectors)
        return {name: value for (name, _, _), value in zip(candidates, found, strict=True)}

    def _embed(self, candidates: tuple[tuple[str, str, str], ...]) -> similarity.Options:
        """Embed a question's options; the ends of texts beyond the model's length are not read."""
        model = self._load()
        return similarity.embed(
            (similarity.texts_of(key, description) for _, key, description in candidates),
            lambda text: model.vector(model.tokens(text)[: minilm.TOKENS_MAX]),
        )


def choice_of(ranked: Mapping[str, float], temperature: float | None) -> ChoiceAnswer:
    """Return the answer that options' likenesses make, with probabilities when there is a temperature."""
    best = max(ranked, key=ranked.__getitem__)
    if temperature is None:
        return ChoiceAnswer(choice=best)
    shares = calibration.softmax(list(ranked.values()), temperature)
    probabilities = {option: round(share, DECIMALS) for option, share in zip(ranked, shares, strict=True)}
    return ChoiceAnswer(choice=best, probabilities=probabilities, confidence=probabilities[best])


def _candidates(question: Choice | Score) -> tuple[tuple[str, str, str], ...]:
    """Return (name in answers, key or nothing, description) of each option or level.

    Options are sorted, so that the order in which they are declared changes nothing, not even which of two equals wins.
    """
    if isinstance(question, Choice):
        return tuple((option, option, description) for option, description in sorted(question.options.items()))
    return tuple((str(index), "", level) for index, level in enumerate(question.levels))


def _temperature(wish: float | Calibration | Literal["off"] | None) -> tuple[float | None, str | None]:
    """Return the temperature in force and the note about confidences made with it."""
    if wish == OFF:
        return None, None
    known = calibration.stored() if wish is None else wish
    if isinstance(known, Calibration):
        fitted = f"fitted on {known.source} (n={known.fitted_on}), ECE {known.ece:.3f} there"
        return known.temperature, f"softmax t={known.temperature:g}, {fitted}"
    return float(known), f"softmax t={float(known):g}, set in the definition"
