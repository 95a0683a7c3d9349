"""Folding: what a run of events makes of the documents it is about. Pure; it counts versions event by event.

Folding a batch gives exactly what applying its events one by one would give: the same outcomes, numbers and final
documents. The store then writes each document once.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from facetline.facets.documents import EventReason, Status
from facetline.storage.log.events import (
    IMPORTED_FINGERPRINT,
    Answered,
    Content,
    Event,
    LetterState,
    Outcome,
    Position,
    Stage,
)

EventKey = tuple[str, str]
"""An event's source and id."""


class DocumentState(NamedTuple):
    """The state of a document that the next event depends on; `position` is the latest one applied to it."""

    uri: str
    collection: str
    scope: str
    key: str
    version: int
    revision: int
    indexed_as: int
    status: str
    body_hash: str | None
    state: str | None
    source: str
    event_id: str
    traceparent: str | None
    fingerprint: str | None
    position: Position


class Change(NamedTuple):
    """What is to be stored of one document.

    `cleared`: its answers and its place in the queue are void. `body`: the text to store; None with `cleared` means
    there is none any more, None without it that the stored one stays. `answered`: the answers to store instead.
    """

    before: DocumentState | None
    after: DocumentState
    cleared: bool = False
    body: str | None = None
    answered: Answered | None = None


@dataclass(frozen=True, slots=True)
class Letter:
    """A rejection to be kept with the event's bytes: `attempts` more at its position, the last one kept here."""

    event: Event
    reason: str
    message: str
    stage: Stage
    state: LetterState
    attempts: int


@dataclass(slots=True)
class Fold:
    """The result: outcomes in the order of the events, one change for each document, one letter for each position.

    `redriven`: positions whose events have now been settled after they had been sent again.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    changes: dict[str, Change] = field(default_factory=dict)
    letters: dict[Position, Letter] = field(default_factory=dict)
    redriven: set[Position] = field(default_factory=set)


class Rejected(Exception):
    """The event cannot be applied to the document as it stands."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def fold(documents: Mapping[str, DocumentState], settled: Mapping[EventKey, Outcome], events: Iterable[Event]) -> Fold:
    """Fold `events`, in log order, over the `documents` they name and the `settled` outcomes of their ids."""
    folding = Fold()
    known = dict(settled)
    for event in events:
        earlier = known.get((event.source, event.id))
        if earlier is not None and earlier.digest == event.digest:
            outcome = replace(earlier, duplicate=True)
        else:
            outcome = _judge(folding, documents, event, earlier)
            if outcome.outcome != "rejected":
                known[event.source, event.id] = outcome
        if event.redriven and outcome.outcome != "rejected":
            folding.redriven.add(event.position)
        folding.outcomes.append(outcome)
    return folding


def _judge(folding: Fold, documents: Mapping[str, DocumentState], event: Event, earlier: Outcome | None) -> Outcome:
    try:
        content, uri = _applicable(event, earlier)
        change = folding.changes.get(uri)
        before = documents.get(uri) if change is None else change.after
        _refuse_superseded(event, before)
        after = _next(before, event, content)
    except Rejected as rejected:
        return _reject(folding, event, rejected)
    folding.changes[uri] = _changed(change, before, after, content)
    never = after.version == 0
    return Outcome(
        source=event.source,
        id=event.id,
        digest=event.digest,
        outcome="unchanged" if _same(before, after) else "applied",
        uri=uri,
        version=None if never else after.version,
        revision=None if never else after.revision,
        indexed_as=None if never else after.indexed_as,
    )


def _applicable(event: Event, earlier: Outcome | None) -> tuple[Content, str]:
    if event.content is None or event.uri is None:
        raise Rejected(event.reason or EventReason.NOT_JSON.value, event.message or "")
    if earlier is not None:
        raise Rejected(
            EventReason.ID_REUSED.value,
            f"id {event.id[:80]!r} of source {event.source[:80]!r} was used for another event about "
            f"{earlier.uri!r}; send this one with an id of its own",
        )
    return event.content, event.uri


def _refuse_superseded(event: Event, before: DocumentState | None) -> None:
    if event.redriven and before is not None and _latest(before.position, event.position) is before.position:
        raise Rejected(
            EventReason.SUPERSEDED.value,
            f"the document has taken the event at offset {before.position.offset} since; send a new event instead",
        )


def _latest(stored: Position, position: Position) -> Position:
    """Return the later one; between different logs there is no order, and the one that came last counts."""
    comparable = (stored.topic, stored.partition) == (position.topic, position.partition)
    if comparable and (stored.incarnation, stored.offset) >= (position.incarnation, position.offset):
        return stored
    return position


def _next(before: DocumentState | None, event: Event, content: Content) -> DocumentState:
    """Return the document after the event.

    The delete of one that never was leaves a deleted one with version 0: what was written before that delete, and
    comes again after it, must find its position.
    """
    present = None if before is None or before.status == Status.DELETED.value else before
    if content.deleted:
        return _passed(before or _absent(event), event) if present is None else _deleted(present, event)
    if present is not None and content.unless_equal and _equal(present, content):
        return _passed(present, event)
    if content.body is None and present is None:
        raise Rejected(
            EventReason.NO_DOCUMENT.value,
            f"{event.uri!r} does not exist, so its state cannot be written alone; send a body with it",
        )
    return _written(before or _absent(event), event, content)


def _passed(before: DocumentState, event: Event) -> DocumentState:
    return before._replace(position=_latest(before.position, event.position))


def _deleted(before: DocumentState, event: Event) -> DocumentState:
    version = before.version + 1
    return before._replace(
        **_stamp(before, event),
        version=version,
        indexed_as=version,
        status=Status.DELETED.value,
        body_hash=None,
        state=None,
        fingerprint=None,
    )


def _written(before: DocumentState, event: Event, content: Content) -> DocumentState:
    version = before.version + 1
    state = before.state if content.state is None else content.state
    if content.body is None:
        return before._replace(**_stamp(before, event), version=version, state=state)
    return before._replace(
        **_stamp(before, event),
        version=version,
        revision=version,
        indexed_as=version,
        status=_status(content).value,
        body_hash=content.body_hash,
        state=state,
        fingerprint=None if content.answered is None else content.answered.fingerprint,
    )


def _status(content: Content) -> Status:
    if content.answered is not None:
        return Status.INDEXED
    return Status.EMPTY if content.blank else Status.PENDING


def _stamp(before: DocumentState, event: Event) -> dict[str, Any]:
    """Name the event as the one that the content came from; the collection too, which may have been redefined."""
    return {
        "collection": event.collection,
        "scope": event.scope,
        "key": event.key,
        "source": event.source,
        "event_id": event.id,
        "traceparent": event.traceparent,
        "position": _latest(before.position, event.position),
    }


def _absent(event: Event) -> DocumentState:
    return DocumentState(
        uri=event.uri or "",
        collection=event.collection or "",
        scope=event.scope or "",
        key=event.key or "",
        version=0,
        revision=0,
        indexed_as=0,
        status=Status.DELETED.value,
        body_hash=None,
        state=None,
        source=event.source,
        event_id=event.id,
        traceparent=event.traceparent,
        fingerprint=None,
        position=event.position,
    )


def _equal(before: DocumentState, content: Content) -> bool:
    if content.body is not None and content.body_hash != before.body_hash:
        return False
    if content.answered is not None and not _has_answers(before, content.answered):
        return False
    return content.state is None or _same_state(content.state, before.state)


def _has_answers(before: DocumentState, answered: Answered) -> bool:
    """Say whether imported answers would bring nothing: they are there, or an evaluator's own have come since."""
    if before.status != Status.INDEXED.value or before.fingerprint is None:
        return False
    return before.fingerprint == answered.fingerprint or not before.fingerprint.startswith(IMPORTED_FINGERPRINT)


def _same_state(new: str, old: str | None) -> bool:
    if old is None or new == old:
        return new == old
    # The same fields in another order: a definition has been rewritten since.
    return json.dumps(json.loads(new), sort_keys=True) == json.dumps(json.loads(old), sort_keys=True)


def _same(before: DocumentState | None, after: DocumentState) -> bool:
    return after.version == (0 if before is None else before.version)


def _changed(change: Change | None, before: DocumentState | None, after: DocumentState, content: Content) -> Change:
    first = before if change is None else change.before
    if not _same(before, after) and (content.deleted or content.body is not None):
        return Change(first, after, cleared=True, body=content.body, answered=content.answered)
    return Change(first, after) if change is None else change._replace(after=after)


def _reject(folding: Fold, event: Event, rejected: Rejected) -> Outcome:
    folding.letters[event.position] = _letter(folding.letters.get(event.position), event, rejected)
    return Outcome(
        source=event.source,
        id=event.id,
        digest=event.digest,
        outcome="rejected",
        reason=rejected.reason,
        message=rejected.message,
        uri=event.uri,
    )


def _letter(earlier: Letter | None, event: Event, rejected: Rejected) -> Letter:
    superseded = rejected.reason == EventReason.SUPERSEDED.value
    attempts = 1 if earlier is None else earlier.attempts + 1
    if earlier is not None and superseded:  # why it failed stays more telling than why it may rest
        return replace(earlier, state="superseded", attempts=attempts)
    return Letter(
        event=event if earlier is None else earlier.event,
        reason=rejected.reason,
        message=rejected.message,
        stage="apply" if event.content is not None else event.stage,
        state="superseded" if superseded else "open",
        attempts=attempts,
    )
