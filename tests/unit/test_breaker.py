"""The breaker's state machine, on a clock of the test's own."""

import pytest

from facetline.streams.classify.circuit_breaker import Breaker


def opened(breaker: Breaker, now_s: float = 0.0) -> Breaker:
    """Open a breaker by three documents."""
    for document in "abc":
        breaker.failed(breaker.begin(), document, now_s)
    return breaker


def test_three_different_documents_open_it():
    """The third document that fails in a row opens the breaker, and no call may start."""
    breaker = Breaker()
    blamed = [breaker.failed(breaker.begin(), document, 0.0) for document in "abc"]

    assert blamed == [True, True, False]
    assert breaker.state == "open"
    assert breaker.allowed(4.9) == 0


def test_one_document_never_opens_it():
    """A single poisonous document may fail as often as it likes; it answers for that itself."""
    breaker = Breaker()
    blamed = [breaker.failed(breaker.begin(), "a", 0.0) for _ in range(50)]

    assert all(blamed)
    assert breaker.state == "closed"


def test_a_success_between_starts_the_count_again():
    """Failures of different documents with a success between them do not add up."""
    breaker = Breaker()
    for document in "abcdef":
        breaker.failed(breaker.begin(), document, 0.0)
        breaker.failed(breaker.begin(), document * 2, 0.0)
        breaker.succeeded(breaker.begin())

    assert (breaker.state, breaker.openings) == ("closed", 0)


def test_a_misconfigured_evaluator_opens_it_at_once():
    """A refused key is no document's fault: one is enough, and it does not answer for it."""
    breaker = Breaker()
    blamed = breaker.failed(breaker.begin(), "a", 0.0, misconfigured=True)

    assert blamed is False
    assert breaker.state == "open"


def test_one_probe_at_a_time():
    """After the delay one call may start, and no second one while it runs."""
    breaker = opened(Breaker(probe_first_s=5.0))

    assert breaker.probe_due_s() == 5.0
    assert breaker.allowed(5.0) == 1
    assert breaker.begin().probe
    assert breaker.allowed(1e9) == 0


def test_failed_probes_double_the_delay_up_to_its_cap():
    """Each failed probe doubles the wait for the next one, and the wait stays bounded."""
    breaker = opened(Breaker(probe_first_s=5.0, probe_most_s=30.0))
    now_s, delays = 0.0, []
    for number in range(5):
        due_s = breaker.probe_due_s()
        assert due_s is not None
        delays.append(due_s - now_s)
        now_s = due_s
        assert breaker.failed(breaker.begin(), f"d{number}", now_s) is False

    assert delays == [5.0, 10.0, 20.0, 30.0, 30.0]


def test_a_successful_probe_closes_it_and_forgets_the_delay():
    """One answer lets all calls through again, and the next outage starts with the short delay."""
    breaker = opened(Breaker(probe_first_s=5.0))
    breaker.failed(breaker.begin(), "d", 5.0)
    breaker.succeeded(breaker.begin())

    assert breaker.state == "closed"
    assert breaker.allowed(15.0) is None
    assert opened(breaker, 100.0).probe_due_s() == 105.0


def test_a_call_from_before_the_opening_neither_closes_nor_burns():
    """What was started before the opening and ends after it says nothing about now, and its document is not blamed."""
    breaker = Breaker()
    good, bad = breaker.begin(), breaker.begin()
    opened(breaker)
    breaker.succeeded(good)
    blamed = breaker.failed(bad, "late", 1.0)

    assert blamed is False
    assert breaker.state == "open"
    assert breaker.probe_due_s() == 5.0


def test_a_late_failure_does_not_count_towards_the_next_opening():
    """Failures of calls begun in the last outage do not open a breaker that has closed since."""
    breaker = Breaker()
    late = [breaker.begin() for _ in range(3)]
    opened(breaker)
    breaker.succeeded(breaker.begin())
    for number, ticket in enumerate(late):
        breaker.failed(ticket, f"late{number}", 10.0)

    assert breaker.state == "closed"


def test_an_abandoned_probe_may_be_sent_again_at_once():
    """A probe that was cut off said nothing: the breaker stays open, without a longer delay."""
    breaker = opened(Breaker(probe_first_s=5.0))
    breaker.abandoned(breaker.begin(), 6.0)

    assert breaker.state == "open"
    assert breaker.allowed(6.0) == 1


@pytest.mark.parametrize("openings", [1, 3])
def test_openings_are_counted(openings: int):
    """Each change from closed to open counts once; failed probes do not."""
    breaker = Breaker()
    for _ in range(openings):
        opened(breaker)
        breaker.failed(breaker.begin(), "d", 10.0)
        breaker.succeeded(breaker.begin())

    assert breaker.openings == openings
