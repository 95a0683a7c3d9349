"""The rows of the store of record, as table models.

Times are milliseconds since 1970 (UTC) by the store's clock, in columns that end with `_ms`. JSON is text, written by
`storage.db.json_rows` alone, so that both databases hold the same bytes. A document's body lives in its own table: the
row that is claimed, answered and numbered again and again stays small.

Rows that leave `storage` are objects of these classes where there are few of them (tokens, outages, processes);
the statements of the write path, the queue and the feed are Core on the tables, the constants at the end.
"""

from collections.abc import Sequence
from typing import cast

from sqlalchemy import BigInteger, Dialect, Index, MetaData, String, Table, Text, TypeDecorator, text
from sqlmodel import Field, SQLModel

METADATA = MetaData()
BYTE_ORDER = String().with_variant(String(collation="C"), "postgresql")
"""Text that is compared byte by byte in both databases, so that keyset pages and lock order agree."""


CLOCKS_APART_MS = 5_000
"""How far the store's clock may be set back without making an outage one of the future."""


class Words(TypeDecorator[tuple[str, ...]]):
    """A tuple of words without commas, as one text with commas between them."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: Sequence[str] | None, dialect: Dialect) -> str | None:
        """Return the text of the words."""
        del dialect
        return None if value is None else ",".join(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, ...] | None:
        """Return the words of the text."""
        del dialect
        return None if value is None else tuple(value.split(","))


class Row(SQLModel):
    """What all table models share: two rows are equal when their columns are."""

    metadata = METADATA

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.model_dump() == other.model_dump()

    def __hash__(self) -> int:
        return hash(tuple(self.model_dump().values()))


class StoreIdentity(Row, table=True):
    """One row: the store's identity, and the generations (`storage.generations`) of definitions and credentials."""

    __tablename__ = "store"

    id: int = Field(primary_key=True)
    store_id: str
    definitions_generation: int = Field(sa_type=BigInteger, sa_column_kwargs={"server_default": text("0")})
    feed_seq: int = Field(sa_type=BigInteger, sa_column_kwargs={"server_default": text("0")})
    credentials_generation: int = Field(sa_type=BigInteger, sa_column_kwargs={"server_default": text("0")})
    definitions_mark: str = Field(sa_column_kwargs={"server_default": text("''")})
    credentials_mark: str = Field(sa_column_kwargs={"server_default": text("''")})


class ActiveDefinition(Row, table=True):
    """The active definition of a collection."""

    __tablename__ = "definitions"

    name: str = Field(primary_key=True)
    fingerprint: str
    definition: str = Field(sa_type=Text)
    activated_ms: int = Field(sa_type=BigInteger)


class PartitionPosition(Row, table=True):
    """How far a partition of the documents topic has been applied: the position of record."""

    __tablename__ = "positions"

    topic: str = Field(primary_key=True)
    incarnation: int = Field(primary_key=True)
    partition: int = Field(primary_key=True)
    next_offset: int = Field(sa_type=BigInteger)
    last_timestamp_ms: int | None = Field(default=None, sa_type=BigInteger)
    last_hash: str | None = None
    created_ms: int = Field(sa_type=BigInteger)


class Topic(Row, table=True):
    """The partition count that a topic had when it was first used."""

    __tablename__ = "topics"

    topic: str = Field(primary_key=True)
    partitions: int


class EventOutcome(Row, table=True):
    """What became of an event: one row for each (id, digest)."""

    __tablename__ = "outcomes"
    __table_args__ = (
        Index("outcomes_at", "at_ms"),
        # One event settles an id, even if another is applied under it at the same moment.
        Index(
            "outcomes_settled",
            "source",
            "event_id",
            unique=True,
            sqlite_where=text("outcome <> 'rejected'"),
            postgresql_where=text("outcome <> 'rejected'"),
        ),
    )

    source: str = Field(primary_key=True)
    event_id: str = Field(primary_key=True)
    digest: str = Field(primary_key=True)
    outcome: str
    reason: str | None = None
    message: str | None = Field(default=None, sa_type=Text)
    uri: str | None = None
    version: int | None = Field(default=None, sa_type=BigInteger)
    revision: int | None = Field(default=None, sa_type=BigInteger)
    indexed_as: int | None = Field(default=None, sa_type=BigInteger)
    at_ms: int = Field(sa_type=BigInteger)


class DocumentBody(Row, table=True):
    """A document's text."""

    __tablename__ = "bodies"

    uri: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    body: str = Field(sa_type=Text)


class StoredDocument(Row, table=True):
    """A document without its text, and its place in the queue and the feed.

    `feed_seq` null: changed since it was last numbered. `log_*` is the (original) position of the last applied event.
    Queue: claimable while `status` is pending, `due_ms` has passed and no lease runs. `tries` and `retry_wait_ms` are
    what the retry bounds look at; `calls_made`, `retries` and `crashes` are the account of calls for `indexed_as`.
    `memo_after_ms`: answers remembered before that time are not taken (a forced reindex).
    """

    __tablename__ = "documents"
    __table_args__ = (
        Index("documents_collection", "collection", "scope", "uri"),
        Index(
            "documents_feed",
            "feed_seq",
            unique=True,
            sqlite_where=text("feed_seq IS NOT NULL"),
            postgresql_where=text("feed_seq IS NOT NULL"),
        ),
        Index(
            "documents_unnumbered",
            "uri",
            sqlite_where=text("feed_seq IS NULL"),
            postgresql_where=text("feed_seq IS NULL"),
        ),
        Index(
            "documents_due",  # begins with what a claim is limited to, so that what it may not take is never read
            "collection",
            "lane",
            "due_ms",
            "uri",
            sqlite_where=text("status = 'pending' AND owner IS NULL"),
            postgresql_where=text("status = 'pending' AND owner IS NULL"),
        ),
        Index(
            "documents_turns",  # the same by scope, for claims that take turns
            "collection",
            "lane",
            "scope",
            "due_ms",
            "uri",
            sqlite_where=text("status = 'pending' AND owner IS NULL"),
            postgresql_where=text("status = 'pending' AND owner IS NULL"),
        ),
        Index(
            "documents_leased",
            "lease_until_ms",
            sqlite_where=text("owner IS NOT NULL"),
            postgresql_where=text("owner IS NOT NULL"),
        ),
    )

    uri: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    collection: str
    scope: str
    key: str
    version: int = Field(sa_type=BigInteger)
    revision: int = Field(sa_type=BigInteger)
    indexed_as: int = Field(sa_type=BigInteger)
    status: str
    reason: str | None = None
    reason_message: str | None = Field(default=None, sa_type=Text)
    body_hash: str | None = None
    state: str | None = Field(default=None, sa_type=Text)
    facets: str | None = Field(default=None, sa_type=Text)
    evaluation: str | None = Field(default=None, sa_type=Text)
    fingerprint: str | None = None
    written_ms: int = Field(sa_type=BigInteger)
    cleared_ms: int = Field(sa_type=BigInteger)
    classified_ms: int | None = Field(default=None, sa_type=BigInteger)
    event_source: str
    event_id: str
    traceparent: str | None = None
    log_topic: str
    log_incarnation: int
    log_partition: int
    log_offset: int = Field(sa_type=BigInteger)
    feed_seq: int | None = Field(default=None, sa_type=BigInteger)
    lane: int = 0
    due_ms: int | None = Field(default=None, sa_type=BigInteger)
    attempt: int = 0
    owner: str | None = None
    lease_until_ms: int | None = Field(default=None, sa_type=BigInteger)
    claimed_ms: int | None = Field(default=None, sa_type=BigInteger)
    claimed_fingerprint: str | None = None
    calls_made: int = 0
    retries: int = 0
    crashes: int = 0
    tries: int = 0
    retry_wait_ms: int = Field(sa_type=BigInteger, sa_column_kwargs={"server_default": text("0")})
    memo_after_ms: int | None = Field(default=None, sa_type=BigInteger)


class CachedAnswer(Row, table=True):
    """A valid answer remembered by what it was about."""

    __tablename__ = "memo"
    __table_args__ = (Index("memo_created", "created_ms"),)

    scope: str = Field(primary_key=True)
    body_hash: str = Field(primary_key=True)
    fingerprint: str = Field(primary_key=True)
    facets: str = Field(sa_type=Text)
    evaluation: str = Field(sa_type=Text)
    created_ms: int = Field(sa_type=BigInteger)


class ReindexJob(Row, table=True):
    """A reindex job; `filled_to` is the last uri looked at while its items are written, null when all are."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index(
            "jobs_one_active",
            "collection",
            "scope",
            unique=True,
            sqlite_where=text("state IN ('queued', 'running')"),
            postgresql_where=text("state IN ('queued', 'running')"),
        ),
    )

    id: str = Field(primary_key=True)
    collection: str
    scope: str
    mode: str
    filter: str | None = Field(default=None, sa_type=Text)
    state: str
    cancel_requested: bool = False
    filled_to: str | None = None
    total: int = Field(sa_type=BigInteger, sa_column_kwargs={"server_default": text("0")})
    owner: str | None = None
    lease_until_ms: int | None = Field(default=None, sa_type=BigInteger)
    created_ms: int = Field(sa_type=BigInteger)
    finished_ms: int | None = Field(default=None, sa_type=BigInteger)


class ReindexItem(Row, table=True):
    """One document of a job; `indexed_as` is the identity that its turn gave it or took over, null before its turn."""

    __tablename__ = "job_items"
    __table_args__ = (
        Index("job_items_state", "job_id", "state", "uri"),
        Index(
            "job_items_open",
            "uri",
            sqlite_where=text("state IN ('waiting', 'asked')"),
            postgresql_where=text("state IN ('waiting', 'asked')"),
        ),
    )

    job_id: str = Field(primary_key=True)
    uri: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    state: str
    indexed_as: int | None = Field(default=None, sa_type=BigInteger)
    adopted: bool = False


class StoredLetter(Row, table=True):
    """An event that could not be applied, byte for byte; one row for each original position."""

    __tablename__ = "dead_letters"
    __table_args__ = (
        Index("dead_letters_position", "topic", "incarnation", "partition", "offset", unique=True),
        Index(
            "dead_letters_unsent",
            "id",
            sqlite_where=text("sent_ms IS NULL"),
            postgresql_where=text("sent_ms IS NULL"),
        ),
        Index(
            "dead_letters_waiting",
            "id",
            "reason",
            sqlite_where=text("state IN ('open', 'redriving')"),
            postgresql_where=text("state IN ('open', 'redriving')"),
        ),
    )

    id: int = Field(primary_key=True)
    topic: str
    incarnation: int
    partition: int
    offset: int = Field(sa_type=BigInteger)
    uri: str | None = None
    stage: str
    reason: str
    message: str = Field(sa_type=Text)
    attempts: int
    key: bytes | None = None
    value: bytes | None = None
    headers: str = Field(sa_type=Text)
    timestamp_ms: int | None = Field(default=None, sa_type=BigInteger)
    state: str
    created_ms: int = Field(sa_type=BigInteger)
    sent_ms: int | None = Field(default=None, sa_type=BigInteger)
    handled_ms: int | None = Field(default=None, sa_type=BigInteger)
    handled_by: str | None = None


class Publication(Row, table=True):
    """How far the feed has been sent to a topic, and who sends it."""

    __tablename__ = "publications"

    topic: str = Field(primary_key=True)
    feed_position: int = Field(sa_type=BigInteger, sa_column_kwargs={"server_default": text("0")})
    owner: str | None = None
    lease_until_ms: int | None = Field(default=None, sa_type=BigInteger)


class UnsentRecord(Row, table=True):
    """A feed row that could not be sent; it is retried alone."""

    __tablename__ = "set_aside"

    topic: str = Field(primary_key=True)
    uri: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    message: str = Field(sa_type=Text)
    attempts: int
    due_ms: int = Field(sa_type=BigInteger)


class Counter(Row, table=True):
    """A count that outlives processes, such as answers discarded because they were stale."""

    __tablename__ = "tallies"

    name: str = Field(primary_key=True)
    value: int = Field(sa_type=BigInteger)


class UsageDay(Row, table=True):
    """What the calls of a day (UTC, `2026-11-30`) used up; `cost_usd` leaves the `unpriced_calls` out."""

    __tablename__ = "spend"

    day: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    evaluator: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    collection: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    model: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    calls: int = Field(sa_type=BigInteger)
    unpriced_calls: int = Field(sa_type=BigInteger)
    input_tokens: int = Field(sa_type=BigInteger)
    output_tokens: int = Field(sa_type=BigInteger)
    cost_usd: float


class UsageMark(Row, table=True):
    """The number of the last call that a process has charged, for each kind of its transactions."""

    __tablename__ = "spend_marks"

    owner: str = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    heard: int = Field(sa_type=BigInteger)
    at_ms: int = Field(sa_type=BigInteger)


class Outage(Row, table=True):
    """Why an evaluator's calls are stopped. `misconfigured`: no retry can help before it is fixed.

    Times are the store's: `since_ms` when it began, `told_ms` when it was last reported, `until_ms` when it will be
    probed again.
    """

    __tablename__ = "troubles"

    evaluator: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    reason: str
    message: str = Field(sa_type=Text)
    misconfigured: bool
    since_ms: int = Field(sa_type=BigInteger)
    told_ms: int = Field(sa_type=BigInteger)
    until_ms: int = Field(sa_type=BigInteger)

    def is_current(self, now_ms: int) -> bool:
        """Whether this is so now, as far as is known; a report of the future is from before the clock went back."""
        return self.told_ms - CLOCKS_APART_MS <= now_ms < self.until_ms


class Process(Row, table=True):
    """A process that calls evaluators: `id` is its name in claims, `host` and `pid` are for people."""

    __tablename__ = "processes"

    id: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    kind: str
    host: str
    pid: int = Field(sa_type=BigInteger)
    started_ms: int = Field(sa_type=BigInteger)
    seen_ms: int = Field(sa_type=BigInteger)

    @property
    def shown(self) -> str:
        """The process as people look for it."""
        return f"{self.kind} on {self.host} (process {self.pid})"


class Credential(Row, table=True):
    """A client's token and its rights, in the order of their declaration; `scope` None means all scopes.

    `digest` is the SHA-256 of the token, in hex. A revoked one stays, so that its id does.
    """

    __tablename__ = "credentials"

    id: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    name: str
    digest: str
    rights: tuple[str, ...] = Field(sa_type=Words)
    scope: str | None = None
    created_ms: int = Field(sa_type=BigInteger)
    revoked_ms: int | None = Field(default=None, sa_type=BigInteger)


class JobKey(Row, table=True):
    """The job that a request with an `Idempotency-Key` made or joined, and what the request was."""

    __tablename__ = "job_keys"
    __table_args__ = (Index("job_keys_at", "at_ms"),)

    credential: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    key: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    job_id: str
    collection: str
    scope: str
    mode: str
    filter: str | None = Field(default=None, sa_type=Text)
    at_ms: int = Field(sa_type=BigInteger)


def table(model: type[Row]) -> Table:
    """Return the Core table of a model."""
    return cast("Table", model.__table__)  # type: ignore[attr-defined]


STORE = table(StoreIdentity)
DEFINITIONS = table(ActiveDefinition)
POSITIONS = table(PartitionPosition)
TOPICS = table(Topic)
OUTCOMES = table(EventOutcome)
BODIES = table(DocumentBody)
DOCUMENTS = table(StoredDocument)
MEMO = table(CachedAnswer)
JOBS = table(ReindexJob)
JOB_ITEMS = table(ReindexItem)
DEAD_LETTERS = table(StoredLetter)
PUBLICATIONS = table(Publication)
SET_ASIDE = table(UnsentRecord)
TALLIES = table(Counter)
SPEND = table(UsageDay)
SPEND_MARKS = table(UsageMark)
TROUBLES = table(Outage)
PROCESSES = table(Process)
CREDENTIALS = table(Credential)
JOB_KEYS = table(JobKey)
