"""When a failed call is tried again: pure arithmetic, the only place that decides it.

Evaluators never retry. A document's tries are bounded in number and by the sum of the waits it was given, not by its
age: while an evaluator's breaker is open no document's bounds move.
"""

from collections.abc import Callable
from dataclasses import dataclass

RETRY_AFTER_MAX_S = 300.0
"""A provider's own wish is taken up to this: longer outages are the breaker's business, and it asks at this pace."""

RETRY_AFTER_SPREAD = 0.1
"""Documents with the same Retry-After come back spread over this part of it, and never before it."""

DOUBLINGS_MAX = 30
"""Keeps the power of two finite; any wait is at its cap long before."""

Uniform = Callable[[], float]
"""Draws from 0 (included) to 1 (excluded), as `random.random` does."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How often and how long a document is tried; waits start at `first_s` and double up to `most_s`."""

    tries_max: int = 6
    wait_sum_max_s: float = 3600.0
    first_s: float = 1.0
    most_s: float = 300.0


def wait_s(policy: Policy, *, earlier: int, retry_after_s: float | None, uniform: Uniform) -> float:
    """Return the seconds until a call is tried again after `earlier` retries: full jitter, at least Retry-After."""
    ceiling_s = min(policy.most_s, policy.first_s * 2.0 ** min(earlier, DOUBLINGS_MAX))
    jittered_s = ceiling_s * uniform()
    if retry_after_s is None or not retry_after_s > 0:  # also not a NaN
        return jittered_s
    asked_s = min(retry_after_s, RETRY_AFTER_MAX_S)
    return max(jittered_s, asked_s * (1 + RETRY_AFTER_SPREAD * uniform()))


def next_wait_s(
    policy: Policy, *, tries: int, waited_s: float, retry_after_s: float | None, uniform: Uniform
) -> float | None:
    """Return the seconds until the next try, or None when the document has used up its tries or its waiting.

    Args:
        policy: The bounds.
        tries: Counted retries so far; the call that just failed was number `tries + 1`.
        waited_s: The sum of the waits of those retries.
        retry_after_s: What the provider asked for.
        uniform: The source of jitter.
    """
    if tries + 1 >= policy.tries_max:
        return None
    pause_s = wait_s(policy, earlier=tries, retry_after_s=retry_after_s, uniform=uniform)
    return pause_s if waited_s + pause_s <= policy.wait_sum_max_s else None
