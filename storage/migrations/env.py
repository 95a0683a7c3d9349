"""Alembic's entry: runs the steps on the connection, and inside the transaction, that `storage.opening` hands over."""

from alembic import context

from storage import tables

context.configure(connection=context.config.attributes["connection"], target_metadata=tables.METADATA)
context.run_migrations()
