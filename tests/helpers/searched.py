"""What searches are tried on: a collection with every kind of question and state, and records of it."""

from datetime import UTC, datetime
from typing import Any

import builders

from facetline.facets.definitions import Definition, Definitions
from facetline.facets.documents import Record
from facetline.facets.questions import boolean, choice, score
from facetline.facets.search.selection import Selection, selection_of
from facetline.facets.view.view import View

TOPICS = ("other", "billing", 'it\'s "odd"', "日本")
MOODS = ("calm", "angry")
LEVELS = ("cosmetic", "annoying", "blocked")
QUESTIONS = {
    "topic": choice(ask="What is it about?", options=dict.fromkeys(TOPICS, "…")),
    "mood": choice(ask="In what mood?", options=dict.fromkeys(MOODS, "…")),
    "urgent": boolean(ask="Is it urgent?"),
    "severity": score(ask="How bad is it?", levels=LEVELS),
}
STATE = {"title": "string", "priority": "integer", "ratio": "number", "flag": "boolean", "due": "datetime"}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def definition(name: str = "notes", **options: Any) -> Definition:
    """Return the scoped collection, or one that differs by what is given."""
    return builders.definition(name, **{"questions": QUESTIONS, "state": STATE, "scoped": True, **options})


def view(*listed: Definition) -> View:
    """Return a view in memory of these collections; of `definition()` alone unless told otherwise."""
    made = View(store_id="store")
    made.define(Definitions(listed or (definition(),)))
    return made


def record(number: int, *, defined: Definition | None = None, **changes: Any) -> Record:
    """Return an indexed record without answers, number `number` in the feed, or one that differs by `changes`."""
    defined = defined or definition()
    scope = changes.get("scope", "alice" if defined.scoped else "")
    key = changes.get("key", f"n{number:03}")
    path = f"{defined.name}/{key}"
    given: dict[str, Any] = {
        "feed_seq": number,
        "uri": f"@{scope}/{path}" if scope else path,
        "collection": defined.name,
        "scope": scope,
        "key": key,
        "version": 2,
        "revision": 1,
        "indexed_as": 1,
        "status": "indexed",
        "facets": {},
        "fingerprint": defined.fingerprint,
        "written_at": NOON,
    }
    return Record.model_validate({**given, **changes})


def chosen(option: str, confidence: float | None = None) -> dict[str, Any]:
    """Return the facet value of a choice."""
    return {"type": "choice", "choice": option, "confidence": confidence}


def yes(probability: float, confidence: float | None = None) -> dict[str, Any]:
    """Return the facet value of a boolean."""
    return {"type": "boolean", "value": probability >= 0.5, "probability": probability, "confidence": confidence}


def scored(value: float, confidence: float | None = None, *, levels: tuple[str, ...] = LEVELS) -> dict[str, Any]:
    """Return the facet value of a score."""
    return {"type": "score", "score": value, "level": levels[round(value)], "confidence": confidence}


def select(collection: str = "notes", **fields: Any) -> Selection:
    """Return a selection of the collection."""
    return selection_of({"collection": collection, **fields})
