"""Vectors of texts: those of queries, while a search waits for them."""
