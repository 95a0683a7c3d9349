"""How many calls may start and how fast, on a clock of the test's own."""

import math

import pytest

from facetline.streams.classify.rate_limiter import Limiter


def limiter(concurrency: int = 4, requests_per_minute: int | None = None) -> Limiter:
    """Make a limiter at time zero."""
    return Limiter(concurrency=concurrency, requests_per_minute=requests_per_minute, now_s=0.0)


def start_all(limits: Limiter, now_s: float) -> int:
    """Start as many calls as are free and return how many that was."""
    free = limits.free(now_s)
    for _ in range(free):
        limits.start()
    return free


def test_calls_at_once_are_bounded():
    """No more calls start than the concurrency allows, and each end frees one."""
    limits = limiter(4)

    assert start_all(limits, 0.0) == 4
    assert limits.free(1e9) == 0
    assert limits.free_at_s(0.0) is None
    limits.end()
    assert limits.free(0.0) == 1


@pytest.mark.parametrize("rate", [1, 7, 60, 90, 1200])
def test_requests_a_minute_are_bounded_in_every_minute(rate: int):
    """Over ten busy minutes no minute has more starts than the rate and what one second may save up."""
    limits = limiter(10_000, rate)
    started: list[float] = []
    for tick in range(6000):
        now_s = tick / 10
        for _ in range(start_all(limits, now_s)):
            started.append(now_s)
            limits.end()
    busiest = max(sum(begin <= each < begin + 60 for each in started) for begin in range(0, 540, 30))

    assert busiest <= rate + max(1, rate / 60)
    assert len(started) >= rate * 9


def test_the_next_start_is_foretold():
    """With an empty bucket it is known when the next call is free, and it is free then."""
    limits = limiter(10, 60)
    start_all(limits, 0.0)
    at_s = limits.free_at_s(0.0)

    assert at_s == pytest.approx(1.0)
    assert limits.free(1.0 + 1e-6) == 1


def test_a_refusal_pauses_the_whole_queue():
    """After a 429 no call starts before its Retry-After, whatever was free."""
    limits = limiter(4)
    limits.refused(10.0, 7.0)

    assert limits.free(16.9) == 0
    assert limits.free_at_s(10.0) == 17.0
    assert limits.free(17.0) > 0


@pytest.mark.parametrize("wish_s", [None, 0.0, -1.0, math.nan, math.inf])
def test_a_senseless_or_missing_wish_never_stops_the_queue_for_good(wish_s: float | None):
    """Whatever the provider says, calls start again within five minutes."""
    limits = limiter(4)
    limits.refused(0.0, wish_s)

    assert limits.free(300.0) > 0


def test_a_burst_that_is_refused_counts_once():
    """Sixteen refusals of one burst halve the calls at once a single time; the others are echoes."""
    limits = limiter(16)
    fresh = [limits.refused(0.0, 1.0) for _ in range(16)]

    assert fresh == [True] + [False] * 15
    assert limits.at_once == 8


def test_refusals_round_after_round_end_at_one_call():
    """However often a provider refuses, one call at a time is still tried."""
    limits = limiter(16)
    for round_number in range(20):
        limits.refused(round_number * 10.0, 1.0)

    assert limits.at_once == 1


def test_successes_give_the_calls_back():
    """Successes after refusals raise the calls at once again, up to the setting and no further."""
    limits = limiter(8)
    limits.refused(0.0, 1.0)
    for _ in range(200):
        limits.succeeded()

    assert limits.at_once == 8


def test_a_call_that_was_never_made_costs_no_request():
    """A start that is withdrawn gives its place in the minute back."""
    limits = limiter(4, 60)
    limits.start()
    limits.withdraw()

    assert limits.free(0.0) == 1


def storm(limits: Limiter, allowed: int) -> tuple[int, int]:
    """Answer 500 documents by a provider that allows so many calls a second; return (rounds, refused calls)."""
    answered = refused = second = 0
    while answered < 500:
        left = allowed
        while (calls := start_all(limits, float(second))) and left >= 0:
            for _ in range(calls):
                limits.end()
                if left > 0:
                    answered, left = answered + 1, left - 1
                    limits.succeeded()
                else:
                    refused += 1
                    limits.refused(float(second), 1.0)
        second += 1
    return second, refused


def test_a_strict_provider_is_found_out_with_few_refusals():
    """At 5 calls a second, 16 at once in the settings: fewer refusals than answers, and nearly the full rate."""
    seconds, refused = storm(limiter(16), 5)

    assert refused < 300
    assert seconds <= 110
