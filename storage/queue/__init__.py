"""The work queue: documents that wait for an answer, claims on them, and what came of each claim."""
