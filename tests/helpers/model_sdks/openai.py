"""As much of OpenAI's library as the documented loop uses: the model calls one tool, then says what it was told."""

import json
from types import SimpleNamespace
from typing import Any

ASKED = {"topic": "billing", "status": "open", "min_confidence": None, "limit": 3}


class OpenAI:
    """The client."""

    def __init__(self) -> None:
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=_create))


def _create(*, model: str, messages: list[Any], tools: list[dict[str, Any]]) -> Any:
    assert model
    named = {tool["function"]["name"]: tool["function"] for tool in tools}
    assert named["search_tickets"]["strict"] is True
    last = messages[-1]
    if last["role"] == "user":
        function = SimpleNamespace(name="search_tickets", arguments=json.dumps(ASKED))
        return _said(None, [SimpleNamespace(id="call-1", type="function", function=function)])
    assert (last["role"], last["tool_call_id"]) == ("tool", "call-1")
    return _said(f"openai was told: {last['content']}", None)


def _said(content: str | None, calls: list[Any] | None) -> Any:
    message = SimpleNamespace(role="assistant", content=content, tool_calls=calls)
    return SimpleNamespace(choices=[SimpleNamespace(message=message)])
