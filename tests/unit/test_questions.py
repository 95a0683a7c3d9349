"""Questions: values with a canonical form, made of fixed text only."""

from collections.abc import Callable

import pytest

from facetline.facets import questions
from facetline.facets.errors import InvalidDefinition
from facetline.facets.questions import boolean, choice, score


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: choice(ask=lambda body: body, options={"a": "A", "b": "B"}), "a choice's ask"),
        (lambda: choice(ask="?", options=lambda body: body), "a choice's options"),
        (lambda: choice(ask="?", options=["a", "b"]), "a choice's options"),
        (lambda: choice(ask="?", options={"a": len, "b": "B"}), "a choice's options.a"),
        (lambda: boolean(ask=None), "a boolean's ask"),
        (lambda: score(ask="?", levels="abc"), "a score's levels"),
        (lambda: score(ask="?", levels={"low", "high"}), "a score's levels"),
        (lambda: score(ask="?", levels=["low", 2]), "a score's levels.1"),
    ],
)
def test_question_not_of_fixed_text(make: Callable[[], object], expected: str) -> None:
    """A question whose parts are computed, unordered or not text is refused where it is made."""
    with pytest.raises(InvalidDefinition) as refusal:
        make()

    assert expected in refusal.value.message
    assert "nothing is computed per call" in refusal.value.message


def test_question_does_not_share_its_options() -> None:
    """A question does not change when the mapping it was made of does."""
    options = {"a": "A", "b": "B"}
    question = choice(ask="?", options=options)
    options["c"] = "C"

    assert question.options == {"a": "A", "b": "B"}


def test_canonical_sorts_all_but_levels() -> None:
    """Questions and options are sorted by id; levels stay as declared, for their order is their meaning."""
    asked = {
        "severity": score(ask="How bad?", levels=["none", "all"]),
        "topic": choice(ask="About?", options={"b": "B", "a": "A"}),
    }

    assert questions.canonical(asked) == [
        {"id": "severity", "type": "score", "ask": "How bad?", "levels": ["none", "all"]},
        {"id": "topic", "type": "choice", "ask": "About?", "options": [("a", "A"), ("b", "B")]},
    ]
