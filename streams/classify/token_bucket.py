"""Tokens a minute: what a call will take is estimated before it starts, and corrected by what it reports.

The estimate is the text's size times what a byte took in earlier calls of the same evaluator. A call may start while
there is anything in the bucket; it may take more than there is, and then the next one waits until the debt is paid off.
So no text is too long for a small limit, and no limit is passed by more than what one second saves up and the calls
under way were misjudged by.

Pure: time comes in as seconds of a monotonic clock.
"""

import math
from dataclasses import dataclass

TOKENS_PER_BYTE = 0.25
"""Of English text, before anything is known; other languages and instructions are learned within a few calls."""
SMOOTHING = 0.2
"""The share of the newest call in what is learned."""
FACTOR_MIN, FACTOR_MAX = 0.02, 50.0
"""What is learned stays within these times the first guess: one absurd report changes little for long."""
DEBT_MINUTES_MAX = 1.0
"""A report of any size stops the calls for a minute at most."""
GRAIN = 1e-6
"""Keeps a wait that was worked out from ending a rounding error too early."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The tokens taken for a call; `guess` is what they would be if nothing had been learned."""

    tokens: float
    guess: float


NONE_TAKEN = Taken(0.0, 1.0)


class TokenBucket:
    """The tokens of one evaluator; what is saved up in idle times is one second's worth."""

    def __init__(self, tokens_per_minute: int, now_s: float) -> None:
        self._rate = tokens_per_minute / 60.0
        self._most = self._rate
        self._level = self._most
        self._least = -DEBT_MINUTES_MAX * tokens_per_minute
        self._filled_s = now_s
        self._factor = 1.0
        self._call: float | None = None

    def calls(self, now_s: float) -> int:
        """Return how many calls of the usual size may start now; one while nothing is known about the size."""
        self._fill(now_s)
        if self._level <= 0:
            return 0
        return 1 if self._call is None else max(1, math.floor(self._level / self._call))

    def free_at_s(self, now_s: float) -> float:
        """Return when there will be something in the bucket."""
        self._fill(now_s)
        return now_s if self._level > 0 else now_s + (GRAIN - self._level) / self._rate

    def take(self, text_bytes: int) -> Taken:
        """Take what a call about so much text will need; return it."""
        guess = max(1.0, text_bytes * TOKENS_PER_BYTE)
        taken = Taken(guess * self._factor, guess)
        self._call = taken.tokens if self._call is None else self._call + SMOOTHING * (taken.tokens - self._call)
        self._move(-taken.tokens)
        return taken

    def correct(self, taken: Taken, used: int) -> None:
        """Replace an estimate by what the call reported, and learn from it."""
        self._move(taken.tokens - used)
        learned = self._factor + SMOOTHING * (used / taken.guess - self._factor)
        self._factor = min(max(learned, FACTOR_MIN), FACTOR_MAX)

    def put_back(self, taken: Taken) -> None:
        """Take back a `take` whose call was never made."""
        self._move(taken.tokens)

    def _move(self, tokens: float) -> None:
        self._level = min(self._most, max(self._least, self._level + tokens))

    def _fill(self, now_s: float) -> None:
        self._move((now_s - self._filled_s) * self._rate)
        self._filled_s = now_s
