"""From a chat completion to the text that answers: the one reply in it, whole, or the reason why there is none.

Nothing is read out of a reply that was cut off, refused or filtered, however much it looks like an answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from facetline.evaluators.chat import logprobs as token_mass
from facetline.evaluators.chat.logprobs import Token, part_of
from facetline.evaluators.chat.prompt import TOOL_NAME
from facetline.evaluators.validation import shown
from facetline.facets.errors import EvaluationFailed, EvaluatorUnavailable, InvalidAnswer

FINISHED = frozenset({"stop", "tool_calls", "function_call"})
"""What a reply that came to its end says; litellm maps every provider's words to these."""

CUT_OFF = "length"
FILTERED = "content_filter"
ENDS = {
    "finished": frozenset(
        {
            *FINISHED,
            *("complete", "completed", "done", "end_turn", "eos", "eos_token", "stop_sequence"),
            *("tool_call", "tool_use"),
        }
    ),
    "cut_off": frozenset({CUT_OFF, "max_tokens", "max_output_tokens", "model_context_window_exceeded", "model_length"}),
    "filtered": frozenset(
        {
            *(FILTERED, "blocklist", "error_toxic", "guardrail_intervened", "prohibited_content", "recitation"),
            *("refusal", "safety", "sensitive", "spii"),
        }
    ),
    "broken": frozenset(
        {
            *("abort", "aborted", "cancelled", "error", "insufficient_system_resource", "network_error"),
            *("server_error", "timeout"),
        }
    ),
}
"""Providers' own words for how a reply ended, in lower case. litellm makes `stop` of those that it does not know."""

MORE_TOKENS = "If this happens to many documents, raise max_output_tokens or lower reasoning_effort."
EMPTY_TRIES_MAX = 2
"""An empty reply is paid for as any other, and mostly passes; a model that always gives one must not cost on and on."""


class CutOff(InvalidAnswer):
    """The reply reached its limit of tokens before its end; no part of it is read."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The text of a reply: `tokens` spell `text`, or are none."""

    text: str
    tokens: Sequence[Token] = ()


class Misplaced(InvalidAnswer):
    """The reply's content is empty, and its words stand somewhere else: `text`, at `where`."""

    def __init__(self, where: str, text: str) -> None:
        self.text = text
        super().__init__(
            f"The model's reply has no content; its words are in {where}: {shown(text.strip())}. "
            "Turn the server's parser of reasoning off, or set another output or reasoning_effort."
        )


def reply_of(response: Any, raw: Mapping[str, Any] | None = None) -> Reply:
    """Return the answering text of a completion; `raw` is the reply as it came, where that is known.

    Raises:
        EvaluationFailed: refused or filtered.
        CutOff: it ran out of tokens, or has no choice at all, which is how some providers say so.
        InvalidAnswer: it has several tool calls, another tool's call, or ended in a way that is not known.
        Misplaced: it has no content, but words in another place.
        EvaluatorUnavailable: it broke off with an error, or is empty, which passes when asked again.
    """
    choices = part_of(response, "choices")
    if not isinstance(choices, list | tuple) or not choices:
        raise CutOff(f"The model's reply has no choices: its tokens were used up before the answer. {MORE_TOKENS}")
    choice = choices[0]
    message = part_of(choice, "message")
    _check_end(part_of(choice, "finish_reason"), message)
    if raw is not None:
        _check_own_end(raw)
    called = part_of(message, "tool_calls")
    if called:
        return Reply(_tool_text(called))
    content = part_of(message, "content")
    if content is not None and not isinstance(content, str):
        raise InvalidAnswer(f"The model's reply is not text but {type(content).__name__}.")
    if content is None or not content.strip():
        _check_elsewhere(message, raw)
        raise EvaluatorUnavailable("The model's reply is empty.", reason="invalid_answer", tries_max=EMPTY_TRIES_MAX)
    own = _first(raw, "choices")
    logprobs = part_of(choice, "logprobs") or part_of(own, "logprobs")
    return Reply(content, token_mass.tokens_of(logprobs))


def _check_end(finish: Any, message: Any) -> None:
    refusal = part_of(message, "refusal")
    if refusal:
        raise EvaluationFailed("refused", f"The model refused: {shown(refusal)}.")
    if finish == FILTERED:
        raise EvaluationFailed("content_filter", "The provider's filter stopped the reply.")
    if finish == CUT_OFF:
        raise CutOff(f"The model's reply was cut off at its limit of tokens. {MORE_TOKENS}")
    if finish is not None and finish not in FINISHED:
        raise InvalidAnswer(f"The model's reply did not come to its end, but to {shown(finish)}.")


def _check_own_end(raw: Mapping[str, Any]) -> None:
    """Refuse a reply that did not end well in the provider's own words, whatever litellm makes of them."""
    choice = _first(raw, "choices")
    given = part_of(part_of(choice, "error"), "message")
    end = _own_end(raw)
    word = end.strip().lower() if isinstance(end, str) else None
    if word in ENDS["broken"] or given:
        because = f": {shown(given)}" if given else ""
        raise EvaluatorUnavailable(f"The model's reply broke off ({shown(end)}){because}.")
    if word in ENDS["filtered"]:
        raise EvaluationFailed("content_filter", "The provider's filter stopped the reply.")
    if word in ENDS["cut_off"]:
        raise CutOff(f"The model's reply was cut off at its limit of tokens. {MORE_TOKENS}")
    if word is None:
        message = "The model's reply does not say that it is complete (it has no finish_reason)."
        raise EvaluatorUnavailable(message, reason="invalid_answer", tries_max=EMPTY_TRIES_MAX)
    if word not in ENDS["finished"]:
        raise InvalidAnswer(f"The model's reply did not come to its end, but to {shown(end)}.")


def _own_end(raw: Mapping[str, Any]) -> Any:
    """Return how the reply ended, in the place where its provider says so."""
    if "choices" in raw:
        return part_of(_first(raw, "choices"), "finish_reason")
    if "candidates" in raw:
        return part_of(_first(raw, "candidates"), "finishReason")
    if "done" in raw:  # Ollama; older ones do not say why
        return raw.get("done_reason") or ("stop" if raw["done"] is True else None)
    return raw.get("stop_reason") or raw.get("finish_reason")


def _check_elsewhere(message: Any, raw: Mapping[str, Any] | None) -> None:
    """Raise `Misplaced` where an empty reply has its words among the thoughts."""
    own = part_of(_first(raw, "choices"), "message")
    for holder in (own, message):
        for where in ("reasoning_content", "reasoning", "thinking"):
            text = part_of(holder, where)
            if isinstance(text, str) and text.strip():
                raise Misplaced(where, text)


def _first(raw: Mapping[str, Any] | None, name: str) -> Any:
    listed = raw.get(name) if raw is not None else None
    return listed[0] if isinstance(listed, list) and listed else None


def _tool_text(called: Any) -> str:
    if not isinstance(called, list | tuple) or len(called) != 1:
        raise InvalidAnswer("The model called several tools; it was asked for one call.")
    function = part_of(called[0], "function")
    name, arguments = part_of(function, "name"), part_of(function, "arguments")
    if name != TOOL_NAME:
        raise InvalidAnswer(f"The model called {shown(name)}; the only tool is '{TOOL_NAME}'.")
    if not isinstance(arguments, str) or not arguments.strip():
        raise InvalidAnswer("The model called its tool without arguments.")
    return arguments
