"""When a failed call is tried again: bounds, growth, jitter and the provider's own wish."""

import math

import pytest

from facetline.streams.classify import retry_policy

POLICY = retry_policy.Policy(tries_max=6, wait_sum_max_s=100.0, first_s=1.0, most_s=20.0)


def nearly_one() -> float:
    """Draw the largest jitter."""
    return 1.0 - 2**-53


def zero() -> float:
    """Draw the smallest jitter."""
    return 0.0


def waits(policy: retry_policy.Policy, retry_after_s: float | None = None) -> list[float]:
    """Return the waits of a document that always fails, with the largest jitter."""
    given: list[float] = []
    while True:
        pause_s = retry_policy.next_wait_s(
            policy, tries=len(given), waited_s=sum(given), retry_after_s=retry_after_s, uniform=nearly_one
        )
        if pause_s is None:
            return given
        given.append(pause_s)


def test_waits_double_up_to_their_cap():
    """The largest wait doubles with each retry and stops growing at the cap."""
    given = waits(POLICY)

    assert given == pytest.approx([1, 2, 4, 8, 16])


def test_a_wait_never_exceeds_the_cap_however_many_retries_went_before():
    """A huge count of earlier retries neither overflows nor passes the cap."""
    pause_s = retry_policy.wait_s(POLICY, earlier=100_000, retry_after_s=None, uniform=nearly_one)

    assert pause_s <= POLICY.most_s


def test_jitter_covers_everything_from_zero():
    """Full jitter: the smallest draw waits not at all, so that retries do not march in step."""
    assert retry_policy.wait_s(POLICY, earlier=3, retry_after_s=None, uniform=zero) == 0.0


def test_tries_are_bounded():
    """A document gets `tries_max` tries in all: one less in retries."""
    patient = retry_policy.Policy(tries_max=6, wait_sum_max_s=math.inf, first_s=0.0, most_s=0.0)

    assert len(waits(patient)) == 5


def test_the_sum_of_waits_is_bounded():
    """A document whose waits would add up to more than the bound is given up."""
    given = waits(retry_policy.Policy(tries_max=1000, wait_sum_max_s=10.0, first_s=1.0, most_s=20.0))

    assert given == pytest.approx([1, 2, 4])


def test_a_retry_after_is_waited_for_and_spread():
    """No document comes back before its Retry-After, and not all at the same moment."""
    soonest = retry_policy.wait_s(POLICY, earlier=0, retry_after_s=7.0, uniform=zero)
    latest = retry_policy.wait_s(POLICY, earlier=0, retry_after_s=7.0, uniform=nearly_one)

    assert soonest == 7.0
    assert 7.0 < latest <= 7.71


def test_a_backoff_longer_than_the_retry_after_holds():
    """The longer of backoff and Retry-After is waited."""
    assert retry_policy.wait_s(POLICY, earlier=4, retry_after_s=1.0, uniform=nearly_one) == pytest.approx(16)


@pytest.mark.parametrize("wish_s", [1e9, math.inf])
def test_an_endless_retry_after_is_cut(wish_s: float):
    """A provider cannot send a document away for ever."""
    pause_s = retry_policy.wait_s(POLICY, earlier=0, retry_after_s=wish_s, uniform=nearly_one)

    assert pause_s <= retry_policy.RETRY_AFTER_MAX_S * 1.1


@pytest.mark.parametrize("wish_s", [0.0, -5.0, math.nan])
def test_a_senseless_retry_after_is_ignored(wish_s: float):
    """Zero, a negative number or NaN changes nothing about the backoff."""
    assert retry_policy.wait_s(POLICY, earlier=1, retry_after_s=wish_s, uniform=nearly_one) == pytest.approx(2)
