"""A view: DuckDB tables of one collection, kept current by changes and searched."""
