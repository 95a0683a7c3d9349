"""Random marks beside the generations of credentials and definitions.

Revision ID: 0004
"""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

MARKS = ("definitions_mark", "credentials_mark")


def upgrade() -> None:
    for name in MARKS:
        op.add_column("store", sa.Column(name, sa.String(), nullable=False, server_default=sa.text("''")))
    store = sa.table("store", *(sa.column(name, sa.String) for name in MARKS))
    op.execute(sa.update(store).values({name: secrets.token_hex(8) for name in MARKS}))


def downgrade() -> None:
    for name in MARKS:
        op.drop_column("store", name)
