"""Reindex jobs and their documents."""
