"""Alembic's entry: runs the steps on the connection and in the transaction that `storage.db.opening` hands over."""

from alembic import context

from facetline.storage.db import models

context.configure(connection=context.config.attributes["connection"], target_metadata=models.METADATA)
context.run_migrations()
