"""The DuckDB table of a collection: its columns, its statements, and records as rows."""
