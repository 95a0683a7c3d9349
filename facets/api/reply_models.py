"""Reply models: describe the replies of all routes in the OpenAPI document.

Replies are described, not validated at run time. Members may be added; existing ones stay.
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
    """Outcome of a write; for a delete `uri` and `status`, and `version` if the document existed."""

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
    """A write that is acknowledged but not applied yet, or applied but not answered yet."""

    uri: str
    event_id: str
    token: str
    status: Status | None = None


class Document(BaseModel):
    """One document with text, state and answers."""

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
    """Outcome of an event."""

    event_id: str
    uri: str | None = None
    outcome: Literal["pending", "applied", "unchanged", "rejected"]
    reason: str | None = None
    version: int | None = None
    revision: int | None = None
    indexed_as: int | None = None


class Collection(BaseModel):
    """A collection with the number of its documents by status."""

    name: str
    pattern: str
    scoped: bool
    llm_readable: bool
    questions: Json
    fingerprint: str
    counts: dict[str, int]


class Collections(BaseModel):
    """All collections."""

    collections: list[Collection]


class Highlight(BaseModel):
    """Where a word that was looked for stands: code points from `start` to before `end` of a field."""

    field: str
    start: int
    end: int


class Mark(BaseModel):
    """Where a word stands in a snippet."""

    start: int
    end: int


class LineRange(BaseModel):
    """Lines of the body, from 1, both included."""

    start: int
    end: int


class ScoreDetails(BaseModel):
    """What a score consists of: the plain sum of BM25, and how many of how many words the document has."""

    keyword: float
    words: list[int]


class Hit(BaseModel):
    """A document in the result of a search.

    `body` is present with `fields=body` only; null if the text changed after these answers. `score` is present with
    `q`, `highlights`, `snippet`, `snippet_marks` and
    `line_range` with `highlight`, `score_details` with `score_details`.
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
    score: float | None = None
    highlights: list[Highlight] | None = None
    snippet: str | None = None
    snippet_marks: list[Mark] | None = None
    line_range: LineRange | None = None
    score_details: ScoreDetails | None = None


class TextNotes(BaseModel):
    """How words and patterns were looked for; fields without a meaning for the search are absent.

    `corrected` maps words that no text has to those that were looked for instead.
    """

    mode: Literal["keyword", "vector", "hybrid"] | None = None
    corrected: dict[str, str] | None = None
    taken_as: Literal["literal"] | None = None
    because: str | None = None


class Bucket(BaseModel):
    """Number of documents with one answer."""

    value: str | bool
    count: int
    selected: bool


class Missing(BaseModel):
    """Number of documents without a usable answer, by reason."""

    count: int
    pending: int
    failed: int
    empty: int
    low_confidence: int
    outdated: int


class FacetCounts(BaseModel):
    """Counts of one question; its buckets and `missing.count` add up to `total`."""

    name: str
    type: Literal["choice", "boolean", "score"]
    total: int
    buckets: list[Bucket]
    missing: Missing


class FieldBucket(BaseModel):
    """Number of documents with one value of an own field."""

    value: str | bool | int
    count: int
    selected: bool


class MissingValues(BaseModel):
    """Number of documents without a value."""

    count: int


class FieldCounts(BaseModel):
    """Counts of one own field; its buckets, `other_count` and `missing.count` add up to `total`."""

    name: str
    type: Literal["text", "integer", "boolean"]
    mode: Literal["disjunctive", "conjunctive"]
    total: int
    buckets: list[FieldBucket]
    other_count: int
    truncated: bool
    missing: MissingValues


class AsOf(BaseModel):
    """Freshness of a reply."""

    token: str
    pending: int


class Links(BaseModel):
    """The same search as a URL, as CSV and as SQL text; that is null where words or lines were looked for."""

    self: str
    csv: str
    sql: str | None


class SearchReply(BaseModel):
    """Hits, total and counts of one snapshot."""

    keys: list[str]
    hits: list[Hit]
    total: int
    facets: list[FacetCounts | FieldCounts]
    next_cursor: str | None
    next_url: str | None
    as_of: AsOf
    took_ms: float
    links: Links
    search: TextNotes | None = None


class Line(BaseModel):
    """A line of a document's body, from 1; `before` and `after` are there with `context`."""

    uri: str
    line: int
    snippet: str
    before: list[str] | None = None
    after: list[str] | None = None


class Token(BaseModel):
    """Freshness of a reply."""

    token: str


class LinesReply(BaseModel):
    """The first lines that match, in the order of uris, and the exact number of documents with such lines."""

    lines: list[Line]
    documents: int
    truncated: bool
    taken_as: Literal["literal"] | None = None
    because: str | None = None
    as_of: Token


class UrisReply(BaseModel):
    """The first uris that match, in order."""

    uris: list[str]
    truncated: bool


class Job(BaseModel):
    """A reindex job."""

    id: str
    state: Literal["queued", "running", "succeeded", "failed", "canceled"]


class Jobs(BaseModel):
    """The newest jobs."""

    jobs: list[Job]


class Plan(BaseModel):
    """Estimate of a reindex job."""

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
    """A part of a record: text if it is UTF-8, else base64; `bytes` is its full length, also if truncated."""

    encoding: Literal["utf-8", "base64"]
    data: str
    bytes: int
    truncated: bool


class Header(Bytes):
    """A header of a record."""

    name: str


class DeadLetter(BaseModel):
    """An event that could not be applied; `handled_at`, `handled_by`: last time it was sent again or discarded."""

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
    """A dead letter in a list, with the first bytes of its key."""

    key: Bytes | None


class DeadLetterRecord(DeadLetterListed):
    """A dead letter with its record; `headers` are the first of `headers_total`."""

    value: Bytes | None
    headers: list[Header]
    headers_total: int


class DeadLetters(BaseModel):
    """A page of open dead letters, newest first; `counts` are the numbers of all, by reason."""

    dead_letters: list[DeadLetterListed]
    counts: dict[str, int]
    next_cursor: str | None


class Redriven(BaseModel):
    """Outcome of sending a dead letter again; `sent`: a worker will apply it."""

    id: int
    outcome: Literal["applied", "unchanged", "rejected", "sent"]
    reason: str | None


class SqlReply(BaseModel):
    """Result of a statement; `truncated`: there are more rows."""

    columns: list[Any]
    rows: list[list[Any]]
    truncated: bool
    as_of: Any


class HealthCheck(BaseModel):
    """One check of the process."""

    name: str
    level: Literal["ok", "degraded", "failed"]
    detail: str


class Health(BaseModel):
    """State of the process; checks that pass are listed with `verbose` only."""

    status: Literal["alive", "ready", "degraded"]
    checks: list[HealthCheck] | None = None


class Index(BaseModel):
    """Name, version and links of this server."""

    name: str
    version: str
    api: str
    links: dict[str, str]


class ProblemKind(BaseModel):
    """A kind of problem and how to fix it."""

    type: str
    title: str
    status: int
    mend: str


class ProblemReply(BaseModel):
    """An error reply (RFC 9457)."""

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
    checks: list[HealthCheck] | None = None
