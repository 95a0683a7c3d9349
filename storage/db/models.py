"""The rows of the store of record; they never leave `storage/`.

Times are milliseconds since 1970 (UTC) by the store's clock, in columns that end with `_ms`. JSON is text, written by
`storage.db.json_rows` alone, so that both databases hold the same bytes. A document's body lives in its own table: the
row that is claimed, answered and numbered again and again stays small.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

METADATA = MetaData()
BYTE_ORDER = String().with_variant(String(collation="C"), "postgresql")
"""Text that is compared byte by byte in both databases, so that keyset pages and lock order agree."""


def _column(
    name: str,
    type_: Any,
    *,
    key: bool = False,
    null: bool = False,
    default: int | None = None,
    server: int | str | None = None,
) -> Column[Any]:
    """Return a column; `default` is what our inserts leave out, `server` what the database itself fills in."""
    filled = None if server is None else text(str(server))
    return Column(name, type_, primary_key=key, nullable=null, default=default, server_default=filled)


STORE = Table(
    "store",
    METADATA,
    _column("id", Integer, key=True),
    _column("store_id", String),
    _column("definitions_generation", BigInteger, server=0),
    _column("feed_seq", BigInteger, server=0),
    _column("credentials_generation", BigInteger, server=0),
    _column("definitions_mark", String, server="''"),
    _column("credentials_mark", String, server="''"),
)
"""One row: who this store is, and the generations (`storage.generations`) of its definitions and its credentials."""

DEFINITIONS = Table(
    "definitions",
    METADATA,
    _column("name", String, key=True),
    _column("fingerprint", String),
    _column("definition", Text),
    _column("activated_ms", BigInteger),
)
"""The active definition of a collection."""

POSITIONS = Table(
    "positions",
    METADATA,
    _column("topic", String, key=True),
    _column("incarnation", Integer, key=True),
    _column("partition", Integer, key=True),
    _column("next_offset", BigInteger),
    _column("last_timestamp_ms", BigInteger, null=True),
    _column("last_hash", String, null=True),
    _column("created_ms", BigInteger),
)
"""How far a partition of the documents topic has been applied: the position of record."""

TOPICS = Table(
    "topics",
    METADATA,
    _column("topic", String, key=True),
    _column("partitions", Integer),
)
"""The partition count that a topic had when it was first used."""

OUTCOMES = Table(
    "outcomes",
    METADATA,
    _column("source", String, key=True),
    _column("event_id", String, key=True),
    _column("digest", String, key=True),
    _column("outcome", String),
    _column("reason", String, null=True),
    _column("message", Text, null=True),
    _column("uri", String, null=True),
    _column("version", BigInteger, null=True),
    _column("revision", BigInteger, null=True),
    _column("indexed_as", BigInteger, null=True),
    _column("at_ms", BigInteger),
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
"""What became of an event: one row for each (id, digest)."""

BODIES = Table(
    "bodies",
    METADATA,
    _column("uri", BYTE_ORDER, key=True),
    _column("body", Text),
)
"""A document's text."""

DOCUMENTS = Table(
    "documents",
    METADATA,
    _column("uri", BYTE_ORDER, key=True),
    _column("collection", String),
    _column("scope", String),
    _column("key", String),
    _column("version", BigInteger),
    _column("revision", BigInteger),
    _column("indexed_as", BigInteger),
    _column("status", String),
    _column("reason", String, null=True),
    _column("reason_message", Text, null=True),
    _column("body_hash", String, null=True),
    _column("state", Text, null=True),
    _column("facets", Text, null=True),
    _column("evaluation", Text, null=True),
    _column("fingerprint", String, null=True),
    _column("written_ms", BigInteger),
    _column("cleared_ms", BigInteger),
    _column("classified_ms", BigInteger, null=True),
    _column("event_source", String),
    _column("event_id", String),
    _column("traceparent", String, null=True),
    _column("log_topic", String),
    _column("log_incarnation", Integer),
    _column("log_partition", Integer),
    _column("log_offset", BigInteger),
    _column("feed_seq", BigInteger, null=True),
    _column("lane", Integer, default=0),
    _column("due_ms", BigInteger, null=True),
    _column("attempt", Integer, default=0),
    _column("owner", String, null=True),
    _column("lease_until_ms", BigInteger, null=True),
    _column("claimed_ms", BigInteger, null=True),
    _column("claimed_fingerprint", String, null=True),
    _column("calls_made", Integer, default=0),
    _column("retries", Integer, default=0),
    _column("crashes", Integer, default=0),
    _column("tries", Integer, default=0),
    _column("retry_wait_ms", BigInteger, server=0),
    _column("memo_after_ms", BigInteger, null=True),
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
"""A document without its text, and its place in the queue and the feed.

`feed_seq` null: changed since it was last numbered. `log_*` is the (original) position of the last applied event.
Queue: claimable while `status` is pending, `due_ms` has passed and no lease runs. `tries` and `retry_wait_ms` are
what the retry bounds look at; `calls_made`, `retries` and `crashes` are the account of calls for `indexed_as`.
`memo_after_ms`: answers remembered before that time are not taken (a forced reindex).
"""

MEMO = Table(
    "memo",
    METADATA,
    _column("scope", String, key=True),
    _column("body_hash", String, key=True),
    _column("fingerprint", String, key=True),
    _column("facets", Text),
    _column("evaluation", Text),
    _column("created_ms", BigInteger),
    Index("memo_created", "created_ms"),
)
"""A valid answer remembered by what it was about."""

JOBS = Table(
    "jobs",
    METADATA,
    _column("id", String, key=True),
    _column("collection", String),
    _column("scope", String),
    _column("mode", String),
    _column("filter", Text, null=True),
    _column("state", String),
    _column("cancel_requested", Boolean, default=False),
    _column("filled_to", String, null=True),
    _column("total", BigInteger, server=0),
    _column("owner", String, null=True),
    _column("lease_until_ms", BigInteger, null=True),
    _column("created_ms", BigInteger),
    _column("finished_ms", BigInteger, null=True),
    Index(
        "jobs_one_active",
        "collection",
        "scope",
        unique=True,
        sqlite_where=text("state IN ('queued', 'running')"),
        postgresql_where=text("state IN ('queued', 'running')"),
    ),
)
"""A reindex job; `filled_to` is the last uri looked at while its items are written, null when all are."""

JOB_ITEMS = Table(
    "job_items",
    METADATA,
    _column("job_id", String, key=True),
    _column("uri", BYTE_ORDER, key=True),
    _column("state", String),
    _column("indexed_as", BigInteger, null=True),
    _column("adopted", Boolean, default=False),
    Index("job_items_state", "job_id", "state", "uri"),
    Index(
        "job_items_open",
        "uri",
        sqlite_where=text("state IN ('waiting', 'asked')"),
        postgresql_where=text("state IN ('waiting', 'asked')"),
    ),
)
"""One document of a job; `indexed_as` is the identity that its turn gave it or took over, null before its turn."""

DEAD_LETTERS = Table(
    "dead_letters",
    METADATA,
    _column("id", Integer, key=True),
    _column("topic", String),
    _column("incarnation", Integer),
    _column("partition", Integer),
    _column("offset", BigInteger),
    _column("uri", String, null=True),
    _column("stage", String),
    _column("reason", String),
    _column("message", Text),
    _column("attempts", Integer),
    _column("key", LargeBinary, null=True),
    _column("value", LargeBinary, null=True),
    _column("headers", Text),
    _column("timestamp_ms", BigInteger, null=True),
    _column("state", String),
    _column("created_ms", BigInteger),
    _column("sent_ms", BigInteger, null=True),
    _column("handled_ms", BigInteger, null=True),
    _column("handled_by", String, null=True),
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
"""An event that could not be applied, byte for byte; one row for each original position."""

PUBLICATIONS = Table(
    "publications",
    METADATA,
    _column("topic", String, key=True),
    _column("feed_position", BigInteger, server=0),
    _column("owner", String, null=True),
    _column("lease_until_ms", BigInteger, null=True),
)
"""How far the feed has been sent to a topic, and who sends it."""

SET_ASIDE = Table(
    "set_aside",
    METADATA,
    _column("topic", String, key=True),
    _column("uri", BYTE_ORDER, key=True),
    _column("message", Text),
    _column("attempts", Integer),
    _column("due_ms", BigInteger),
)
"""A feed row that could not be sent; it is retried alone."""

TALLIES = Table(
    "tallies",
    METADATA,
    _column("name", String, key=True),
    _column("value", BigInteger),
)
"""A count that outlives processes, such as answers discarded because they were stale."""

SPEND = Table(
    "spend",
    METADATA,
    _column("day", BYTE_ORDER, key=True),
    _column("evaluator", BYTE_ORDER, key=True),
    _column("collection", BYTE_ORDER, key=True),
    _column("model", BYTE_ORDER, key=True),
    _column("calls", BigInteger),
    _column("unpriced_calls", BigInteger),
    _column("input_tokens", BigInteger),
    _column("output_tokens", BigInteger),
    _column("cost_usd", Float),
)
"""What the calls of a day (UTC, `2026-11-30`) used up; `cost_usd` leaves the `unpriced_calls` out."""

SPEND_MARKS = Table(
    "spend_marks",
    METADATA,
    _column("owner", String, key=True),
    _column("kind", String, key=True),
    _column("heard", BigInteger),
    _column("at_ms", BigInteger),
)
"""The number of the last call that a process has charged, for each kind of its transactions."""

TROUBLES = Table(
    "troubles",
    METADATA,
    _column("evaluator", BYTE_ORDER, key=True),
    _column("reason", String),
    _column("message", Text),
    _column("misconfigured", Boolean),
    _column("since_ms", BigInteger),
    _column("told_ms", BigInteger),
    _column("until_ms", BigInteger),
)
"""An evaluator that does not answer, as a process last reported it."""

PROCESSES = Table(
    "processes",
    METADATA,
    _column("id", BYTE_ORDER, key=True),
    _column("kind", String),
    _column("host", String),
    _column("pid", BigInteger),
    _column("started_ms", BigInteger),
    _column("seen_ms", BigInteger),
)
"""A process that asks evaluators: `id` is its name in claims, `host` and `pid` are for people."""

CREDENTIALS = Table(
    "credentials",
    METADATA,
    _column("id", BYTE_ORDER, key=True),
    _column("name", String),
    _column("digest", String),
    _column("rights", String),
    _column("scope", String, null=True),
    _column("created_ms", BigInteger),
    _column("revoked_ms", BigInteger, null=True),
)
"""Who may ask over HTTP; `digest` is the SHA-256 of the token, in hex. A revoked one stays, so that its id does."""

JOB_KEYS = Table(
    "job_keys",
    METADATA,
    _column("credential", BYTE_ORDER, key=True),
    _column("key", BYTE_ORDER, key=True),
    _column("job_id", String),
    _column("collection", String),
    _column("scope", String),
    _column("mode", String),
    _column("filter", Text, null=True),
    _column("at_ms", BigInteger),
    Index("job_keys_at", "at_ms"),
)
"""The job that a request with an `Idempotency-Key` made or joined, and what the request was."""
