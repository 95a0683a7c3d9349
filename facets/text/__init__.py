"""Text search as pure functions: words of a text, queries, scores, line patterns, globs and highlights."""
