"""The evaluator that needs no key and no network: a small embedding model."""
