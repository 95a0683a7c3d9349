"""The decision protocols' two forms: our questions in theirs, their answers as ours, nothing else.

System One (Jev and its look-alikes) names questions and gives maps; OpenAI's form gives lists, and says which question
was refused. litellm translates between them for any provider, but drops a refusal where it gives maps, so OpenAI's own
models are asked in their own form.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from facetline.facets import questions as questions_
from facetline.facets.answers import Answer
from facetline.facets.errors import EvaluationFailed, InvalidAnswer
from facetline.facets.questions import Boolean, Choice, Question, Score

WIRE_VERSION = "1"
"""Raise it with any change of what is sent: it changes answers."""

OPENAI_FORM = frozenset({"openai", "azure"})
NAMESPACES = ("provider_metadata", "providerMetadata")
"""Where a reply may keep confidences that are not beside the answers: by namespace, statistic, question."""

_adapter: TypeAdapter[Answer] = TypeAdapter(Answer)


@dataclass(slots=True)
class Read:
    """A reply's answers; `sources` are those who reported a confidence."""

    answers: dict[str, Answer] = field(default_factory=dict)
    sources: set[str] = field(default_factory=set)

    def source(self) -> str | None:
        """Return the name of the statistic behind the confidences, None when there are none."""
        return f"{', '.join(sorted(self.sources))} confidence" if self.sources else None


class Form(Protocol):
    """One of the two forms."""

    @property
    def function(self) -> str:
        """The name of litellm's function."""

    def arguments(self, body: str, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Return what that function is called with."""

    def read(self, response: Any, questions: Mapping[str, Question], provider: str) -> Read:
        """Return the answers to our questions, as they were given; answers to others are left out.

        Raises:
            EvaluationFailed: the model refused a question.
            InvalidAnswer: an answer is missing, of another type, or about other levels.
        """


def form_of(provider: str) -> Form:
    """Return the form in which a provider's models are asked."""
    return OpenAI() if provider in OPENAI_FORM else SystemOne()


class SystemOne:
    """`asystemone`: a map of questions, a map of answers."""

    function = "asystemone"

    def arguments(self, body: str, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Return state and questions; a yes-or-no question is called "noul" there."""
        asked = {name: _systemone(question) for name, question in questions_.ordered(questions).items()}
        return {"state": body, "questions": asked}

    def read(self, response: Any, questions: Mapping[str, Question], provider: str) -> Read:
        """Return the answers; one that was refused is as missing as one that was forgotten: litellm drops both."""
        given = {name: response.answers[name] for name in questions if name in response.answers}
        _check_complete(given, questions)
        read = Read()
        for name, theirs in given.items():
            question = questions[name]
            confidence = _confidence(read, theirs, response, name, provider)
            parts = _parts(name, question, theirs.type, noul="noul", score="score", choice="choice")
            if isinstance(question, Score):
                _check_legend(name, question, theirs.legend)
            if isinstance(question, Boolean):
                parts["probability"] = theirs.noul
            else:
                parts[question.type] = getattr(theirs, question.type)
                parts["probabilities"] = dict(theirs.probabilities) or None
            read.answers[name] = _answer(name, parts, confidence)
        return read


def _systemone(question: Question) -> dict[str, Any]:
    if isinstance(question, Boolean):
        return {"type": "noul", "instructions": question.ask}
    if isinstance(question, Choice):
        # Sorted, because the fingerprint knows no order of options either.
        return {"type": "choice", "instructions": question.ask, "criteria": dict(sorted(question.options.items()))}
    return {"type": "score", "instructions": question.ask, "criteria": list(question.levels)}


class OpenAI:
    """`adecisions`: a list of named questions, a list of named answers."""

    function = "adecisions"

    def arguments(self, body: str, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Return input and questions; a yes-or-no question is called "predicate" there."""
        asked = [{"name": name, **_openai(question)} for name, question in questions_.ordered(questions).items()]
        return {"input": body, "questions": asked}

    def read(self, response: Any, questions: Mapping[str, Question], provider: str) -> Read:
        """Return the answers; a refused question fails the call."""
        given = {answer.name: answer for answer in response.answers if answer.name in questions}
        refused = sorted(name for name, answer in given.items() if answer.type == "refusal")
        if refused:
            raise EvaluationFailed("refused", f"The model refused to answer {_listed(refused)}.")
        _check_complete(given, questions)
        read = Read()
        for name, theirs in given.items():
            question = questions[name]
            confidence = _confidence(read, theirs, response, name, provider)
            parts = _parts(name, question, theirs.type, noul="predicate", score="score", choice="choice")
            if isinstance(question, Boolean):
                parts["probability"] = theirs.probability
            else:
                parts[question.type] = getattr(theirs, question.type)
                listed = {_text(name, each.value): each.probability for each in theirs.probabilities}
                parts["probabilities"] = listed or None
            read.answers[name] = _answer(name, parts, confidence)
        return read


def _openai(question: Question) -> dict[str, Any]:
    if isinstance(question, Boolean):
        return {"type": "predicate", "instructions": question.ask}
    if isinstance(question, Choice):
        choices = [{"value": option, "description": text} for option, text in sorted(question.options.items())]
        return {"type": "choice", "instructions": question.ask, "choices": choices}
    return {"type": "score", "instructions": question.ask, "levels": [{"label": level} for level in question.levels]}


def _parts(name: str, question: Question, message: str, **theirs: str) -> dict[str, Any]:
    """Return the first part of an answer: its type, which must be the question's."""
    expected = theirs["noul"] if isinstance(question, Boolean) else theirs[question.type]
    if message != expected:
        raise InvalidAnswer(f"Question '{name}': a {question.type} question was answered with {message!r:.80}.")
    return {"type": question.type}


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidAnswer(f"Question '{name}': {value!r:.80} is none of its options.")
    return str(value)


def _answer(name: str, parts: dict[str, Any], confidence: Any) -> Answer:
    try:
        return _adapter.validate_python({**parts, "confidence": confidence}, strict=True)
    except ValidationError as error:
        message = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise InvalidAnswer(f"Question '{name}': {message}.") from error


def _check_complete(given: Mapping[str, Any], questions: Mapping[str, Question]) -> None:
    missing = sorted(set(questions) - set(given))
    if missing:
        message = "it was left out, refused, or of another type"
        raise InvalidAnswer(f"There is no answer to {_listed(missing)} ({message}), so none is kept.")


def _check_legend(name: str, question: Score, legend: Mapping[str, Any]) -> None:
    """Refuse a score on other levels than ours: its number would mean something else."""
    for index, level in enumerate(question.levels):
        found = legend.get(str(index), level)
        if found != level:
            raise InvalidAnswer(f"Question '{name}': level {index} is '{level:.80}', the model says {found!r:.80}.")


def _confidence(read: Read, theirs: Any, response: Any, name: str, provider: str) -> Any:
    """Return the confidence that was reported with an answer or in the reply's metadata, and note whose it is."""
    beside = getattr(theirs, "confidence", None)
    if beside is None:
        beside = (getattr(theirs, "model_extra", None) or {}).get("confidence")
    if beside is not None:
        read.sources.add(provider)
        return beside
    extra = getattr(response, "model_extra", None) or {}
    for namespace, statistics in _metadata(extra):
        confidences = statistics.get("confidence") if isinstance(statistics, Mapping) else None
        found = confidences.get(name) if isinstance(confidences, Mapping) else None
        if found is not None:
            read.sources.add(str(namespace))
            return found
    return None


def _metadata(extra: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    return [each for key in NAMESPACES if isinstance(extra.get(key), Mapping) for each in extra[key].items()]


def _listed(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names[:10])
