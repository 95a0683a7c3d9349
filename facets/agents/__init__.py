"""Tools for language models and agent frameworks: MCP server, Python SDK, tool schemas and replies."""
