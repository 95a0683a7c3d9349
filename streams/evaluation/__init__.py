"""Measuring evaluators on labelled texts, and reporting the figures."""
