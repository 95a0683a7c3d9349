"""Applying the log: events become documents, outcomes and dead letters in one transaction."""
