"""The side chain over a real store: answers, failures, retries, and what may not happen whatever an evaluator does.

Each test runs on SQLite and on PostgreSQL. The evaluator is a fake that does what its script says.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import chains
import pytest
import stored
from chains import QUICK
from fake_evaluator import FakeEvaluator, Held, Strict, said
from polling import eventually

from facetline.evaluators.contract import Evaluated
from facetline.facets.answers import ChoiceAnswer
from facetline.facets.errors import EvaluationFailed, EvaluatorMisconfigured, EvaluatorUnavailable
from facetline.facets.questions import Question
from facetline.storage import counters
from facetline.storage.db import engine

pytestmark = pytest.mark.collections("tickets")


async def write(store: engine.Store, **bodies: str) -> dict[str, int]:
    """Write `tickets/NAME` documents; return their `indexed_as` by name."""
    found = await store.write(stored.write, {f"tickets/{name}": body for name, body in bodies.items()})
    return {uri.removeprefix("tickets/"): indexed_as for uri, indexed_as in found.items()}


async def called(evaluator: FakeEvaluator, count: int = 1) -> None:
    """Wait until so many calls have begun."""
    await eventually(lambda: len(evaluator.history) >= count, every_s=0.01, what=f"{count} calls have begun")


def choice_of(found: dict[str, object]) -> str:
    """Return the stored answer of a document's row."""
    return str(found["facets"]).split('"choice"')[2].split('"')[1]


async def test_a_pending_document_is_answered(store: engine.Store):
    """A written document is asked about once, and its answer is stored with who gave it."""
    evaluator = FakeEvaluator("outage")
    await write(store, t1="the site is down")
    async with chains.running(store, evaluator) as chain:
        await chains.settled(store)
    found = await chains.row(store, "tickets/t1")

    assert (found["status"], choice_of(found), found["calls_made"]) == ("indexed", "outage", 1)
    assert '"tokens": 3' in found["evaluation"] or '"tokens":3' in found["evaluation"]
    assert (chain.stats.calls, chain.stats.stored, chain.stats.in_flight) == (1, 1, 0)


async def test_a_write_of_another_process_is_seen(store: engine.Store):
    """Nobody has to wake the side chain: a write that it was not told of is found by itself."""
    evaluator, watched = FakeEvaluator(), chains.Watched(store)
    async with chains.running(watched, evaluator):
        await eventually(lambda: watched.writes, what="the queue was found empty")
        await write(store, t1="written later")
        await chains.settled(store, deadline_s=10.0)

    assert evaluator.calls == {"t1": 1}


async def test_calls_at_once_are_bounded_and_used(store: engine.Store):
    """As many calls run at once as the limit says, and never more."""
    evaluator = FakeEvaluator(0.05)
    await write(store, **{f"t{number}": f"body {number}" for number in range(40)})
    async with chains.running(store, evaluator, replace(QUICK, concurrency=5)):
        await chains.settled(store)

    assert evaluator.in_flight_most == 5
    assert set(evaluator.calls.values()) == {1}


async def test_a_late_answer_to_a_rewritten_document_is_discarded(store: engine.Store):
    """The answer about the first body arrives last, and the document has only that about the second."""
    evaluator, first = FakeEvaluator("outage"), Held("billing")
    evaluator.script("t1", first)
    await write(store, t1="first")
    async with chains.running(store, evaluator) as chain:
        await called(evaluator)
        newest = await write(store, t1="second")
        await chains.settled(store)
        first.release()
        await eventually(lambda: chain.stats.discarded == 1)
    found = await chains.row(store, "tickets/t1")

    assert (choice_of(found), found["indexed_as"]) == ("outage", newest["t1"])
    assert (await store.read(counters.all))["answers_discarded"] == 1


async def test_an_answer_that_comes_before_the_second_call_is_discarded(store: engine.Store):
    """The first body's answer arrives while the second body waits: it is not taken for the second's."""
    evaluator, first, second = FakeEvaluator(), Held("billing"), Held("outage")
    evaluator.script("t1", first, second)
    await write(store, t1="first")
    async with chains.running(store, evaluator) as chain:
        await called(evaluator)
        await write(store, t1="second")
        await called(evaluator, 2)
        first.release()
        await eventually(lambda: chain.stats.discarded == 1)
        waiting = await chains.row(store, "tickets/t1")
        second.release()
        await chains.settled(store)

    assert (waiting["status"], waiting["facets"]) == ("pending", None)
    assert choice_of(await chains.row(store, "tickets/t1")) == "outage"


async def test_an_answer_to_a_deleted_document_is_discarded(store: engine.Store):
    """No facets reappear when the answer arrives after the delete."""
    evaluator, held = FakeEvaluator(), Held()
    evaluator.script("t1", held)
    await write(store, t1="first")
    async with chains.running(store, evaluator) as chain:
        await called(evaluator)
        await store.write(stored.delete, "tickets/t1")
        held.release()
        await eventually(lambda: chain.stats.discarded == 1)
    found = await chains.row(store, "tickets/t1")

    assert (found["status"], found["facets"]) == ("deleted", None)


async def test_a_recreated_document_has_only_its_own_answers(store: engine.Store):
    """Deleted and created again: the first life's answer arrives last and changes nothing."""
    evaluator, first_life = FakeEvaluator("outage"), Held("billing")
    evaluator.script("t1", first_life)
    await write(store, t1="first life")
    async with chains.running(store, evaluator) as chain:
        await called(evaluator)
        await store.write(stored.delete, "tickets/t1")
        second = await write(store, t1="second life")
        await chains.settled(store)
        first_life.release()
        await eventually(lambda: chain.stats.discarded == 1)
    found = await chains.row(store, "tickets/t1")

    assert (choice_of(found), found["indexed_as"]) == ("outage", second["t1"])


async def test_a_body_that_comes_back_is_not_asked_about_twice(store: engine.Store):
    """A → B → A while the call about the first A runs: its answer is stale, but known when the second A asks."""
    evaluator, first = FakeEvaluator("outage"), Held("billing")
    evaluator.script("t1", first)
    await write(store, t1="A")
    async with chains.running(store, evaluator) as chain:
        await called(evaluator)
        await write(store, t1="B")
        await called(evaluator, 2)
        newest = await write(store, t1="A")
        first.release()
        await chains.settled(store)
    found = await chains.row(store, "tickets/t1")

    assert (choice_of(found), found["indexed_as"]) == ("billing", newest["t1"])
    assert evaluator.bodies == ["A", "B"]
    assert chain.stats.remembered == 1


async def test_equal_bodies_are_asked_about_once(store: engine.Store):
    """Twenty documents with one body cost one call, however often the queue is looked at while it runs."""
    held = Held()
    evaluator = FakeEvaluator(held)
    await write(store, **{f"t{number}": "the same words" for number in range(20)})
    async with chains.running(store, evaluator) as chain:
        await called(evaluator)
        await write(store, other="other words")
        chain.wake()
        await called(evaluator, 2)
        calls_meanwhile = evaluator.bodies
        held.release()
        await chains.settled(store)

    assert calls_meanwhile == evaluator.bodies == ["the same words", "other words"]
    assert {found["status"] for found in (await store.read(stored.rows)).values()} == {"indexed"}


class Slow(FakeEvaluator):
    """Takes twenty seconds a call, by a clock of its own, and notes how many answers were stored when it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.chain: Any = None
        self.stored: list[int] = []
        self._shift_s = 0.0

    def clock(self) -> float:
        """Return the time by which the calls are slow."""
        return time.monotonic() + self._shift_s

    async def evaluate(self, body: str, questions: Mapping[str, Question], *, key: str, deadline_s: float) -> Evaluated:
        """Let the time pass, and answer."""
        self.stored.append(self.chain.stats.stored)
        self._shift_s += 20.0
        return await super().evaluate(body, questions, key=key, deadline_s=deadline_s)


async def test_slow_calls_begin_before_the_last_answers_are_stored(store: engine.Store):
    """A call slot does not wait for the store to take the answer of the call before."""
    evaluator = Slow()
    await write(store, t1="one text", t2="another")
    limits = replace(QUICK, concurrency=1)
    async with chains.running(store, evaluator, limits, clock=evaluator.clock) as evaluator.chain:
        await chains.settled(store)

    assert evaluator.stored == [0, 0]


async def test_equal_bodies_wait_for_an_answer_that_is_not_stored_yet(store: engine.Store):
    """What is claimed before an answer is stored is never about the same body, and waits no longer than for that."""
    evaluator = Slow()
    await write(store, t1="same", t2="same")
    started_s = evaluator.clock()
    limits = replace(QUICK, concurrency=1)
    async with chains.running(store, evaluator, limits, clock=evaluator.clock) as evaluator.chain:
        await chains.settled(store)

    assert evaluator.clock() > started_s + 20
    assert len(evaluator.history) == 1
    assert (await chains.row(store, "tickets/t2"))["status"] == "indexed"


async def test_a_restart_does_not_ask_again(store: engine.Store):
    """What was answered stays known: a new process asks nothing about documents, or bodies, that were."""
    await write(store, t1="words")
    async with chains.running(store, FakeEvaluator()):
        await chains.settled(store)
    await write(store, t2="words")
    after_restart = FakeEvaluator()
    async with chains.running(store, after_restart, owner="two"):
        await chains.settled(store)

    assert after_restart.history == []
    assert (await chains.row(store, "tickets/t2"))["calls_made"] == 0


async def test_a_hundred_raising_documents_fail_alone(store: engine.Store):
    """100 of 200 calls raise: those documents are `failed` with class and message, the others answered at once."""
    evaluator = FakeEvaluator()
    for number in range(0, 200, 2):
        evaluator.script(f"t{number}", ValueError(f"cannot read {number}"))
    await write(store, **{f"t{number}": f"body {number}" for number in range(200)})
    started_s = time.monotonic()
    async with chains.running(store, evaluator) as chain:
        await chains.settled(store)
    took_s = time.monotonic() - started_s
    found = await store.read(stored.rows)
    failed = {uri: each for uri, each in found.items() if each["status"] == "failed"}

    assert set(failed) == {f"tickets/t{number}" for number in range(0, 200, 2)}
    assert {each["reason"] for each in failed.values()} == {"evaluator_error"}
    assert failed["tickets/t8"]["reason_message"] == "ValueError: cannot read 8"
    assert sum(each["status"] == "indexed" for each in found.values()) == 100
    assert set(evaluator.calls.values()) == {1}
    assert chain.stats.breakers == {"fake": "closed"}
    assert took_s < 15


@pytest.mark.parametrize("error", [asyncio.CancelledError(), RuntimeError("\0\ud800 nonsense")], ids=["cancel", "text"])
async def test_whatever_an_evaluator_raises_fails_its_document_only(store: engine.Store, error: BaseException):
    """A cancellation out of nowhere, or a message that no database takes, ends neither the worker nor neighbours."""
    evaluator = FakeEvaluator()
    evaluator.script("bad", error)
    await write(store, bad="bad", good="good")
    async with chains.running(store, evaluator):
        await chains.settled(store)

    assert (await chains.row(store, "tickets/bad"))["reason"] == "evaluator_error"
    assert (await chains.row(store, "tickets/good"))["status"] == "indexed"


@pytest.mark.parametrize("reason", ["refused", "content_filter", "too_long"])
async def test_a_refusal_fails_with_its_reason_and_is_not_retried(store: engine.Store, reason: str):
    """What the evaluator will never answer is `failed` with its own reason after one call."""
    evaluator = FakeEvaluator(EvaluationFailed(reason, "no"))
    await write(store, t1="words")
    async with chains.running(store, evaluator):
        await chains.settled(store)
    found = await chains.row(store, "tickets/t1")

    assert (found["status"], found["reason"], found["calls_made"]) == ("failed", reason, 1)


JUNK = {
    "unknown option": Evaluated({"topic": ChoiceAnswer(choice="Billing")}, "fake-1"),
    "confidence without a source": Evaluated({"topic": ChoiceAnswer(choice="billing", confidence=0.5)}, "fake-1"),
    "not a probability": Evaluated({"topic": ChoiceAnswer(choice="billing", confidence=1.7)}, "fake-1", "said"),
    "nothing": Evaluated({}, "fake-1"),
    "too much": Evaluated({"topic": ChoiceAnswer(choice="billing"), "more": ChoiceAnswer(choice="x")}, "fake-1"),
    "no model": replace(said("billing", stored.QUESTIONS), model=""),
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=list(JUNK))
async def test_junk_is_never_stored(store: engine.Store, junk: Evaluated):
    """An answer that does not fit the questions fails its document, whole, and is not asked for again by itself."""
    evaluator = FakeEvaluator(junk)
    await write(store, t1="words")
    async with chains.running(store, evaluator):
        await chains.settled(store)
    found = await chains.row(store, "tickets/t1")

    assert (found["status"], found["reason"], found["facets"]) == ("failed", "invalid_answer", None)
    assert len(evaluator.history) == 1


async def test_a_silent_evaluator_costs_its_document_only(store: engine.Store):
    """A call that never answers is cut at its wall-clock limit and retried within bounds; others are answered."""
    evaluator = FakeEvaluator()
    evaluator.script("silent", *[Held() for _ in range(10)])
    await write(store, silent="silent", **{f"t{number}": f"body {number}" for number in range(20)})
    tasks_before = len(asyncio.all_tasks())
    async with chains.running(store, evaluator, replace(QUICK, call_s=0.1, tries_max=3)):
        await chains.settled(store)
    found = await chains.row(store, "tickets/silent")

    assert (found["status"], found["reason"]) == ("failed", "timeout")
    assert (found["calls_made"], found["retries"], found["crashes"]) == (3, 2, 0)
    assert sum(each["status"] == "indexed" for each in (await store.read(stored.rows)).values()) == 20
    assert len(asyncio.all_tasks()) == tasks_before


async def test_a_transient_failure_is_retried_and_recorded(store: engine.Store):
    """A call that failed in passing is made again, and recorded as a retry."""
    evaluator = FakeEvaluator()
    evaluator.script("t1", EvaluatorUnavailable("503"), EvaluatorUnavailable("reset"))
    await write(store, t1="words")
    async with chains.running(store, evaluator):
        await chains.settled(store)
    found = await chains.row(store, "tickets/t1")

    assert (found["status"], found["calls_made"], found["retries"]) == ("indexed", 3, 2)


@pytest.mark.parametrize("reason", ["timeout", "rate_limited", "unavailable"])
async def test_trouble_that_does_not_pass_ends_with_its_reason(store: engine.Store, reason: str):
    """After the last try the document is `failed` with what went wrong, and the calls were counted."""
    wish_s = 0.01 if reason == "rate_limited" else None
    evaluator = FakeEvaluator(EvaluatorUnavailable("no", reason=reason, retry_after_s=wish_s))
    await write(store, t1="words")
    async with chains.running(store, evaluator, replace(QUICK, tries_max=4)):
        await chains.settled(store)
    found = await chains.row(store, "tickets/t1")

    assert (found["status"], found["reason"]) == ("failed", reason)
    assert found["calls_made"] == len(evaluator.history) == 4


async def test_a_retry_after_pauses_the_whole_queue(store: engine.Store):
    """After a 429 with Retry-After nobody is asked about before that time, and then everybody is."""
    evaluator = FakeEvaluator()
    evaluator.script("t0", EvaluatorUnavailable("slow down", reason="rate_limited", retry_after_s=1.0))
    await write(store, t0="first")
    async with chains.running(store, evaluator) as chain:
        await called(evaluator)
        await eventually(lambda: chain.stats.retried == 1, every_s=0.01)
        await write(store, **{f"t{number}": f"body {number}" for number in range(1, 10)})
        chain.wake()
        await chains.settled(store)
    first, *others = evaluator.history

    assert min(asked.at_s for asked in others) >= first.at_s + 1.0
    assert evaluator.calls == {"t0": 2, **{f"t{number}": 1 for number in range(1, 10)}}


async def test_a_strict_provider_answers_everything(store: engine.Store):
    """A provider that allows far fewer calls than the settings: all are answered, few are refused, none fails."""
    evaluator = Strict(allowed=8, window_s=0.4)
    await write(store, **{f"t{number}": f"body {number}" for number in range(80)})
    async with chains.running(store, evaluator, replace(QUICK, concurrency=16)) as chain:
        await chains.settled(store, deadline_s=40.0)
    found = await store.read(stored.rows)

    assert {each["status"] for each in found.values()} == {"indexed"}
    assert set(evaluator.calls.values()) == {1}
    assert evaluator.refused < 80
    assert chain.stats.breakers == {"fake": "closed"}


async def test_an_idle_queue_costs_next_to_nothing(store: engine.Store):
    """With nothing to do the store is asked about once a second, not more."""
    watched = chains.Watched(store)
    async with chains.running(watched, FakeEvaluator()):
        began_s = time.monotonic()
        await eventually(lambda: time.monotonic() > began_s + 2.5)

    assert 2 <= watched.writes <= 6


async def test_an_outage_burns_nothing(store: engine.Store):
    """While the breaker is open documents stay pending, bounds stand still, probes are few and take other documents."""
    evaluator = FakeEvaluator(EvaluatorUnavailable("503"))
    await write(store, **{f"t{number}": f"body {number}" for number in range(30)})
    limits = replace(QUICK, concurrency=4, tries_max=2)
    async with chains.running(store, evaluator, limits) as chain:
        await eventually(lambda: len(evaluator.history) >= 10, every_s=0.01)
        probes = [asked.key for asked in evaluator.history[4:10]]
        outage = await store.read(stored.rows)
        evaluator.always = "billing"
        await chains.settled(store)
    found = await store.read(stored.rows)

    assert len(set(probes)) == len(probes)
    assert {each["status"] for each in outage.values()} == {"pending"}
    assert max(each["tries"] for each in outage.values()) <= 1
    assert sum(each["tries"] for each in outage.values()) <= 2
    assert chain.stats.breakers == {"fake": "closed"}
    assert {each["status"] for each in found.values()} == {"indexed"}
    assert all(each["calls_made"] == 1 + each["retries"] for each in found.values())


async def test_what_was_claimed_while_the_breaker_opened_is_put_back(store: engine.Store):
    """The evaluator is found out while claims are on their way: they are not called, and pay nothing for it."""
    evaluator, watched = FakeEvaluator(), chains.Watched(store)
    held = Held(EvaluatorMisconfigured("401"))
    evaluator.script("first", held)
    await write(store, first="words")
    async with chains.running(watched, evaluator, replace(QUICK, probe_first_s=60.0)) as chain:
        await called(evaluator)
        watched.late.clear()
        looks = watched.writes
        await write(store, second="other words")
        chain.wake()
        await eventually(lambda: watched.writes > looks, every_s=0.01, what="the second is claimed")
        held.release()
        await eventually(lambda: chain.stats.breakers["fake"] == "open", every_s=0.01)
        watched.late.set()
        await eventually(lambda: chain.stats.released == 1, every_s=0.01)
    found = await chains.row(store, "tickets/second")

    assert evaluator.calls == {"first": 1}
    assert (found["status"], found["owner"], found["calls_made"], found["crashes"]) == ("pending", None, 0, 0)


async def test_a_refused_key_opens_the_breaker_at_once(store: engine.Store):
    """No document fails for a bad key, however often it is refused; when it is mended all are answered."""
    evaluator = FakeEvaluator(EvaluatorMisconfigured("401"))
    await write(store, **{f"t{number}": f"body {number}" for number in range(10)})
    limits = replace(QUICK, concurrency=1, tries_max=1)
    async with chains.running(store, evaluator, limits) as chain:
        await called(evaluator)
        await eventually(lambda: chain.stats.breakers["fake"] == "open", every_s=0.01)
        await called(evaluator, 4)
        refused = await store.read(stored.rows)
        evaluator.always = "billing"
        await chains.settled(store)

    assert {(each["status"], each["tries"]) for each in refused.values()} == {("pending", 0)}
    assert {each["status"] for each in (await store.read(stored.rows)).values()} == {"indexed"}


async def test_only_the_active_fingerprint_is_asked_about(store: engine.Store):
    """A process with an older definition claims nothing and says so; once its definition is active it goes on."""
    evaluator, watched = FakeEvaluator(), chains.Watched(store)
    async with chains.running(watched, evaluator) as chain:
        await store.write(stored.defined, "tickets", fingerprint="f2")
        await eventually(lambda: chain.stats.not_active == {"tickets"})
        await write(store, t1="words")
        looks = watched.writes
        chain.wake()
        await eventually(lambda: watched.writes >= looks + 2, every_s=0.01, what="the queue was looked at again")
        claimed = await store.write(stored.claimed, owner="other")
        calls_meanwhile = len(evaluator.history)
        await store.write(stored.answer_all, claimed.claims)
        await write(store, t2="other words")
        await store.write(stored.defined, "tickets", fingerprint=stored.FIRST)
        await chains.settled(store)

    assert [claim.key for claim in claimed.claims] == ["t1"]
    assert calls_meanwhile == 0
    assert evaluator.calls == {"t2": 1}
    assert chain.stats.not_active == frozenset()


async def test_workers_share_the_queue(store: engine.Store, store_url: str, clock: stored.Clock):
    """Three workers over one store ask about each document exactly once between them."""
    evaluators = [FakeEvaluator(0.005) for _ in range(3)]
    await write(store, **{f"t{number}": f"body {number}" for number in range(150)})
    async with (
        stored.opened(store_url, clock) as second,
        stored.opened(store_url, clock) as third,
        chains.running(store, evaluators[0], owner="one"),
        chains.running(second, evaluators[1], owner="two"),
        chains.running(third, evaluators[2], owner="three"),
    ):
        await chains.settled(store)
    calls = sum((evaluator.calls for evaluator in evaluators), start=Counter())

    assert len(calls) == 150
    assert set(calls.values()) == {1}


async def test_results_outlive_a_store_that_is_away(store: engine.Store):
    """An answer that could not be stored is kept and stored later, without another call."""
    evaluator, held = FakeEvaluator(), Held()
    evaluator.script("t1", held)
    away = chains.Watched(store)
    await write(store, t1="words")
    async with chains.running(away, evaluator):
        await called(evaluator)
        away.refusals = 2
        held.release()
        await chains.settled(store)

    assert away.refusals == 0
    assert len(evaluator.history) == 1
    assert (await chains.row(store, "tickets/t1"))["status"] == "indexed"
