"""Two generations of the same two collections: one asks a question more, so their fingerprints differ."""

import functools
from typing import Any

from facetline.facets.collections import define_collection, definition_of
from facetline.facets.definitions import Definition
from facetline.facets.questions import boolean, choice

IDENTITY = {"kind": "sim", "model": "sim-1", "parameters": {}, "version": "1", "validator": "1"}
COLLECTIONS = (("tickets", "tickets/*", False), ("notes", "notes/*", True))


@functools.cache
def definition_sets(*, together: bool) -> tuple[tuple[Definition, ...], tuple[Definition, ...]]:
    """Return the definitions of the first and of the second generation; `together`: by one evaluator."""
    topic = choice(ask="About?", options={"billing": "Money", "outage": "Down", "other": "Else"})
    first: dict[str, Any] = {"topic": topic}
    second: dict[str, Any] = {"topic": topic, "urgent": boolean(ask="Today?")}
    return _made(first, together), _made(second, together)


def _made(questions: dict[str, Any], together: bool) -> tuple[Definition, ...]:
    return tuple(
        definition_of(
            define_collection(
                name=name,
                pattern=pattern,
                evaluator=_evaluator(name, together),
                scoped=scoped,
                questions=questions,
                state={"n": "integer"},
            ),
            evaluator_name=_evaluator(name, together),
            kind="sim",
            model="sim-1",
            identity=IDENTITY,
        )
        for name, pattern, scoped in COLLECTIONS
    )


def _evaluator(collection: str, together: bool) -> str:
    return "for_all" if together else f"for_{collection}"
