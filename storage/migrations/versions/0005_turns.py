"""Claims that take turns between scopes: the documents that are due, by scope.

Revision ID: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

FREE = sa.text("status = 'pending' AND owner IS NULL")


def upgrade() -> None:
    op.create_index(
        "documents_turns",
        "documents",
        ["collection", "lane", "scope", "due_ms", "uri"],
        sqlite_where=FREE,
        postgresql_where=FREE,
    )


def downgrade() -> None:
    op.drop_index("documents_turns", "documents")
