"""Embedders: text to vectors, from the model of this package or a hosted one."""
