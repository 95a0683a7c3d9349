"""What calls used up, and which evaluators do not answer.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

BYTE_ORDER = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "spend",
        sa.Column("day", BYTE_ORDER, nullable=False),
        sa.Column("evaluator", BYTE_ORDER, nullable=False),
        sa.Column("collection", BYTE_ORDER, nullable=False),
        sa.Column("model", BYTE_ORDER, nullable=False),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.Column("unpriced_calls", sa.BigInteger(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("day", "evaluator", "collection", "model"),
    )
    op.create_table(
        "spend_marks",
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("heard", sa.BigInteger(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "kind"),
    )
    op.create_table(
        "troubles",
        sa.Column("evaluator", BYTE_ORDER, nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("misconfigured", sa.Boolean(), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.Column("told_ms", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("evaluator"),
    )


def downgrade() -> None:
    for table in ("spend", "spend_marks", "troubles"):
        op.drop_table(table)
