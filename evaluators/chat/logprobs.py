"""How a model's token probabilities spread over the codes that it could have answered with.

A reply's tokens come with their likeliest alternatives. The token that holds the first character of an answer says how
likely each code was there: alternatives count when, behind the same structural characters as the token itself (` "`,
`":"`), they are a code that ends or closes its quote. What they add up to, the mass, is checked before anything is made
of it: under guided decoding a letter may be forced that the model would hardly have chosen.

Nothing is invented: where the tokens do not spell the reply, or the mass does not do, there is no share. Where a code
was out of sight, all that is not accounted for is held against the chosen one: some servers report no alternatives, and
a letter with a probability of one half would look certain.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MASS_MIN = 0.5
"""Below, most of the probability is on something that is no code, and the shares of the rest say little."""

MISSING_MAX = 0.01
"""Codes that were not among the alternatives have no more than this together, or there is no distribution."""

LOGPROB_MIN = -9998.0
"""Servers write -9999 (or minus infinity) where a token is ruled out."""

LOGPROB_MAX = 1e-6
"""The logarithm of a probability is never positive, but for the last digits of someone's float32."""

DECIMALS = 6
"""Of shares: finer ones differ from call to call."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a reply, and what litellm has of it: its log-probability and those of its alternatives.

    Most tokens are structure whose alternatives are not needed, so they are read on demand.
    """

    text: str
    raw: Any = None

    def chances(self) -> dict[str, float]:
        """Return the probability of each text that could have stood there, the token's own among them."""
        alternatives = part_of(self.raw, "top_logprobs")
        listed = [*(alternatives if isinstance(alternatives, list | tuple) else ()), self.raw]
        found: dict[str, float] = {}
        for each in listed:
            name, chance = part_of(each, "token"), _chance(part_of(each, "logprob"))
            if isinstance(name, str) and chance is not None:
                found.setdefault(name, chance)
        return found


@dataclass(frozen=True, slots=True)
class Shares:
    """What the codes have of their common mass: that of the chosen one, and of all where all are known.

    Where not all are known, `chosen` is the least that it can be: its own probability.
    """

    chosen: float
    by_code: Mapping[str, float] | None


def tokens_of(given: Any) -> list[Token]:
    """Return a reply's tokens from what litellm has of them; none where that is not what it should be."""
    content = part_of(given, "content")
    if not isinstance(content, list | tuple):
        return []
    tokens = [Token(text, each) for each in content if isinstance(text := part_of(each, "token"), str)]
    return tokens if len(tokens) == len(content) else []


def start_of(tokens: Iterable[Token], text: str) -> int | None:
    """Return where `text` starts in what the tokens spell; None when they spell something else.

    White space around, and tokens behind (an end mark), make no difference.
    """
    spelled = "".join(token.text for token in tokens)
    if not text.strip() or not spelled.lstrip().startswith(text.strip()):
        return None
    return (len(spelled) - len(spelled.lstrip())) - (len(text) - len(text.lstrip()))


def shares(
    tokens: Iterable[Token], place: int, *, codes: Collection[str], chosen: str, closing: str = '"'
) -> Shares | None:
    """Return how the probability at `place`, a character's place in what the tokens spell, spreads over `codes`.

    Args:
        tokens: The whole reply.
        place: Where the chosen code begins.
        codes: All that could have been answered; none may be the beginning of another.
        chosen: The code that was.
        closing: What may follow a code within a token.
    """
    found = _at(tokens, place)
    if found is None:
        return None
    token, before = found
    masses = _masses(token, before, codes, closing)
    mass, chosen_mass = math.fsum(masses.values()), masses.get(chosen, 0.0)
    if not MASS_MIN <= mass <= 1 + MISSING_MAX or chosen_mass < max(masses.values()):
        return None
    if len(masses) < len(codes) and mass <= 1 - MISSING_MAX:
        return Shares(round(chosen_mass, DECIMALS), None)
    share = {code: round(masses.get(code, 0.0) / mass, DECIMALS) for code in codes}
    return Shares(share[chosen], share)


def _at(tokens: Iterable[Token], place: int) -> tuple[Token, str] | None:
    """Return the token that holds a place, and what it has before."""
    position = 0
    for token in tokens:
        if position <= place < position + len(token.text):
            return token, token.text[: place - position]
        position += len(token.text)
    return None


def _masses(token: Token, before: str, codes: Collection[str], closing: str) -> dict[str, float]:
    masses: dict[str, float] = {}
    for text, chance in token.chances().items():
        if not text.startswith(before):
            continue
        rest = text[len(before) :]
        code, end, _ = rest.partition(closing)
        if code in codes and (end or rest == code):
            masses[code] = masses.get(code, 0.0) + chance
    return masses


def _chance(logprob: Any) -> float | None:
    if isinstance(logprob, bool) or not isinstance(logprob, int | float):
        return None
    if not LOGPROB_MIN < logprob <= LOGPROB_MAX:  # not a NaN or an infinity either
        return None
    return math.exp(logprob)


def part_of(thing: Any, name: str) -> Any:
    """Return a part of what litellm returned, in which objects and plain dicts take turns; None where it is not."""
    return thing.get(name) if isinstance(thing, dict) else getattr(thing, name, None)
