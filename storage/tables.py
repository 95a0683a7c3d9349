"""The rows of the store of record; they never leave `storage/`.

Times are milliseconds since 1970 (UTC) by the store's clock, in columns that end with `_ms`. JSON is text, written by
`storage.serial` alone, so that both databases hold the same bytes. A document's body lives in a table of its own: the
row that is claimed, answered and numbered again and again stays small.
"""

from sqlalchemy import BigInteger, Column, Index, LargeBinary, String, Text, text
from sqlmodel import Field, SQLModel

BYTE_ORDER = String().with_variant(String(collation="C"), "postgresql")
"""Text that is compared byte by byte in both databases, so that keyset pages and lock order agree."""


def _big(*, nullable: bool = False, default: int | None = None) -> Column[int]:
    server = None if default is None else text(str(default))
    return Column(BigInteger, nullable=nullable, server_default=server)


class StoreRow(SQLModel, table=True):
    """One row: who this store is, and the generations of its active definitions and its credentials."""

    __tablename__ = "store"
    id: int = Field(primary_key=True)
    store_id: str
    definitions_generation: int = Field(sa_column=_big(default=0))
    feed_seq: int = Field(sa_column=_big(default=0))
    credentials_generation: int = Field(sa_column=_big(default=0))


class DefinitionRow(SQLModel, table=True):
    """The active definition of a collection."""

    __tablename__ = "definitions"
    name: str = Field(primary_key=True)
    fingerprint: str
    definition: str = Field(sa_type=Text)
    activated_ms: int = Field(sa_column=_big())


class PositionRow(SQLModel, table=True):
    """How far a partition of the documents topic has been applied: the position of record."""

    __tablename__ = "positions"
    topic: str = Field(primary_key=True)
    incarnation: int = Field(primary_key=True)
    partition: int = Field(primary_key=True)
    next_offset: int = Field(sa_column=_big())
    last_timestamp_ms: int | None = Field(default=None, sa_column=_big(nullable=True))
    last_hash: str | None = None
    created_ms: int = Field(sa_column=_big())


class TopicRow(SQLModel, table=True):
    """The partition count that a topic had when it was first used."""

    __tablename__ = "topics"
    topic: str = Field(primary_key=True)
    partitions: int


class OutcomeRow(SQLModel, table=True):
    """What became of an event: one row for each (id, digest)."""

    __tablename__ = "outcomes"
    __table_args__ = (
        Index("outcomes_at", "at_ms"),
        # One event settles an id, whoever else applies another under it at the same moment.
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
    version: int | None = Field(default=None, sa_column=_big(nullable=True))
    revision: int | None = Field(default=None, sa_column=_big(nullable=True))
    indexed_as: int | None = Field(default=None, sa_column=_big(nullable=True))
    at_ms: int = Field(sa_column=_big())


class BodyRow(SQLModel, table=True):
    """A document's text."""

    __tablename__ = "bodies"
    uri: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    body: str = Field(sa_type=Text)


class DocumentRow(SQLModel, table=True):
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
    version: int = Field(sa_column=_big())
    revision: int = Field(sa_column=_big())
    indexed_as: int = Field(sa_column=_big())
    status: str
    reason: str | None = None
    reason_message: str | None = Field(default=None, sa_type=Text)
    body_hash: str | None = None
    state: str | None = Field(default=None, sa_type=Text)
    facets: str | None = Field(default=None, sa_type=Text)
    evaluation: str | None = Field(default=None, sa_type=Text)
    fingerprint: str | None = None
    written_ms: int = Field(sa_column=_big())
    cleared_ms: int = Field(sa_column=_big())
    classified_ms: int | None = Field(default=None, sa_column=_big(nullable=True))
    event_source: str
    event_id: str
    traceparent: str | None = None
    log_topic: str
    log_incarnation: int
    log_partition: int
    log_offset: int = Field(sa_column=_big())
    feed_seq: int | None = Field(default=None, sa_column=_big(nullable=True))
    lane: int = Field(default=0)
    due_ms: int | None = Field(default=None, sa_column=_big(nullable=True))
    attempt: int = Field(default=0)
    owner: str | None = None
    lease_until_ms: int | None = Field(default=None, sa_column=_big(nullable=True))
    claimed_ms: int | None = Field(default=None, sa_column=_big(nullable=True))
    claimed_fingerprint: str | None = None
    calls_made: int = Field(default=0)
    retries: int = Field(default=0)
    crashes: int = Field(default=0)
    tries: int = Field(default=0)
    retry_wait_ms: int = Field(default=0, sa_column=_big(default=0))
    memo_after_ms: int | None = Field(default=None, sa_column=_big(nullable=True))


class MemoRow(SQLModel, table=True):
    """A valid answer remembered by what it was about."""

    __tablename__ = "memo"
    __table_args__ = (Index("memo_created", "created_ms"),)
    scope: str = Field(primary_key=True)
    body_hash: str = Field(primary_key=True)
    fingerprint: str = Field(primary_key=True)
    facets: str = Field(sa_type=Text)
    evaluation: str = Field(sa_type=Text)
    created_ms: int = Field(sa_column=_big())


class JobRow(SQLModel, table=True):
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
    total: int = Field(default=0, sa_column=_big(default=0))
    owner: str | None = None
    lease_until_ms: int | None = Field(default=None, sa_column=_big(nullable=True))
    created_ms: int = Field(sa_column=_big())
    finished_ms: int | None = Field(default=None, sa_column=_big(nullable=True))


class JobItemRow(SQLModel, table=True):
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
    indexed_as: int | None = Field(default=None, sa_column=_big(nullable=True))
    adopted: bool = False


class DeadLetterRow(SQLModel, table=True):
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
    )
    id: int | None = Field(default=None, primary_key=True)
    topic: str
    incarnation: int
    partition: int
    offset: int = Field(sa_column=_big())
    uri: str | None = None
    stage: str
    reason: str
    message: str = Field(sa_type=Text)
    attempts: int
    key: bytes | None = Field(default=None, sa_type=LargeBinary)
    value: bytes | None = Field(default=None, sa_type=LargeBinary)
    headers: str = Field(sa_type=Text)
    timestamp_ms: int | None = Field(default=None, sa_column=_big(nullable=True))
    state: str
    created_ms: int = Field(sa_column=_big())
    sent_ms: int | None = Field(default=None, sa_column=_big(nullable=True))


class PublicationRow(SQLModel, table=True):
    """How far the feed has been sent to a topic, and who sends it."""

    __tablename__ = "publications"
    topic: str = Field(primary_key=True)
    feed_position: int = Field(default=0, sa_column=_big(default=0))
    owner: str | None = None
    lease_until_ms: int | None = Field(default=None, sa_column=_big(nullable=True))


class SetAsideRow(SQLModel, table=True):
    """A feed row that could not be sent; it is retried alone."""

    __tablename__ = "set_aside"
    topic: str = Field(primary_key=True)
    uri: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    message: str = Field(sa_type=Text)
    attempts: int
    due_ms: int = Field(sa_column=_big())


class TallyRow(SQLModel, table=True):
    """A count that outlives processes, such as answers discarded because they were stale."""

    __tablename__ = "tallies"
    name: str = Field(primary_key=True)
    value: int = Field(sa_column=_big())


class SpendRow(SQLModel, table=True):
    """What the calls of a day (UTC, `2026-11-30`) used up; `cost_usd` leaves the `unpriced_calls` out."""

    __tablename__ = "spend"
    day: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    evaluator: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    collection: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    model: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    calls: int = Field(sa_column=_big())
    unpriced_calls: int = Field(sa_column=_big())
    input_tokens: int = Field(sa_column=_big())
    output_tokens: int = Field(sa_column=_big())
    cost_usd: float


class SpendMarkRow(SQLModel, table=True):
    """The number of the last call that a process has charged, for each kind of its transactions."""

    __tablename__ = "spend_marks"
    owner: str = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    heard: int = Field(sa_column=_big())
    at_ms: int = Field(sa_column=_big())


class TroubleRow(SQLModel, table=True):
    """An evaluator that does not answer, as a process last told it."""

    __tablename__ = "troubles"
    evaluator: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    reason: str
    message: str = Field(sa_type=Text)
    misconfigured: bool
    since_ms: int = Field(sa_column=_big())
    told_ms: int = Field(sa_column=_big())
    until_ms: int = Field(sa_column=_big())


class CredentialRow(SQLModel, table=True):
    """Who may ask over HTTP; `digest` is the SHA-256 of the token, in hex. A revoked one stays, so that its id does."""

    __tablename__ = "credentials"
    id: str = Field(primary_key=True, sa_type=BYTE_ORDER)
    name: str
    digest: str
    rights: str
    scope: str | None = None
    created_ms: int = Field(sa_column=_big())
    revoked_ms: int | None = Field(default=None, sa_column=_big(nullable=True))


class JobKeyRow(SQLModel, table=True):
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
    at_ms: int = Field(sa_column=_big())
