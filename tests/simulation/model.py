"""What the log's records must make of documents, told a second time: a model that shares no code with the product.

It knows what each record meant (`simulation.log.Intent`), decodes no bytes, and asks no store. What answers, failures
and turns may change beside it is the matter of `simulation.promises`.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

from simulation.log import Intent

Place = tuple[int, int, int]
"""Incarnation, partition, offset."""


@dataclass(frozen=True)
class Doc:
    """A document by its records, with what answers and turns have made of its counters since."""

    version: int = 0
    revision: int = 0
    indexed_as: int = 0
    status: str = "deleted"
    body: str | None = None
    state: str | None = None
    at: Place = (0, 0, -1)


@dataclass
class Letter:
    """A dead letter."""

    reason: str
    state: str
    attempts: int


class Refused(Exception):
    """The record becomes a dead letter, for this reason."""


class Model:
    """Documents, settled events and dead letters, by the records alone."""

    def __init__(self) -> None:
        self.docs: dict[str, Doc] = {}
        self.letters: dict[Place, Letter] = {}
        self.settled: dict[tuple[str, str], tuple[tuple[object, ...], str, int | None]] = {}

    def take(self, intent: Intent, place: Place) -> None:
        """Apply one record in log order; a redriven one counts for the place where it stood first."""
        at = intent.origin or place
        key, before = (intent.source, intent.id), self.docs.get(intent.uri)
        try:
            if not self._is_duplicate(intent):
                after = self._next(intent, before, at)
                said = "unchanged" if after.version == (before.version if before else 0) else "applied"
                self.settled[key] = (intent.content, said, after.version or None)
                self.docs[intent.uri] = replace(after, at=max(after.at, at))
        except Refused as refused:
            self._write_letter(at, str(refused))
        else:
            if intent.origin and at in self.letters and self.letters[at].state == "open":
                self.letters[at].state = "redriven"

    def _is_duplicate(self, intent: Intent) -> bool:
        if intent.bad and not (intent.bad == "expired" and intent.origin):
            raise Refused(intent.bad)
        known = self.settled.get((intent.source, intent.id))
        if known is not None and known[0] != intent.content:
            raise Refused("id_reused")
        return known is not None

    def _next(self, intent: Intent, doc: Doc | None, at: Place) -> Doc:
        alive = doc is not None and doc.status != "deleted"
        if intent.origin and doc is not None and doc.at >= at:
            raise Refused("superseded")
        if intent.kind == "delete":
            # The delete of one that never was keeps its place: an earlier write sent again must find it.
            return Doc(doc.version + 1, doc.revision, doc.version + 1, at=doc.at) if doc and alive else doc or Doc()
        if doc is not None and alive and intent.unless_equal and _equal(intent, doc):
            return doc
        if intent.body is None and not alive:
            raise Refused("no_document")
        doc = doc or Doc()
        new = replace(doc, version=doc.version + 1, state=intent.state or doc.state)
        if intent.body is None:
            return new
        status = "pending" if intent.body.strip() else "empty"
        return replace(new, revision=new.version, indexed_as=new.version, status=status, body=intent.body)

    def _write_letter(self, at: Place, reason: str) -> None:
        known, superseded = self.letters.get(at), reason == "superseded"
        kept = known.reason if known and superseded else reason
        self.letters[at] = Letter(kept, "superseded" if superseded else "open", 1 + (known.attempts if known else 0))


def same_json(one: str | None, other: str | None) -> bool:
    """Say whether two JSON texts, or absences of one, mean the same."""
    return _json(one) == _json(other)


def _equal(intent: Intent, doc: Doc) -> bool:
    return intent.body in (None, doc.body) and (intent.state is None or same_json(intent.state, doc.state))


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
