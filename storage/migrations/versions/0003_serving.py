"""Who may ask over HTTP, and which requests made which jobs.

Revision ID: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

BYTE_ORDER = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "credentials",
        sa.Column("id", BYTE_ORDER, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("rights", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("revoked_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "job_keys",
        sa.Column("credential", BYTE_ORDER, nullable=False),
        sa.Column("key", BYTE_ORDER, nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("collection", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("mode", sa.String(), nullable=False),
        sa.Column("filter", sa.Text(), nullable=True),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("credential", "key"),
    )
    op.create_index("job_keys_at", "job_keys", ["at_ms"])
    op.add_column(
        "store", sa.Column("credentials_generation", sa.BigInteger(), nullable=False, server_default=sa.text("0"))
    )


def downgrade() -> None:
    op.drop_column("store", "credentials_generation")
    op.drop_index("job_keys_at", "job_keys")
    for table in ("job_keys", "credentials"):
        op.drop_table(table)
