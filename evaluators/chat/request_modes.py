"""How one model can be asked, found out by asking: what it does not take is left out from then on.

A request begins with all that makes answers better (a schema, token probabilities, temperature 0), and a refusal takes
away what it names: *schema → tool → JSON → text* for the reply's shape, one by one for the rest. What litellm refuses
before anything is sent is taken away within the call. A provider's refusal ends the call, and the document is asked
about again in the new mode, without counting as a try. Nothing that was set by name in the evaluator's table is taken
away.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Literal

from facetline.evaluators.chat import prompt as chat_prompt
from facetline.evaluators.chat.prompt import Prompt

Shape = Literal["schema", "tool", "json_object", "text"]
Limit = Literal["max_tokens", "max_completion_tokens"]
SHAPES: tuple[Shape, ...] = ("schema", "tool", "json_object", "text")

ALTERNATIVES_MAX = 20
"""Alternatives of a token that providers give at most; OpenAI's limit."""
ALTERNATIVES_MORE = 5
"""Asked for beyond the codes: room for what merges with a quote, and for what is no code."""

TOKENS_BASE, TOKENS_EACH = 256, 32
"""A reply without thoughts has some 10 tokens a question; a fence or a polite word must not cut it off."""
TOKENS_THINKING = 4096
"""What thoughts may take besides, once a model turns out to have some."""

REFUSING = frozenset({200, 400, 404, 415, 422, 501})
"""Statuses by which servers refuse a parameter; 200 is that of an error in a reply that calls itself a success."""
WORDS_CHARS_MAX = 2000
"""A refusal says what it is about at its beginning; further on it may quote the document."""


@dataclass(frozen=True, slots=True)
class Mode:
    """What a request has.

    `thinking` is room for thoughts: None until a reply was cut off for want of it, False when it was refused. `limit`
    is the name under which the reply's length is limited, None where the model takes none. `tokens` is the table's own
    limit. `fixed` are the parts that the table set by name.
    """

    shape: Shape = "schema"
    logprobs: int | Literal["auto"] | None = "auto"
    temperature: float | None = 0.0
    reasoning_effort: str | None = None
    parallel: bool = True
    system: bool = True
    letters: bool = True
    thinking: bool | None = None
    limit: Limit | None = "max_tokens"
    tokens: int | None = None
    fixed: frozenset[str] = frozenset()

    @property
    def with_logprobs(self) -> bool:
        """Whether token probabilities are asked for; those of a tool call are of no use."""
        return self.logprobs is not None and self.shape != "tool"

    @property
    def with_letters(self) -> bool:
        """Whether a boolean is asked as a letter."""
        return self.letters and self.with_logprobs


_PATTERNS = {
    "limit": r"(?:use|try|did you mean) (?:the )?(?:parameter )?\W{0,2}max_(?:completion_)?tokens|"
    r"(?:unsupported|unrecognized|unrecognised|unknown|unexpected|extra|invalid|deprecated).{0,60}"
    r"max_(?:completion_)?tokens|"
    r"max_(?:completion_)?tokens\W.{0,60}(?:not (?:supported|permitted|allowed|available)|unsupported|deprecated|"
    r"extra (?:fields|inputs)|instead|is unknown)",
    "logprobs": r"log_?prob",
    "temperature": r"temperature",
    "parallel": r"parallel_?tool_?calls|parallel tool",
    "reasoning_effort": r"reasoning|thinking",
    "system": r"(?:system|developer)\W? (?:role|message|instruction|prompt)|roles? must alternate|alternat\w+ roles?|"
    r"alternate between|(?:first|initial) (?:message|role|content).{0,40}\buser\b|"
    r"(?:unexpected|invalid|unknown|unsupported) (?:message )?role|only user and (?:assistant|model) roles|"
    r"role\W{1,3}system|unexpected role",
    "thinking": r"max_?(?:completion_?|output_?)?tokens",
    "schema": r"response_?format|schema|structured|output_?(?:format|config)|guided|grammar|json|too many states|"
    r"strict",
    "tool": r"tool|function|strict",
    "json_object": r"response_?format|json",
    "text": r"response_?format|json_?schema|json_?object|tool",
}
PATTERNS = {part: re.compile(pattern, re.IGNORECASE) for part, pattern in _PATTERNS.items()}
"""Words by which a refusal names a part of a request; the first that fits counts, so the plainest come first."""


UNWRITABLE = re.compile(r"not JSON compliant", re.IGNORECASE)
"""How a server says that it cannot write a probability of minus infinity; no other 500 is a refusal."""

TEMPLATE = re.compile(r"roles? must alternate|(?:chat|jinja|prompt) ?template", re.IGNORECASE)
"""How a server says that its model's template does not take these roles, some of them with a 500."""

FORBIDDEN = re.compile(
    r"(?:not |un)(?:allowed|permitted|authori[sz]ed|available|supported|enabled|entitled)\b.{0,80}\blog_?prob|"
    r"\blog_?prob\w*.{0,60}(?:not (?:allowed|permitted|available|supported|enabled)|forbidden|disabled|denied)|"
    r"(?:forbidden|denied|cannot request|may not request).{0,60}\blog_?prob",
    re.IGNORECASE | re.DOTALL,
)
"""How a server forbids token probabilities to a key that is good for all else."""

NO_ENDPOINT = re.compile(r"no (?:allowed |available )?endpoints?", re.IGNORECASE)
"""How a router of models says that none of its providers takes a parameter."""


def refused_part(error: BaseException | None, mode: Mode) -> str | None:
    """Return the part of a request in `mode` that an error refuses, None when it is about something else."""
    if error is None:
        return None
    status, words = getattr(error, "status_code", None), _words(error)
    by_words = _refused_by_words(status, words, mode)
    if by_words is not None:
        return by_words
    if not before_sending(error) and status not in REFUSING:
        return None
    if status == HTTPStatus.NOT_FOUND and not NO_ENDPOINT.search(words):
        return None  # there is no such model, whatever it is called
    named = [part for part in (*_parts(mode), mode.shape) if PATTERNS[part].search(words)]
    if not named:
        return None
    return "shape" if named[0] == mode.shape else named[0]


def _refused_by_words(status: Any, words: str, mode: Mode) -> str | None:
    """Return what is refused with a status that means something else unless the words are exactly these."""
    broken = status == HTTPStatus.INTERNAL_SERVER_ERROR
    if mode.with_logprobs:
        forbidden = status == HTTPStatus.FORBIDDEN and FORBIDDEN.search(words)
        if forbidden or (broken and UNWRITABLE.search(words)):
            return "logprobs"
    if mode.system and broken and TEMPLATE.search(words):
        return "system"
    return None


def _words(error: BaseException) -> str:
    """Return what an error says, without the model's name, which may hold any word."""
    message = f"{getattr(error, 'param', None) or ''} {getattr(error, 'message', None) or error}"
    model = getattr(error, "model", None)
    names = [model, model.partition("/")[2]] if isinstance(model, str) else []
    for name in filter(None, names):
        message = message.replace(name, "…")
    return message[:WORDS_CHARS_MAX]


def before_sending(error: BaseException | None) -> bool:
    """Say whether litellm refused the request itself, so that nothing was sent."""
    return type(error).__name__ == "UnsupportedParamsError"


def without(mode: Mode, part: str) -> Mode | None:
    """Return `mode` without a refused part, None when there is no way left to ask."""
    if part in mode.fixed:
        return None
    if part == "limit":
        return _with_another_limit(mode)
    if part != "shape":
        return LEAVING_OUT[part](mode)
    further = SHAPES[SHAPES.index(mode.shape) + 1 :]
    return replace(mode, shape=further[0]) if further else None


def _with_another_limit(mode: Mode) -> Mode | None:
    """Return `mode` with the other name of its limit, then without one; the table's own limit is never left out."""
    if mode.limit == "max_tokens":
        return replace(mode, limit="max_completion_tokens")
    return replace(mode, limit=None) if mode.tokens is None else None


LEAVING_OUT: Mapping[str, Callable[[Mode], Mode]] = {
    "logprobs": lambda mode: replace(mode, logprobs=None),
    "temperature": lambda mode: replace(mode, temperature=None),
    "reasoning_effort": lambda mode: replace(mode, reasoning_effort=None),
    "parallel": lambda mode: replace(mode, parallel=False),
    "system": lambda mode: replace(mode, system=False),
    "thinking": lambda mode: replace(mode, thinking=False),
    "letters": lambda mode: replace(mode, letters=False),
}
"""By part, how a mode does without it."""


def with_more_tokens(mode: Mode) -> Mode | None:
    """Return `mode` with room for thoughts, None when it has it or the table sets the limit."""
    if mode.limit is None:
        return None
    return replace(mode, thinking=True) if mode.thinking is None and mode.tokens is None else None


def request(mode: Mode, prompt: Prompt, *, body: str, nonce: str) -> dict[str, Any]:
    """Return the arguments of the completion that asks about `body`."""
    parts: dict[str, Any] = {
        "messages": _messages(mode, prompt.instructions, chat_prompt.fenced(body, nonce)),
        **({mode.limit: tokens_max(mode, prompt)} if mode.limit is not None else {}),
        **_shape(mode, prompt),
    }
    if mode.temperature is not None:
        parts["temperature"] = mode.temperature
    if mode.reasoning_effort is not None:
        parts["reasoning_effort"] = mode.reasoning_effort
    if mode.with_logprobs:
        parts["logprobs"] = True
        parts["top_logprobs"] = _alternatives(prompt) if mode.logprobs == "auto" else mode.logprobs
    return parts


def _parts(mode: Mode) -> list[str]:
    """Return the parts that a request in `mode` has and could do without."""
    has = {
        "limit": mode.limit is not None,
        "logprobs": mode.with_logprobs,
        "temperature": mode.temperature is not None,
        "parallel": mode.shape == "tool" and mode.parallel,
        "reasoning_effort": mode.reasoning_effort is not None,
        "system": mode.system,
        "thinking": bool(mode.thinking),
    }
    return [part for part, had in has.items() if had]


def _messages(mode: Mode, instructions: str, text: str) -> list[dict[str, str]]:
    if not mode.system:
        return [{"role": "user", "content": f"{instructions}\n\n{text}"}]
    return [{"role": "system", "content": instructions}, {"role": "user", "content": text}]


def _shape(mode: Mode, prompt: Prompt) -> dict[str, Any]:
    name = chat_prompt.TOOL_NAME
    match mode.shape:
        case "schema":
            form = {"name": name, "strict": True, "schema": prompt.schema}
            return {"response_format": {"type": "json_schema", "json_schema": form}}
        case "tool":
            function = {"name": name, "description": "Give the answers.", "parameters": prompt.schema}
            parts: dict[str, Any] = {
                "tools": [{"type": "function", "function": function}],
                "tool_choice": {"type": "function", "function": {"name": name}},
            }
            return {**parts, "parallel_tool_calls": False} if mode.parallel else parts
        case "json_object":
            return {"response_format": {"type": "json_object"}}
        case "text":
            return {}


def _alternatives(prompt: Prompt) -> int:
    return min(ALTERNATIVES_MAX, max(len(line.codes) for line in prompt.sheet) + ALTERNATIVES_MORE)


def tokens_max(mode: Mode, prompt: Prompt) -> int:
    """Return how many tokens a reply may have."""
    if mode.tokens is not None:
        return mode.tokens
    return TOKENS_BASE + TOKENS_EACH * len(prompt.sheet) + (TOKENS_THINKING if mode.thinking else 0)
