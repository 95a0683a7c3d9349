"""Small values that many tests need: definitions without an evaluator, raw records, positions."""

from typing import Any

from facetline.facets import collections as collections_
from facetline.facets.collections import definition_of
from facetline.facets.definitions import Definition, Definitions
from facetline.facets.questions import choice
from facetline.storage.log import events

IDENTITY = {"kind": "fake", "model": "fake-1", "parameters": {}, "version": "1", "validator": "1"}
TOPIC = {"topic": choice(ask="What is it about?", options={"billing": "Money", "outage": "Down", "other": "Else"})}


def definition(name: str = "tickets", *, pattern: str | None = None, **options: Any) -> Definition:
    """Return a collection's definition: one choice question unless told otherwise."""
    given: dict[str, Any] = {"questions": TOPIC, "state": {"title": "string", "priority": "integer"}, **options}
    made = collections_.define_collection(name=name, pattern=pattern or f"{name}/*", evaluator="fake", **given)
    return definition_of(made, evaluator_name="fake", kind="fake", model="fake-1", identity=IDENTITY)


def definitions(*listed: Definition) -> Definitions:
    """Return a set of definitions; `tickets` alone unless told otherwise."""
    return Definitions(listed or (definition(),))


def raw(
    key: bytes | str | None = "tickets/t1",
    value: bytes | str | None = '{"body":"hello"}',
    headers: dict[str, str] | None = None,
    timestamp_ms: int | None = None,
) -> events.Raw:
    """Return a record as a producer might have sent it."""
    return events.Raw(
        key.encode() if isinstance(key, str) else key,
        value.encode() if isinstance(value, str) else value,
        tuple((name, text.encode()) for name, text in (headers or {}).items()),
        timestamp_ms,
    )


def position(offset: int = 0, *, topic: str = "documents", incarnation: int = 1, partition: int = 0) -> events.Position:
    """Return a place in a log."""
    return events.Position(topic, incarnation, partition, offset)
