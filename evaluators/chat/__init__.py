"""Chat models as evaluators: the prompt, the request and the reading of the reply."""
