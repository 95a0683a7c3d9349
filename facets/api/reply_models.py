"""What the routes return, as models: what the OpenAPI document says of replies comes from here.

Replies are described, not checked: the node makes them. New members may come; those that are here stay.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

Json = dict[str, Any]


class ChoiceValue(BaseModel):
    """The answer to a choice question."""

    type: Literal["choice"]
    choice: str
    confidence: float | None = None
    probabilities: dict[str, float] | None = None


class BooleanValue(BaseModel):
    """The answer to a yes-or-no question."""

    type: Literal["boolean"]
    value: bool
    probability: float | None = None
    confidence: float | None = None


class ScoreValue(BaseModel):
    """The answer to a score question: 0 is the first level."""

    type: Literal["score"]
    score: float
    level: str
    confidence: float | None = None


Value = Annotated[ChoiceValue | BooleanValue | ScoreValue, Field(discriminator="type")]
Status = Literal["pending", "indexed", "failed", "empty", "deleted", "superseded"]


class Written(BaseModel):
    """What became of a write; of a delete, `uri` and `status`, and `version` where there was a document."""

    uri: str
    event_id: str
    status: Status
    version: int | None = None
    revision: int | None = None
    indexed_as: int | None = None
    facets: dict[str, Value] | None = None
    reason: str | None = None
    token: str | None = None


class Accepted(BaseModel):
    """A write that is acknowledged and not yet applied, or applied and not yet answered."""

    uri: str
    event_id: str
    token: str
    status: Status | None = None


class Document(BaseModel):
    """One document whole."""

    uri: str
    key: str
    body: str | None
    state: Json | None
    facets: dict[str, Value] | None
    version: int
    revision: int
    indexed_as: int
    status: Status
    reason: str | None = None
    evaluation: Json | None = None
    calls: Json
    outdated: bool | None = None
    token: str


class Event(BaseModel):
    """What became of an event."""

    event_id: str
    uri: str | None = None
    outcome: Literal["pending", "applied", "unchanged", "rejected"]
    reason: str | None = None
    version: int | None = None
    revision: int | None = None
    indexed_as: int | None = None


class Collection(BaseModel):
    """A collection and how its documents stand."""

    name: str
    pattern: str
    scoped: bool
    llm_readable: bool
    questions: Json
    fingerprint: str
    counts: dict[str, int]


class Collections(BaseModel):
    """The collections that there are."""

    collections: list[Collection]


class Hit(BaseModel):
    """A document that was found.

    `body` is there with `fields=body` only; null where the text was written again since these answers.
    """

    uri: str
    key: str
    version: int
    revision: int
    indexed_as: int
    status: Status
    facets: dict[str, Value] | None
    state: Json | None
    outdated: bool | None = None
    body: str | None = None


class Bucket(BaseModel):
    """How many documents have one answer."""

    value: str | bool
    count: int
    selected: bool


class Missing(BaseModel):
    """How many have no usable answer, and why."""

    count: int
    pending: int
    failed: int
    empty: int
    low_confidence: int
    outdated: int


class Counted(BaseModel):
    """The counts of one question: its buckets and `missing.count` together are `total`."""

    name: str
    type: Literal["choice", "boolean", "score"]
    total: int
    buckets: list[Bucket]
    missing: Missing


class AsOf(BaseModel):
    """How new a reply is."""

    token: str
    pending: int


class Links(BaseModel):
    """The same search as a page, as CSV and as SQL text."""

    self: str
    csv: str
    sql: str


class SearchReply(BaseModel):
    """Hits, total and counts of one snapshot."""

    keys: list[str]
    hits: list[Hit]
    total: int
    facets: list[Counted]
    next_cursor: str | None
    next_url: str | None
    as_of: AsOf
    took_ms: float
    links: Links


class Job(BaseModel):
    """A reindex job."""

    id: str
    state: Literal["queued", "running", "succeeded", "failed", "canceled"]


class Jobs(BaseModel):
    """The newest jobs."""

    jobs: list[Job]


class Plan(BaseModel):
    """What a reindex would take."""

    dry_run: bool
    documents: int
    calls: int
    tokens: int | None
    cost_usd: float | None


class Item(BaseModel):
    """One document of a job."""

    uri: str
    status: str
    reason: str | None = None


class ItemsReply(BaseModel):
    """A page of a job's items."""

    items: list[Item]
    next_cursor: str | None


class Bytes(BaseModel):
    """A part of a record: text where it is UTF-8, else base64; `bytes` is how long it is, cut or not."""

    encoding: Literal["utf-8", "base64"]
    data: str
    bytes: int
    truncated: bool


class Header(Bytes):
    """A header of a record."""

    name: str


class DeadLetter(BaseModel):
    """An event that could not be applied; `handled_at` and `handled_by`: who last sent it again or discarded it."""

    id: int
    reason: str
    message: str
    uri: str | None
    topic: str
    incarnation: int
    partition: int
    offset: int
    stage: str
    attempts: int
    state: Literal["open", "redriving", "redriven", "superseded", "discarded"]
    created_at: str
    handled_at: str | None
    handled_by: str | None


class DeadLetterListed(DeadLetter):
    """A dead letter in the list, with the beginning of its key."""

    key: Bytes | None


class DeadLetterWhole(DeadLetterListed):
    """A dead letter with its record; the first headers, of `headers_total`."""

    value: Bytes | None
    headers: list[Header]
    headers_total: int


class DeadLetters(BaseModel):
    """A page of the letters that wait, the newest first; `counts` are those of all, by reason."""

    dead_letters: list[DeadLetterListed]
    counts: dict[str, int]
    next_cursor: str | None


class Redriven(BaseModel):
    """What became of a letter that was sent again; `sent`: a worker will apply it."""

    id: int
    outcome: Literal["applied", "unchanged", "rejected", "sent"]
    reason: str | None


class SqlReply(BaseModel):
    """A statement's result; `truncated` says that there are more rows."""

    columns: list[Any]
    rows: list[list[Any]]
    truncated: bool
    as_of: Any


class Seen(BaseModel):
    """One thing that was looked at."""

    name: str
    level: Literal["ok", "degraded", "failed"]
    detail: str


class Health(BaseModel):
    """How the process is; checks that are fine are listed with `verbose` only."""

    status: Literal["alive", "ready", "degraded"]
    checks: list[Seen] | None = None


class Index(BaseModel):
    """What this server is, and where to go on."""

    name: str
    version: str
    api: str
    links: dict[str, str]


class ProblemKind(BaseModel):
    """A kind of problem and what to do about it."""

    type: str
    title: str
    status: int
    mend: str


class ProblemReply(BaseModel):
    """RFC 9457: every reply that is not what was asked for."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    allowed: list[str] | None = None
    known: list[str] | None = None
    nearest: str | None = None
    reason: str | None = None
    line: int | None = None
    column: int | None = None
    checks: list[Seen] | None = None
