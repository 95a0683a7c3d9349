"""The serving node: what the HTTP API, the page and the agents ask, with rights, on top of a pipeline."""
