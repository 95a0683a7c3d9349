"""Tool replies: text, and structured content with the same information."""

from dataclasses import dataclass
from typing import Any

from facetline.facets import display, errors, public_messages
from facetline.facets.agents import rendering

ALLOWED_MAX = 100


@dataclass(frozen=True, slots=True)
class ToolReply:
    """The result of one call; with `is_error` the text says why the call was refused and what is allowed."""

    text: str
    content: dict[str, Any]
    is_error: bool = False


def refused(error: errors.PipelineError) -> ToolReply:
    """Return an error as a reply."""
    code = getattr(error, "code", None) or getattr(error, "reason", None) or type(error).__name__
    message = public_messages.message_of(error)
    content: dict[str, Any] = {"error": str(code), "message": message}
    allowed = getattr(error, "allowed", ())
    if allowed:
        content["allowed"] = display.deep(list(allowed)[:ALLOWED_MAX])
    again = " Retry later." if isinstance(error, errors.TransientError) else ""
    text = rendering.bounded(f"Error: {message}{again}", "request less")
    return ToolReply(text, {**content, "message": rendering.cut(message, rendering.RESULT_BYTES_MAX)}, is_error=True)
