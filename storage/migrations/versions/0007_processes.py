"""The processes that ask evaluators, as they say themselves every few seconds.

Revision ID: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    key = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    op.create_table(
        "processes",
        sa.Column("id", key, primary_key=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("processes")
