"""DuckDB views kept current from the feed, and what is read from them."""
