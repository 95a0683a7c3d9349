"""From a facet value, the public form of an answer, back to the answer: for files that people and programs write."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from facetline.facets.answers import Answer, sureness

_answer: TypeAdapter[Answer] = TypeAdapter(Answer)


class NotAFacetValue(ValueError):
    """It is no facet value; the message says what to fix."""


def answer_of(value: Any) -> Answer:
    """Return the answer that a facet value shows, without what follows from an answer.

    That is a score's `level`, and a boolean's `value` and sureness where there is a probability.

    Raises:
        NotAFacetValue: it is none, or its `value` contradicts its `probability`.
    """
    if not isinstance(value, dict):
        form = '{"type": "choice", "choice": "billing", "confidence": null}'
        raise NotAFacetValue(f"write a facet value, for example {form}")
    derived = _derived(value)
    try:
        answer = _answer.validate_python(
            {name: part for name, part in value.items() if name not in derived}, strict=True
        )
    except ValidationError as error:
        raise NotAFacetValue("; ".join(_problem(problem) for problem in error.errors())) from error
    if answer.type == "boolean" and value.get("value", answer.yes) is not answer.yes:
        raise NotAFacetValue('"value" must be true exactly when "probability" is 0.5 or more')
    return answer


def _derived(value: Mapping[str, Any]) -> set[str]:
    """Return the members of a facet value that follow from the others."""
    probability = value.get("probability")
    if value.get("type") == "score":
        return {"level"}
    if value.get("type") != "boolean" or isinstance(probability, bool) or not isinstance(probability, int | float):
        return set()
    return {"value", "confidence"} if value.get("confidence") == sureness(probability) else {"value"}


def answers_of(values: Mapping[str, Any]) -> dict[str, Answer]:
    """Return the answers that facet values by question id show.

    Raises:
        NotAFacetValue: one is none; the message names its question.
    """
    found = {}
    for name, value in values.items():
        try:
            found[name] = answer_of(value)
        except NotAFacetValue as error:
            raise NotAFacetValue(f"the answer to '{name}': {error}") from error
    return found


def _problem(problem: Any) -> str:
    return f"{'.'.join(str(part) for part in problem['loc']) or 'type'}: {problem['msg']}"
