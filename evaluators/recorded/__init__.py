"""Answers from a file of recorded calls instead of a model."""
