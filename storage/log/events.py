"""Judged events: what the wire layer hands to the store, and what the store says became of them.

Values without behaviour. An event stands at the place in a log where it was first appended, also when it is redriven
or replayed later: that original position decides whether it is older than what its document already holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Stage = Literal["decode", "apply", "log"]
OutcomeKind = Literal["applied", "unchanged", "rejected"]
LetterState = Literal["open", "redriving", "redriven", "superseded", "discarded"]

IMPORTED_FINGERPRINT = "imported-"
"""How fingerprints of imported answers begin; those of questions and evaluators are hexadecimal, so none is active."""
LOCAL_INCARNATION = 1
"""The local log is never created again."""
LOCAL_PARTITION = 0
"""The local log is one partition: SQLite has one writer."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a log. `incarnation` counts from 1 the times that a topic of this name was created again."""

    topic: str
    incarnation: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Raw:
    """A record's bytes as they came; header order and repeated names are kept. `timestamp_ms` is the log's."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """Answers of an earlier system that came with a body, already valid, in their public form.

    `evaluation` is what documents say of it, but for fingerprint and time. `classified_ms` None: when it is applied.
    """

    facets: Mapping[str, Mapping[str, Any]]
    evaluation: Mapping[str, Any]
    fingerprint: str
    classified_ms: int | None


@dataclass(frozen=True, slots=True)
class Content:
    """What an event does to its document; an absent part (None) leaves the stored one.

    `body_hash` is the SHA-256 of the UTF-8 body in hex, `blank` says that nothing but white space is in it, `state` is
    canonical JSON. With `unless_equal` an event that would change nothing counts as unchanged. `answered` comes with a
    body that is not to be asked about.
    """

    body: str | None
    body_hash: str | None
    blank: bool
    state: str | None
    deleted: bool
    unless_equal: bool
    answered: Answered | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One event, judged by the active definitions: with `content`, or rejected with `reason` and `message`."""

    position: Position
    redriven: bool
    source: str
    id: str
    digest: str
    uri: str | None
    collection: str | None
    scope: str | None
    key: str | None
    content: Content | None
    reason: str | None
    message: str | None
    stage: Stage
    raw: Raw
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """All that one partition of a log holds in [`start`, `end`): offsets without an event are passed.

    `offsets` gives each event's own offset in this log. `last_timestamp_ms` and `last_hash` are those of the last
    record below `end`, by which a log that was created again is recognised; None where it is not known.
    """

    topic: str
    incarnation: int
    partition: int
    start: int
    end: int
    events: tuple[Event, ...]
    offsets: tuple[int, ...]
    last_timestamp_ms: int | None = None
    last_hash: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an event. `duplicate`: it had been settled before, and this is what it was settled as."""

    source: str
    id: str
    digest: str
    outcome: OutcomeKind
    reason: str | None = None
    message: str | None = None
    uri: str | None = None
    version: int | None = None
    revision: int | None = None
    indexed_as: int | None = None
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Applied:
    """Outcomes in the order of the batches and their events, without the `redelivered` records that were skipped."""

    outcomes: tuple[Outcome, ...]
    redelivered: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that could not be applied, with its bytes.

    `state`: open; redriving, when it was sent to the topic again and has not come back; redriven, when it was applied
    after all; superseded, when its document has taken a later event; discarded, when it was closed permanently
    without sending it. `attempts` counts how often it was rejected, `handled_ms` and `handled_by` say when and by which
    credential it was last sent again or discarded.
    """

    id: int
    position: Position
    uri: str | None
    stage: str
    reason: str
    message: str
    attempts: int
    raw: Raw
    state: LetterState
    created_ms: int
    handled_ms: int | None = None
    handled_by: str | None = None
