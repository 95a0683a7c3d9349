"""Alembic's entry: runs the steps on the connection, and inside the transaction, that `storage.opening` hands over."""

from alembic import context
from sqlmodel import SQLModel

from storage import tables

assert tables.StoreRow.metadata is SQLModel.metadata  # noqa: S101 (the import fills the metadata that we compare with)

context.configure(connection=context.config.attributes["connection"], target_metadata=SQLModel.metadata)
context.run_migrations()
