"""The one way to litellm: requests, replies, errors, and where providers are reached."""
