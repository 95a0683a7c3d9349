"""From a facet value, the public form of an answer, back to the answer: for files that people and programs write."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from facets.answers import Answer

_answer: TypeAdapter[Answer] = TypeAdapter(Answer)


class NotAFacetValue(ValueError):
    """It is no facet value; the message says what to mend."""


def answer_of(value: Any) -> Answer:
    """Return the answer that a facet value shows; what follows from an answer (`value`, `level`) is left away.

    Raises:
        NotAFacetValue: it is none, or its `value` contradicts its `probability`.
    """
    if not isinstance(value, dict):
        form = '{"type": "choice", "choice": "billing", "confidence": null}'
        raise NotAFacetValue(f"write a facet value, for example {form}")
    derived = {"boolean": "value", "score": "level"}.get(str(value.get("type")))
    try:
        answer = _answer.validate_python({name: part for name, part in value.items() if name != derived}, strict=True)
    except ValidationError as error:
        raise NotAFacetValue("; ".join(_problem(problem) for problem in error.errors())) from error
    if answer.type == "boolean" and value.get("value", answer.probability >= 0.5) is not (answer.probability >= 0.5):  # noqa: PLR2004
        raise NotAFacetValue('"value" must be true exactly when "probability" is 0.5 or more')
    return answer


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
