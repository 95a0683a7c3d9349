"""One evaluator's share: what may be claimed, and what the store is told about calls that ended."""

import itertools
import time
from dataclasses import replace
from typing import Any

import stored
from claims import CLAIM, DEFINITION
from fake_evaluator import FakeEvaluator, said

from facetline.storage.queue import due_documents
from facetline.storage.queue.queue import ClaimResult
from facetline.streams.classify.call import (
    Answer,
    Assignment,
    Call,
    CallLimits,
    Cancelled,
    Failure,
    NotStarted,
    TransientFailure,
)
from facetline.streams.classify.evaluator_lane import POLL_S, REINDEX_SHARE, EvaluatorLane, Retry, lanes_of

ANSWER = Answer({}, said("billing", stored.QUESTIONS))
DOWN = TransientFailure("unavailable", "503")
NAMES = itertools.count()


def lane(**limits: Any) -> EvaluatorLane:
    """Make a lane at time zero."""
    return EvaluatorLane("fake", {"tickets": Assignment(DEFINITION, FakeEvaluator(), CallLimits(**limits))}, 0.0)


def begun(one: EvaluatorLane, **fields: Any) -> Call:
    """Begin a call about another document."""
    number = next(NAMES)
    claim = replace(CLAIM, uri=f"tickets/{number}", body_hash=str(number), **fields)
    call = one.begin(claim, time.monotonic() + 60)
    call.started_s = 0.0
    return call


def opened(one: EvaluatorLane) -> EvaluatorLane:
    """Open a lane's breaker."""
    for _ in range(3):
        one.end(begun(one), DOWN, 0.0)
    return one


def test_trouble_is_retried_until_the_tries_are_used_up():
    """The last try's trouble fails the document with its reason."""
    one = lane(tries_max=3)
    first = one.end(begun(one, tries=0), DOWN, 0.0)
    one.end(begun(one), ANSWER, 0.0)
    last = one.end(begun(one, tries=2), DOWN, 0.0)

    assert isinstance(first, Retry)
    assert first.counted
    assert isinstance(last, Failure)
    assert (last.reason, "3 tries" in last.message) == ("unavailable", True)


def test_trouble_is_retried_until_the_waiting_is_used_up():
    """A document that waited as long as it may is given up, however few tries that were."""
    one = lane(retry_wait_max_s=10.0)
    ending = one.end(begun(one, tries=1, retry_wait_ms=10_000), replace(DOWN, retry_after_s=1.0), 0.0)

    assert isinstance(ending, Failure)


def test_an_evaluator_that_says_nothing_is_there():
    """Empty replies of any number of documents open no breaker; each is tried as often as it says, and then fails."""
    one, empty = lane(tries_max=6), TransientFailure("invalid_answer", "empty", tries_max=2)
    first = [one.end(begun(one), empty, 0.0) for _ in range(5)]
    last = one.end(begun(one, tries=1), empty, 0.0)

    assert all(isinstance(each, Retry) and each.counted for each in first)
    assert isinstance(last, Failure)
    assert (last.reason, one.breaker.state) == ("invalid_answer", "closed")


def accused(one: EvaluatorLane, uri: str, tries: int = 0) -> Any:
    """End a call about a document with word that the evaluator needs mending."""
    number = next(NAMES)
    call = one.begin(replace(CLAIM, uri=uri, tries=tries, body_hash=str(number)), time.monotonic() + 60)
    call.started_s = 0.0
    return one.end(call, TransientFailure("unavailable", "403", misconfigured=True), 0.0)


def test_a_document_that_stops_an_evaluator_again_and_again_is_to_blame():
    """One that is refused as if the key were bad, while others are answered, uses its own tries up and stops nobody."""
    one = lane(tries_max=3)
    first = accused(one, "tickets/poison")
    states = [one.breaker.state]
    one.end(begun(one), ANSWER, 10.0)
    second = accused(one, "tickets/poison", tries=1)
    one.end(begun(one), ANSWER, 10.0)
    last = accused(one, "tickets/poison", tries=2)

    assert [*states, one.breaker.state] == ["open", "closed"]
    assert (first.counted, first.misconfigured) == (False, True)
    assert (second.counted, second.misconfigured) == (True, False)
    assert isinstance(last, Failure)


def test_a_bad_key_fails_no_document_however_long():
    """Without an answer between, no refusal counts against a document, nor one of another document."""
    one = lane(tries_max=2)
    endings = [accused(one, uri, tries=1) for uri in ("tickets/a", "tickets/b", "tickets/a", "tickets/a")]

    assert [(each.counted, each.misconfigured) for each in endings] == [(False, True)] * 4
    assert one.breaker.state == "open"


def test_an_open_breaker_moves_no_bounds():
    """What fails when the evaluator is known to be down is retried uncounted, also on the very last try."""
    one = lane(tries_max=2)
    late = begun(one, tries=1)
    opened(one)
    ending = one.end(late, DOWN, 1.0)

    assert isinstance(ending, Retry)
    assert not ending.counted


def test_an_open_breaker_lets_one_probe_through():
    """Nothing may be claimed before the probe is due, and one document then."""
    one = opened(lane(concurrency=8, probe_first_s=5.0))

    assert (one.slots(4.9), one.next_look_s(1.0)) == (0, 5.0)
    assert one.slots(5.0) == 1
    begun(one)
    assert (one.slots(6.0), one.next_look_s(6.0)) == (0, None)


def test_the_next_probe_takes_another_document():
    """Documents that were probed with are passed over, until there is no other or the breaker has closed."""
    one = opened(lane(probe_first_s=5.0))
    probe = begun(one)
    one.end(probe, DOWN, 5.0)
    passed_over = set(one.probed())
    one.look_again(ClaimResult((), 0, None), slots=1, now_s=20.0, store_ms=0)

    assert passed_over == {probe.key}
    assert (set(one.probed()), one.look_at_s) == (set(), 20.0)
    one.end(begun(one), DOWN, 20.0)
    one.end(begun(one), ANSWER, 50.0)
    assert (one.breaker.state, set(one.probed())) == ("closed", set())


def test_a_call_that_found_out_how_to_ask_is_on_nobodys_account():
    """However many such calls there are, the breaker stays closed, and also a document's last try is not used up."""
    one = lane(tries_max=1, concurrency=8)
    endings = [one.end(begun(one), replace(DOWN, counted=False), 0.0) for _ in range(8)]

    assert [isinstance(each, Retry) and each.counted for each in endings] == [False] * 8
    assert (one.breaker.state, one.breaker.openings, one.slots(0.0)) == ("closed", 0, 8)


def test_a_probe_that_found_out_how_to_ask_is_sent_again():
    """It neither closes an open breaker nor makes its delay longer: the next probe is due at once."""
    one = opened(lane(probe_first_s=5.0))
    one.end(begun(one), replace(DOWN, counted=False), 5.0)

    assert (one.breaker.state, one.slots(5.0)) == ("open", 1)


def test_a_burst_of_refusals_burns_one_try():
    """Only the 429 that opened the pause is its document's own; the echoes of that burst are retried uncounted."""
    one = lane(concurrency=8, tries_max=2)
    burst = [begun(one, tries=0) for _ in range(8)]
    refused = TransientFailure("rate_limited", "429", retry_after_s=2.0)
    endings = [one.end(call, refused, 0.0) for call in burst]

    assert [isinstance(each, Retry) and each.counted for each in endings] == [True] + [False] * 7
    assert one.breaker.state == "closed"
    assert (one.slots(1.9), one.next_look_s(0.0)) == (0, 2.0)


def test_refusals_without_end_open_the_breaker():
    """Three rounds in a row that were all refused are an outage: documents stop paying for it."""
    one = lane(concurrency=1)
    for round_number in range(3):
        one.end(begun(one), TransientFailure("rate_limited", "429", retry_after_s=1.0), round_number * 10.0)

    assert one.breaker.state == "open"


def test_a_call_that_was_not_made_or_cut_off_says_nothing_about_the_evaluator():
    """Unasked and cut off calls free their slot and leave the breaker as it is."""
    one = lane(concurrency=2)
    for verdict in (NotStarted(), Cancelled()) * 3:
        call = begun(one)
        call.started_s = None if isinstance(verdict, NotStarted) else 0.0
        assert one.end(call, verdict, 0.0) is verdict

    assert one.breaker.state == "closed"
    assert one.slots(0.0) == 2


def test_a_claim_that_filled_its_slots_is_followed_by_another():
    """Where there may be more, the next look is now; else when something is due, and within the poll time."""
    one = lane()
    looks = []
    for found in (
        ClaimResult((CLAIM,), 0, None),
        ClaimResult((), 3, None),
        ClaimResult((), 0, None),
        ClaimResult((), 0, 1_250),
        ClaimResult((), 0, 0),
        ClaimResult((), 0, 99_000),
    ):
        one.look_again(found, slots=1, now_s=10.0, store_ms=1_000)
        looks.append(round(one.look_at_s - 10.0, 3))

    assert looks == [0.0, 0.0, POLL_S, 0.25, 0.01, POLL_S]


def test_a_reindex_keeps_its_share_and_no_more():
    """With work in both lanes a tenth of the claims is the reindex lane's, also with a single slot."""
    for concurrency in (1, 3, 16, 64):
        one = lane(concurrency=concurrency)
        reindexed = total = 0
        while total < 2_000:
            slots = one.slots(0.0)
            share = one.reindex_slots_min(slots)
            assert 0 <= share <= slots
            for number in range(slots):
                lane_number = due_documents.REINDEX if number < share else due_documents.LIVE
                one.end(begun(one, lane=lane_number), ANSWER, 0.0)
            reindexed, total = reindexed + share, total + slots

        assert abs(reindexed - total * REINDEX_SHARE) <= 2 + total * 0.02


def test_collections_of_one_evaluator_share_a_lane():
    """Limits belong to the evaluator: two collections that name the same one have one lane between them."""
    evaluator = FakeEvaluator()
    other = DEFINITION.model_copy(update={"name": "mails", "evaluator": "other"})
    notes = DEFINITION.model_copy(update={"name": "notes", "fingerprint": "f2"})
    lanes = lanes_of({each.name: Assignment(each, evaluator) for each in (DEFINITION, other, notes)}, 0.0)

    assert {each.name: dict(each.fingerprints) for each in lanes} == {
        "fake": {"tickets": "f1", "notes": "f2"},
        "other": {"mails": "f1"},
    }
