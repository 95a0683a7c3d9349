"""Tokens a minute: estimated, corrected, and never owed for longer than a minute. On a clock of the test's own."""

import pytest

from facetline.streams.classify.rate_limiter import Limiter
from facetline.streams.classify.token_bucket import Taken, TokenBucket

BYTES = 400


def run(bucket: TokenBucket, *, used: int, seconds: int, at_once: int = 4) -> list[float]:
    """Start what may start each tenth of a second, each call ending half a second later; return the starts."""
    started: list[float] = []
    under_way: list[tuple[float, Taken]] = []
    for tick in range(seconds * 10):
        now_s = tick / 10
        for ends_s, taken in list(under_way):
            if ends_s <= now_s:
                under_way.remove((ends_s, taken))
                bucket.correct(taken, used)
        for _ in range(min(bucket.calls(now_s), at_once - len(under_way))):
            under_way.append((now_s + 0.5, bucket.take(BYTES)))
            started.append(now_s)
    return started


@pytest.mark.parametrize("used", [10, 100, 700])
def test_tokens_a_minute_are_bounded_whatever_a_call_takes(used: int):
    """However wrong the first guess is, no minute takes more than the limit, a second's worth and those under way."""
    per_minute = 6_000
    started = run(TokenBucket(per_minute, 0.0), used=used, seconds=600)
    busiest = max(used * sum(begin <= each < begin + 60 for each in started) for begin in range(0, 540, 15))

    assert busiest <= per_minute + per_minute / 60 + 4 * used
    assert used * len(started) >= 0.9 * min(per_minute * 10, used * 8 * 600)


def test_a_text_larger_than_the_limit_is_asked_about():
    """A call may take more than a minute's worth; the next one waits until that is paid off."""
    bucket = TokenBucket(60, 0.0)
    allowed = bucket.calls(0.0)
    bucket.take(4 * 45)

    assert allowed == 1
    assert bucket.calls(0.0) == 0
    assert bucket.free_at_s(0.0) == pytest.approx(44.0, abs=0.01)
    assert bucket.calls(bucket.free_at_s(0.0)) == 1


@pytest.mark.parametrize("used", [10**6, 10**12])
def test_an_absurd_report_stops_the_calls_for_a_minute_at_most(used: int):
    """The debt is bounded, and so is what is learned from one report."""
    bucket = TokenBucket(6_000, 0.0)
    bucket.correct(bucket.take(BYTES), used)

    assert bucket.calls(59.0) == 0
    assert bucket.calls(60.1) == 1


def test_what_a_byte_takes_is_learned():
    """After some calls the estimate is what they took, scaled by size."""
    bucket = TokenBucket(10**6, 0.0)
    for _ in range(60):
        bucket.correct(bucket.take(BYTES), 250)

    assert bucket.take(BYTES).tokens == pytest.approx(250, rel=0.01)
    assert bucket.take(2 * BYTES).tokens == pytest.approx(500, rel=0.01)


def test_many_reports_at_once_teach_no_more_than_they_say():
    """Calls that were all estimated before the first report do not drive the estimate beyond what they took."""
    bucket = TokenBucket(10**6, 0.0)
    taken = [bucket.take(BYTES) for _ in range(64)]
    for each in taken:
        bucket.correct(each, 700)

    assert bucket.take(BYTES).tokens == pytest.approx(700, rel=0.01)


def test_a_call_that_was_never_made_takes_no_tokens():
    """What is withdrawn is there again at once."""
    limits = Limiter(concurrency=4, requests_per_minute=None, tokens_per_minute=600, now_s=0.0)
    taken = limits.start(10_000)
    stopped = limits.free(0.0)
    limits.withdraw(taken)

    assert (stopped, limits.free(0.0)) == (0, 1)


def test_a_call_that_told_nothing_is_taken_at_its_estimate():
    """Without a report the limit holds by what was expected."""
    limits = Limiter(concurrency=4, requests_per_minute=None, tokens_per_minute=600, now_s=0.0)
    limits.end(limits.start(10_000), 0)

    assert limits.free(1.0) == 0
    assert limits.free_at_s(1.0) == pytest.approx(60.0, abs=0.1)


def test_both_limits_hold():
    """Requests and tokens a minute bound together: the tighter one decides."""
    limits = Limiter(concurrency=100, requests_per_minute=60, tokens_per_minute=10**6, now_s=0.0)
    limits.end(limits.start(BYTES), 100)

    assert limits.free(0.0) == 0
    assert limits.free_at_s(0.0) == pytest.approx(1.0)
