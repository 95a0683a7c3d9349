"""The database layer: SQLite and PostgreSQL behind one interface, opening, and the tables."""
