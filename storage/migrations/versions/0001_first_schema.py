"""The first schema.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BYTE_ORDER = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "bodies",
        sa.Column("uri", BYTE_ORDER, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("uri"),
    )
    op.create_table(
        "dead_letters",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("incarnation", sa.Integer(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("uri", sa.String(), nullable=True),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=True),
        sa.Column("value", sa.LargeBinary(), nullable=True),
        sa.Column("headers", sa.Text(), nullable=False),
        sa.Column("timestamp_ms", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("sent_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "dead_letters_position", "dead_letters", ["topic", "incarnation", "partition", "offset"], unique=True
    )
    op.create_index(
        "dead_letters_unsent",
        "dead_letters",
        ["id"],
        unique=False,
        sqlite_where=sa.text("sent_ms IS NULL"),
        postgresql_where=sa.text("sent_ms IS NULL"),
    )
    op.create_table(
        "definitions",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("activated_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "documents",
        sa.Column("uri", BYTE_ORDER, nullable=False),
        sa.Column("collection", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("indexed_as", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("reason_message", sa.Text(), nullable=True),
        sa.Column("body_hash", sa.String(), nullable=True),
        sa.Column("state", sa.Text(), nullable=True),
        sa.Column("facets", sa.Text(), nullable=True),
        sa.Column("evaluation", sa.Text(), nullable=True),
        sa.Column("fingerprint", sa.String(), nullable=True),
        sa.Column("written_ms", sa.BigInteger(), nullable=False),
        sa.Column("cleared_ms", sa.BigInteger(), nullable=False),
        sa.Column("classified_ms", sa.BigInteger(), nullable=True),
        sa.Column("event_source", sa.String(), nullable=False),
        sa.Column("event_id", sa.String(), nullable=False),
        sa.Column("traceparent", sa.String(), nullable=True),
        sa.Column("log_topic", sa.String(), nullable=False),
        sa.Column("log_incarnation", sa.Integer(), nullable=False),
        sa.Column("log_partition", sa.Integer(), nullable=False),
        sa.Column("log_offset", sa.BigInteger(), nullable=False),
        sa.Column("feed_seq", sa.BigInteger(), nullable=True),
        sa.Column("lane", sa.Integer(), nullable=False),
        sa.Column("due_ms", sa.BigInteger(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("lease_until_ms", sa.BigInteger(), nullable=True),
        sa.Column("claimed_ms", sa.BigInteger(), nullable=True),
        sa.Column("claimed_fingerprint", sa.String(), nullable=True),
        sa.Column("calls_made", sa.Integer(), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("crashes", sa.Integer(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("retry_wait_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("memo_after_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("uri"),
    )
    op.create_index("documents_collection", "documents", ["collection", "scope", "uri"], unique=False)
    op.create_index(
        "documents_due",
        "documents",
        ["collection", "lane", "due_ms", "uri"],
        unique=False,
        sqlite_where=sa.text("status = 'pending' AND owner IS NULL"),
        postgresql_where=sa.text("status = 'pending' AND owner IS NULL"),
    )
    op.create_index(
        "documents_feed",
        "documents",
        ["feed_seq"],
        unique=True,
        sqlite_where=sa.text("feed_seq IS NOT NULL"),
        postgresql_where=sa.text("feed_seq IS NOT NULL"),
    )
    op.create_index(
        "documents_leased",
        "documents",
        ["lease_until_ms"],
        unique=False,
        sqlite_where=sa.text("owner IS NOT NULL"),
        postgresql_where=sa.text("owner IS NOT NULL"),
    )
    op.create_index(
        "documents_unnumbered",
        "documents",
        ["uri"],
        unique=False,
        sqlite_where=sa.text("feed_seq IS NULL"),
        postgresql_where=sa.text("feed_seq IS NULL"),
    )
    op.create_table(
        "job_items",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("uri", BYTE_ORDER, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("indexed_as", sa.BigInteger(), nullable=True),
        sa.Column("adopted", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "uri"),
    )
    op.create_index(
        "job_items_open",
        "job_items",
        ["uri"],
        unique=False,
        sqlite_where=sa.text("state IN ('waiting', 'asked')"),
        postgresql_where=sa.text("state IN ('waiting', 'asked')"),
    )
    op.create_index("job_items_state", "job_items", ["job_id", "state", "uri"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("collection", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("mode", sa.String(), nullable=False),
        sa.Column("filter", sa.Text(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("filled_to", sa.String(), nullable=True),
        sa.Column("total", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("lease_until_ms", sa.BigInteger(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("finished_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "jobs_one_active",
        "jobs",
        ["collection", "scope"],
        unique=True,
        sqlite_where=sa.text("state IN ('queued', 'running')"),
        postgresql_where=sa.text("state IN ('queued', 'running')"),
    )
    op.create_table(
        "memo",
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("body_hash", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("facets", sa.Text(), nullable=False),
        sa.Column("evaluation", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "body_hash", "fingerprint"),
    )
    op.create_index("memo_created", "memo", ["created_ms"], unique=False)
    op.create_table(
        "outcomes",
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("event_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("uri", sa.String(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=True),
        sa.Column("indexed_as", sa.BigInteger(), nullable=True),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("source", "event_id", "digest"),
    )
    op.create_index("outcomes_at", "outcomes", ["at_ms"], unique=False)
    op.create_index(
        "outcomes_settled",
        "outcomes",
        ["source", "event_id"],
        unique=True,
        sqlite_where=sa.text("outcome <> 'rejected'"),
        postgresql_where=sa.text("outcome <> 'rejected'"),
    )
    op.create_table(
        "positions",
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("incarnation", sa.Integer(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=False),
        sa.Column("last_timestamp_ms", sa.BigInteger(), nullable=True),
        sa.Column("last_hash", sa.String(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("topic", "incarnation", "partition"),
    )
    op.create_table(
        "publications",
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("feed_position", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("lease_until_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("topic"),
    )
    op.create_table(
        "set_aside",
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("uri", BYTE_ORDER, nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("topic", "uri"),
    )
    op.create_table(
        "store",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("store_id", sa.String(), nullable=False),
        sa.Column("definitions_generation", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("feed_seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "tallies",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "topics",
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("partitions", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("topic"),
    )
    # ### end Alembic commands ###


def downgrade() -> None:
    for table in (
        "bodies",
        "dead_letters",
        "definitions",
        "documents",
        "job_items",
        "jobs",
        "memo",
        "outcomes",
        "positions",
        "publications",
        "set_aside",
        "store",
        "tallies",
        "topics",
    ):
        op.drop_table(table)
