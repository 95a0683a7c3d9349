"""What happens to a body that a model cannot take whole: it fails, or only its head and tail are sent, with a note.

Tokens are estimated, because a tokenizer for each model is not at hand; the provider has the last word.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from facetline.facets.errors import EvaluationFailed

FAIL, HEAD_TAIL = "fail", "head_tail"
POLICIES = (FAIL, HEAD_TAIL)
KEYS = ("long_body", "context_tokens")
CONTEXT_MIN, CONTEXT_MAX = 1_000, 10_000_000

BYTES_PER_TOKEN = 4
"""Of UTF-8, in today's vocabularies: English about 4.4, German 3.6, Russian 5, Chinese 4."""

MARGIN = 0.9
"""Of the room that a cut body is made to fill: estimates are off by some percent, and a refusal would be in vain."""

TAIL = 0.25
"""Of what is kept. Letters say what they are about at their beginning, and once more at their end."""

GAP = "\n[…]\n"
"""Stands for what was left out, so that the two parts do not read as one sentence."""

WORD_BYTES_MAX = 40
"""So far from a cut the end of a word is looked for."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The text to ask about, and the note about it (None: it is the whole body)."""

    text: str
    notes: Mapping[str, Any] | None = None


def tokens_of(text: str) -> int:
    """Return an estimate."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def fit(body: str, *, tokens_max: int, policy: str) -> Fitted:
    """Return `body` as it may be sent into a room of `tokens_max` tokens.

    Raises:
        EvaluationFailed: `too_long` under the policy `fail`; or the body is not Unicode text, which no JSON can carry.
    """
    try:
        data = body.encode()
    except UnicodeEncodeError as error:
        raise EvaluationFailed("evaluator_error", "The body has a lone surrogate, which is no text.") from error
    if len(data) <= tokens_max * BYTES_PER_TOKEN:
        return Fitted(body)
    if policy == FAIL:
        fix = f"long_body = '{HEAD_TAIL}' cuts such bodies, context_tokens says how much the model takes"
        about = f"about {-(-len(data) // BYTES_PER_TOKEN)} tokens, {max(tokens_max, 0)} are left for it"
        raise EvaluationFailed("too_long", f"The body is too long: {about} ({fix}).")
    return _cut(data, max(int(tokens_max * BYTES_PER_TOKEN * MARGIN), 0))


def _cut(data: bytes, room: int) -> Fitted:
    room = max(room - len(GAP.encode()), 0)
    tail_bytes = int(room * TAIL)
    head = _whole_words(data[: room - tail_bytes].decode(errors="ignore"))
    tail = _whole_words(data[len(data) - tail_bytes :].decode(errors="ignore")[::-1])[::-1]
    kept = len(head.encode()) + len(tail.encode())
    return Fitted(head + GAP + tail, {"truncated": True, "bytes_kept": kept, "bytes_dropped": len(data) - kept})


def _whole_words(text: str) -> str:
    """Return `text` without the word that its end cuts through, if there is a space near."""
    at = max(text.rfind(space, len(text) - WORD_BYTES_MAX) for space in " \n\t") if len(text) > WORD_BYTES_MAX else -1
    return text[:at] if at > 0 else text


def policy_from_table(table: Mapping[str, Any], problems: list[str]) -> tuple[str, int | None]:
    """Return policy and `context_tokens` (None: not given); what is wrong goes into `problems`."""
    policy, context = table.get("long_body", FAIL), table.get("context_tokens")
    if policy not in POLICIES:
        problems.append(f"long_body is '{FAIL}' (the default) or '{HEAD_TAIL}', not {policy!r:.80}")
    if context is not None and not (type(context) is int and CONTEXT_MIN <= context <= CONTEXT_MAX):
        bounds = f"from {CONTEXT_MIN} to {CONTEXT_MAX}"
        problems.append(f"context_tokens is a number {bounds} (what the model takes), not {context!r:.80}")
    return str(policy), context
