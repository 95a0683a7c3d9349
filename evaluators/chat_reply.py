"""From a chat completion to the text that answers: the one reply in it, whole, or the reason why there is none.

Nothing is read out of a reply that was cut off, refused or filtered, however much it looks like an answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaluators import token_mass
from evaluators.chat_prompt import TOOL_NAME
from evaluators.token_mass import Token, part_of
from evaluators.validation import shown
from facets.errors import EvaluationFailed, EvaluatorUnavailable, InvalidAnswer

FINISHED = frozenset({"stop", "tool_calls", "function_call"})
"""What a reply that came to its end says; litellm maps every provider's words to these."""

CUT_OFF = "length"
FILTERED = "content_filter"
MORE_TOKENS = "If this happens to many documents, raise max_output_tokens or lower reasoning_effort."
EMPTY_TRIES_MAX = 2
"""An empty reply is paid for as any other, and mostly passes; a model that always gives one must not cost on and on."""


class CutOff(InvalidAnswer):
    """The reply reached its limit of tokens before its end; no part of it is read."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What was said: `tokens` spell `text`, or are none."""

    text: str
    tokens: Sequence[Token] = ()


def reply_of(response: Any) -> Reply:
    """Return the answering text of a completion.

    Raises:
        EvaluationFailed: refused or filtered.
        CutOff: it ran out of tokens, or has no choice at all, which is how some providers say so.
        InvalidAnswer: it has several tool calls, another tool's call, or ended in a way that is not known.
        EvaluatorUnavailable: it is empty, which passes when asked again.
    """
    choices = part_of(response, "choices")
    if not isinstance(choices, list | tuple) or not choices:
        raise CutOff(f"The model's reply has no choices: its tokens were used up before the answer. {MORE_TOKENS}")
    choice = choices[0]
    message = part_of(choice, "message")
    _check_end(part_of(choice, "finish_reason"), message)
    called = part_of(message, "tool_calls")
    if called:
        return Reply(_tool_text(called))
    content = part_of(message, "content")
    if content is not None and not isinstance(content, str):
        raise InvalidAnswer(f"The model's reply is not text but {type(content).__name__}.")
    if content is None or not content.strip():
        raise EvaluatorUnavailable("The model's reply is empty.", reason="invalid_answer", tries_max=EMPTY_TRIES_MAX)
    return Reply(content, token_mass.tokens_of(part_of(choice, "logprobs")))


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
