"""What a reindex job is: its request, its state, what a turn of it did, and its documents."""

from dataclasses import dataclass
from typing import Literal

from facetline.storage.jobs import decisions

JobState = Literal["queued", "running", "succeeded", "failed", "canceled"]
ACTIVE = ("queued", "running")
DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What to ask again about: `scope` "" means all of the collection, `filter` is CQL2 text or None."""

    collection: str
    scope: str = ""
    mode: decisions.Mode = "missing"
    filter: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it stands. `filled_to` is the last uri looked at while its items are written, None when all are."""

    id: str
    request: JobRequest
    state: JobState
    filled_to: str | None
    total: int
    owner: str | None
    lease_until_ms: int | None
    created_ms: int
    finished_ms: int | None


@dataclass(frozen=True, slots=True)
class Turn:
    """What a turn did: documents cleared, answers taken over, items closed at no call; whether more items wait.

    `state` is the job's after it. `held` False: the job is not (or no longer) the owner's, and nothing was done.
    """

    cleared: int
    adopted: int
    closed: int
    waiting: bool
    state: JobState
    held: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request would ask for now: documents, model calls at most, and the bytes of the bodies in them."""

    documents: int
    calls: int
    body_bytes: int


@dataclass(frozen=True, slots=True)
class Item:
    """One document of a job."""

    uri: str
    key: str
    scope: str
    state: decisions.ItemState
    reason: str | None
