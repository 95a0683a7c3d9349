"""Reindex jobs: asking for one, and working through its documents."""
