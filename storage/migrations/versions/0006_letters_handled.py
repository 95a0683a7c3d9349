"""Who handled a dead letter and when; an index of the letters that wait, for their list and their numbers.

Revision ID: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

WAITING = "state IN ('open', 'redriving')"


def upgrade() -> None:
    op.add_column("dead_letters", sa.Column("handled_ms", sa.BigInteger(), nullable=True))
    op.add_column("dead_letters", sa.Column("handled_by", sa.String(), nullable=True))
    op.create_index(
        "dead_letters_waiting",
        "dead_letters",
        ["id", "reason"],
        unique=False,
        sqlite_where=sa.text(WAITING),
        postgresql_where=sa.text(WAITING),
    )


def downgrade() -> None:
    op.drop_index("dead_letters_waiting", "dead_letters")
    op.drop_column("dead_letters", "handled_by")
    op.drop_column("dead_letters", "handled_ms")
