"""Serving process: the backend of the HTTP API, the page and the agents, with access rights, over a pipeline."""
