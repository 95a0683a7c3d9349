"""What is known: the store of record, on SQLite and PostgreSQL from the same code."""
