"""How many calls one evaluator may have, and how fast they may start.

Four limits, all of this process alone: calls at once, requests a minute, tokens a minute, and what the provider itself
asks for. A 429 pauses the evaluator's whole queue and halves the calls at once; each success gives a little back. So a
provider that allows less than the settings say is found out with few refused calls, and no burst follows a pause.

Pure: time comes in as seconds of a monotonic clock.
"""

from facetline.streams.classify.token_bucket import NONE_TAKEN, Taken, TokenBucket

PAUSE_S = 1.0
"""How long a 429 without a Retry-After pauses the queue."""

PAUSE_MAX_S = 300.0
"""A longer wish is cut to this: the provider is asked again every five minutes."""


class Limiter:
    """Counts the calls of one evaluator.

    Args:
        concurrency: Calls at once, at most.
        requests_per_minute: Calls started in a minute, None for no limit. What is saved up in idle times is one
            second's worth, but at least one call.
        tokens_per_minute: Tokens in a minute, None for no limit; see `streams.classify.token_bucket`.
        now_s: The time.
    """

    def __init__(
        self,
        *,
        concurrency: int,
        requests_per_minute: int | None,
        now_s: float,
        tokens_per_minute: int | None = None,
    ) -> None:
        self.concurrency = concurrency
        self.in_flight = 0
        self._ceiling = float(concurrency)
        self._rate = None if requests_per_minute is None else requests_per_minute / 60.0
        self._bucket_max = max(1.0, self._rate or 1.0)
        self._bucket = self._bucket_max
        self._filled_s = now_s
        self._paused_until_s = now_s
        self._tokens = None if tokens_per_minute is None else TokenBucket(tokens_per_minute, now_s)

    @property
    def at_once(self) -> int:
        """Calls at once, after what the provider's refusals taught."""
        return int(self._ceiling)

    def free(self, now_s: float) -> int:
        """Return how many calls may start now."""
        if now_s < self._paused_until_s:
            return 0
        slots = max(0, self.at_once - self.in_flight)
        if self._tokens is not None:
            slots = min(slots, self._tokens.calls(now_s))
        if self._rate is None:
            return slots
        self._fill(now_s)
        return min(slots, int(self._bucket))

    def free_at_s(self, now_s: float) -> float | None:
        """Return when time alone will free a call, None when only the end of a call can (or one is free now)."""
        if self.at_once <= self.in_flight:
            return None
        at_s = self._paused_until_s
        if self._rate is not None:
            self._fill(now_s)
            missing = max(0.0, 1.0 - self._bucket)
            at_s = max(at_s, now_s + missing / self._rate)
        if self._tokens is not None:
            at_s = max(at_s, self._tokens.free_at_s(now_s))
        return at_s if at_s > now_s else None

    def start(self, text_bytes: int = 0) -> Taken:
        """Count a call that `free` allowed, about so many bytes of text; what it returns is for `end` or `withdraw`."""
        self.in_flight += 1
        if self._rate is not None:
            self._bucket -= 1.0
        return NONE_TAKEN if self._tokens is None else self._tokens.take(text_bytes)

    def end(self, taken: Taken = NONE_TAKEN, used: int = 0) -> None:
        """Count the end of a call that reported `used` tokens, 0 if it reported nothing; `taken` is what `start`
        returned.
        """
        self.in_flight -= 1
        if self._tokens is not None and used > 0:
            self._tokens.correct(taken, used)

    def withdraw(self, taken: Taken = NONE_TAKEN) -> None:
        """Take back a `start` whose call was never made."""
        self.in_flight -= 1
        if self._rate is not None:
            self._bucket = min(self._bucket_max, self._bucket + 1.0)
        if self._tokens is not None:
            self._tokens.put_back(taken)

    def succeeded(self) -> None:
        """Give back a little of what refusals took: one call at once for each full round of successes."""
        self._ceiling = min(float(self.concurrency), self._ceiling + 1.0 / self._ceiling)

    def refused(self, now_s: float, retry_after_s: float | None) -> bool:
        """Pause after a 429; say whether it opened a pause (False: an echo, from a call of before the pause).

        A burst of calls is refused as a whole; only the first refusal says something new.
        """
        echo = now_s < self._paused_until_s
        self.pause(now_s, PAUSE_S if retry_after_s is None else retry_after_s)
        if not echo:
            self._ceiling = max(1.0, self._ceiling / 2)
        return not echo

    def pause(self, now_s: float, retry_after_s: float) -> None:
        """Start no call for as long as the provider wishes, up to a limit; an earlier, longer wish holds."""
        if retry_after_s > 0:  # not a NaN either
            self._paused_until_s = max(self._paused_until_s, now_s + min(retry_after_s, PAUSE_MAX_S))

    def _fill(self, now_s: float) -> None:
        if self._rate is None:
            return
        self._bucket = min(self._bucket_max, self._bucket + (now_s - self._filled_s) * self._rate)
        self._filled_s = now_s
