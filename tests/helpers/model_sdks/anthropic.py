"""As much of Anthropic's library as the documented loop uses: the model calls one tool, then says what it was told."""

from types import SimpleNamespace
from typing import Any


class Anthropic:
    """The client."""

    def __init__(self) -> None:
        self.messages = SimpleNamespace(create=_create)


def _create(*, model: str, max_tokens: int, messages: list[Any], tools: list[dict[str, Any]]) -> Any:
    assert model
    assert max_tokens
    assert all(set(tool) == {"name", "description", "input_schema"} for tool in tools)
    last = messages[-1]
    if isinstance(last["content"], str):
        use = SimpleNamespace(type="tool_use", id="use-1", name="search_tickets", input={"topic": "biling"})
        return SimpleNamespace(stop_reason="tool_use", content=[use])
    [result] = last["content"]
    assert (result["type"], result["tool_use_id"], result["is_error"]) == ("tool_result", "use-1", True)
    text = SimpleNamespace(type="text", text=f"anthropic was told: {result['content']}")
    return SimpleNamespace(stop_reason="end_turn", content=[text])
