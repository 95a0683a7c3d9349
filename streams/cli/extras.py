"""Names the optional dependencies that a command lacks."""

EXTRA_OF = {
    **dict.fromkeys(("aiokafka", "cramjam", "faust", "mode"), "kafka"),
    **dict.fromkeys(("fastapi", "jinja2", "prometheus_client", "starlette", "uvicorn"), "serve"),
    **dict.fromkeys(("mcp", "mcp_types"), "agents"),
}
"""The extra of pyproject.toml that brings a module."""


def advice(error: ModuleNotFoundError) -> str | None:
    """Return what to install for an import that failed; None for one that no extra brings."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(module)
    if extra is None:
        return None
    return f"this command needs {module}, which is not installed: pip install 'facetline[{extra}]'"
