"""The steps from one schema of the store to the next, run by `storage.db.opening` through alembic."""
