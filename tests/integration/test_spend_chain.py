"""The side chain and money: every call is charged once, memory costs nothing, a limit pauses and says so.

On SQLite and on PostgreSQL, with a fake evaluator whose answers cost a quarter of a dollar.
"""

import asyncio
import uuid
from dataclasses import replace
from typing import Any

import chains
import pytest
import sqlalchemy as sa
import stored
import structlog
from chains import QUICK
from fake_evaluator import FakeEvaluator, Held, said
from polling import eventually

from facetline.evaluators.contract import Evaluated, Limits
from facetline.facets.answers import ChoiceAnswer
from facetline.facets.errors import (
    EvaluationFailed,
    EvaluatorMisconfigured,
    EvaluatorUnavailable,
    Spent,
    StoreUnavailable,
)
from facetline.storage import evaluator_outages, usage_ledger
from facetline.storage.db import engine
from facetline.storage.jobs import jobs, model
from facetline.storage.queue import daily_budget
from facetline.streams.background import classifying
from facetline.streams.classify import availability
from facetline.streams.classify.call import CallLimits

pytestmark = pytest.mark.collections("tickets")

PRICE_USD = 0.25
ASKED = Evaluated({"topic": ChoiceAnswer(choice="nobody offered this")}, "fake-2", "test", {"input_tokens": 7}, 0.5)


@pytest.fixture
async def store(store: engine.Store, clock: stored.Clock) -> engine.Store:
    """An open store with the collection `tickets`, in the first hours of a day, so that no test meets midnight."""
    clock.shift_ms = await to_midnight_ms(store) + 1
    return store


async def to_midnight_ms(store: engine.Store) -> int:
    """Return how long it is until the next day begins for the store."""
    now_ms = await store.read(lambda tx: tx.now_ms)
    return usage_ledger.next_day_ms(now_ms) - now_ms


async def write(store: engine.Store, **bodies: str) -> dict[str, int]:
    """Write `tickets/NAME` documents."""
    return await store.write(stored.write, {f"tickets/{name}": body for name, body in bodies.items()})


async def ledger(store: engine.Store) -> dict[str, usage_ledger.Spent]:
    """Return the ledger's sums by model."""
    return dict(await store.read(usage_ledger.totals, "model"))


async def total(store: engine.Store) -> usage_ledger.Spent:
    """Return the ledger's sum."""
    return (await store.read(usage_ledger.today_by_evaluator)).get("fake", usage_ledger.Spent())


async def test_every_kind_of_call_that_cost_is_charged(store: engine.Store):
    """Stored and invalid answers, failures and retries that tell it: each once, by the model that answered."""
    evaluator = FakeEvaluator()
    evaluator.script("invalid", ASKED)
    evaluator.script("failed", EvaluationFailed("refused", "no", spent=Spent("fake-3", {"output_tokens": 5}, 0.125)))
    evaluator.script("retried", EvaluatorUnavailable("empty", spent=Spent(None, {"prompt_tokens": 9}, None)))
    evaluator.script("down", EvaluatorUnavailable("503"))
    evaluator.script("bug", RuntimeError("a bug"))
    await write(store, **{name: f"about {name}" for name in ("fine", "invalid", "failed", "retried", "down", "bug")})
    async with chains.running(store, evaluator) as chain:
        await chains.settled(store)

    assert await ledger(store) == {
        "fake-1": usage_ledger.Spent(3, 0, 9, 0, 3 * PRICE_USD),  # fine, and the second calls about retried and down
        "fake-2": usage_ledger.Spent(1, 0, 7, 0, 0.5),
        "fake-3": usage_ledger.Spent(1, 0, 0, 5, 0.125),
        "fake": usage_ledger.Spent(1, 1, 9, 0, 0.0),
    }
    assert chain.stats.cost_usd["fake"] == pytest.approx(3 * PRICE_USD + 0.625)
    assert (chain.stats.tokens["fake", "input"], chain.stats.tokens["fake", "output"]) == (25, 5)


async def test_an_answer_that_came_too_late_was_paid_for(store: engine.Store):
    """A discarded answer costs what it costs; so does the one that replaces it."""
    evaluator, first = FakeEvaluator("outage"), Held("billing")
    evaluator.script("t1", first)
    await write(store, t1="first")
    async with chains.running(store, evaluator) as chain:
        await eventually(lambda: len(evaluator.history) == 1)
        await write(store, t1="second")
        await chains.settled(store)
        first.release()
        await eventually(lambda: chain.stats.discarded == 1)

    assert await ledger(store) == {"fake-1": usage_ledger.Spent(2, 0, 6, 0, 2 * PRICE_USD)}


async def test_a_call_whose_end_nobody_heard_has_an_unknown_cost(store: engine.Store):
    """A timeout and a call cut off at a stop are charged as calls of which nobody knows what they cost."""
    evaluator = FakeEvaluator()
    evaluator.script("slow", 60.0)
    await write(store, slow="words")
    async with chains.running(store, evaluator, replace(QUICK, call_s=0.1)):
        await chains.settled(store)
    evaluator.script("cut", Held())
    await write(store, cut="other words")
    async with chains.running(store, evaluator, grace_s=0.0):
        await eventually(lambda: evaluator.calls["cut"] == 1)

    found = await total(store)

    assert (found.calls, found.unpriced_calls, found.cost_usd) == (3, 2, PRICE_USD)


async def test_memory_costs_nothing_across_restarts(store: engine.Store):
    """An equal body is paid for once, whichever process is asked about it later; a failure is asked about again."""
    evaluator, later = FakeEvaluator(), FakeEvaluator()
    evaluator.script("bad", EvaluationFailed("refused", "no"))
    await write(store, t1="words", bad="bad words")
    async with chains.running(store, evaluator):
        await chains.settled(store)
    await write(store, t2="words", bad2="bad words")
    async with chains.running(store, later, owner="two") as chain:
        await chains.settled(store)

    assert (evaluator.calls, later.calls) == ({"t1": 1, "bad": 1}, {"bad2": 1})
    assert (chain.stats.remembered, (await total(store)).calls) == (1, 2)


async def test_an_evaluator_that_is_free_costs_nothing(store: engine.Store):
    """What a recording says that it once cost is not spent again: known, and 0."""
    evaluator = FakeEvaluator()
    evaluator.limits = Limits(frozenset({"choice"}), 255, 10, is_free=True)
    await write(store, t1="words")
    async with chains.running(store, evaluator):
        await chains.settled(store)

    assert await total(store) == usage_ledger.Spent(1, 0, 3, 0, 0.0)


class Unheard(engine.Store):
    """A store that commits the first retries and the first two batches of answers, and says that it did not.

    Claims that it made then are known to nobody; their leases end at once.
    """

    def __init__(self, store: engine.Store, clock: stored.Clock) -> None:
        self.__dict__.update(store.__dict__)
        self.lies = {"retry": 1, "exchange": 2}
        self._clock = clock

    async def write(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Write, and perhaps lie about it."""
        answer = await super().write(function, *args, **kwargs)
        name = function.__name__
        if self.lies.get(name) and (name == "retry" or args[1]):
            self.lies[name] -= 1
            self._clock.shift_ms += int(1000 * (QUICK.call_s + QUICK.lease_margin_s))
            raise StoreUnavailable("the connection broke during the commit")
        return answer


async def test_a_charge_is_written_once_although_its_commit_was_not_heard(store: engine.Store, clock: stored.Clock):
    """Results that are told again, alone or with later ones, are charged once: the ledger has each call."""
    evaluator, unheard = FakeEvaluator(0.01), Unheard(store, clock)
    evaluator.script("t0", EvaluatorUnavailable("empty", spent=Spent(cost_usd=1.0)))
    await write(store, **{f"t{number}": f"body {number}" for number in range(12)})
    async with chains.running(unheard, evaluator, replace(QUICK, concurrency=2)):
        await chains.settled(store)

    found = await total(store)
    assert unheard.lies == {"retry": 0, "exchange": 0}
    assert found.calls == len(evaluator.history) >= 13
    assert found.cost_usd == pytest.approx(1.0 + PRICE_USD * (found.calls - 1))


async def test_a_days_limit_pauses_and_goes_on_the_next_day(store: engine.Store, clock: stored.Clock):
    """Reached: documents stay pending, untried; it is said once; at midnight UTC the rest is answered."""
    evaluator = FakeEvaluator()
    await write(store, **{f"t{number}": f"body {number}" for number in range(10)})
    limits = replace(QUICK, concurrency=1, max_usd_per_day=1.0)
    with structlog.testing.capture_logs() as logs:
        async with chains.running(store, evaluator, limits) as chain:
            await eventually(lambda: chain.stats.spent == {"fake"})
            chain.wake()
            await asyncio.sleep(0)
            paused = await store.read(stored.rows)
            made = len(evaluator.history)
            clock.shift_ms += await to_midnight_ms(store)
            chain.wake()
            await eventually(lambda: len(evaluator.history) == 8)
            await eventually(lambda: chain.stats.spent == {"fake"})
            clock.shift_ms += await to_midnight_ms(store)
            chain.wake()
            await chains.settled(store)
    said_ = [line["event"] for line in logs if str(line["event"]).startswith("spend_")]

    assert made == 4
    pending = [each for each in paused.values() if each["status"] == "pending"]
    assert [(each["tries"], each["retries"], each["attempt"]) for each in pending] == [(0, 0, 0)] * 6
    assert said_ == ["spend_limit_reached", "spend_limit_over"] * 2
    assert {each["status"] for each in (await store.read(stored.rows)).values()} == {"indexed"}


async def test_a_job_clears_nothing_that_nobody_will_ask_about(store: engine.Store, clock: stored.Clock):
    """With the day's money spent a job waits with all answers in place; the next day it goes on and ends."""
    evaluator, limits = FakeEvaluator(), replace(QUICK, concurrency=1, max_usd_per_day=1.0)
    await write(store, **{f"t{number}": f"body {number}" for number in range(4)})
    async with chains.running(store, FakeEvaluator(), owner="before"):
        await chains.settled(store)
    watched = chains.Watched(store)
    async with chains.reindexing(watched, evaluator, limits) as chain:
        await eventually(lambda: chain.stats.spent == {"fake"})
        job_id = uuid.uuid4().hex
        clock.shift_ms += 10
        await store.write(jobs.create, job_id, model.JobRequest("tickets", mode="force"))
        await eventually(lambda: [name for name, _ in watched.history].count("turn") > 1)
        statuses = {each["status"] for each in (await store.read(stored.rows)).values()}
        clock.shift_ms += await to_midnight_ms(store)
        chain.wake()
        await eventually(lambda: _has_ended(store, job_id))

    assert statuses == {"indexed"}
    assert len(evaluator.history) == 4


async def test_a_job_clears_little_while_its_evaluator_is_away(store: engine.Store, clock: stored.Clock):
    """With a refused key a job gives one document at most for it to be tried with; the other answers stay."""
    refused = FakeEvaluator(EvaluatorMisconfigured("the key is refused"))
    await write(store, **{f"t{number}": f"body {number}" for number in range(6)})
    async with chains.running(store, FakeEvaluator(), owner="before"):
        await chains.settled(store)
    await write(store, new="body")
    watched = chains.Watched(store)
    async with chains.reindexing(watched, refused) as chain:
        await eventually(lambda: chain.stats.breakers == {"fake": "open"})
        clock.shift_ms += 10
        await store.write(jobs.create, uuid.uuid4().hex, model.JobRequest("tickets", mode="force"))
        await eventually(lambda: [name for name, _ in watched.history].count("turn") > 2)
    statuses = [each["status"] for each in (await store.read(stored.rows)).values()]

    assert statuses.count("pending") <= 2


async def _has_ended(store: engine.Store, job_id: str) -> bool:
    return (await store.read(jobs.get, job_id)).state == "succeeded"


async def test_a_limit_is_over_all_processes_and_passed_by_calls_under_way_alone(store: engine.Store):
    """Two processes with eight calls at once each: known prices keep them to the limit; a raised one lets them go."""
    evaluator = FakeEvaluator(0.02)
    await store.write(usage_ledger.charge, usage_ledger.UsageBatch("before", "answer", (charge_of(1),)))
    await write(store, **{f"t{number}": f"body {number}" for number in range(40)})
    limits = replace(QUICK, max_usd_per_day=3.0)
    async with (
        chains.running(store, evaluator, limits) as one,
        chains.running(store, evaluator, limits, owner="two") as two,
    ):
        await eventually(lambda: one.stats.spent == two.stats.spent == {"fake"})
    spent = await total(store)
    async with chains.running(store, evaluator, replace(QUICK, max_usd_per_day=1000.0)):
        await chains.settled(store)

    assert 3.0 <= spent.cost_usd <= 3.0 + 15 * PRICE_USD  # both may have claimed before they saw each other
    assert spent.calls == round(spent.cost_usd / PRICE_USD)


def charge_of(number: int) -> usage_ledger.UsageEntry:
    """A call at the usual price."""
    return usage_ledger.UsageEntry(number, "tickets", "fake", "fake-1", 3, 0, PRICE_USD)


async def test_tokens_a_minute_hold_the_others_back(store: engine.Store):
    """The first text is larger than what a minute allows: the others stay pending and unclaimed, and pay nothing."""
    evaluator = FakeEvaluator(replace(said("billing", stored.QUESTIONS), usage={"input_tokens": 1_000}))
    await write(store, **{f"t{number}": f"{number}" * 4_000 for number in range(5)})
    async with chains.running(store, evaluator, replace(QUICK, tokens_per_minute=100)) as chain:
        await eventually(lambda: chain.stats.stored == 1)
        (lane,) = chain.lanes
        chain.wake()
        await asyncio.sleep(0)
        next_s = lane.next_look_s(0.0)
    rows = (await store.read(stored.rows)).values()

    assert next_s is not None
    assert len(evaluator.history) == 1
    assert sorted((each["status"], each["attempt"]) for each in rows) == [("indexed", 1), *[("pending", 0)] * 4]


async def test_a_limit_that_sees_no_costs_says_so(store: engine.Store):
    """An evaluator that tells no costs is asked all the same, with a warning: the limit cannot hold."""
    evaluator = FakeEvaluator(replace(said("billing", stored.QUESTIONS), cost_usd=None))
    await write(store, t1="one", t2="two")
    with structlog.testing.capture_logs() as logs:
        async with chains.running(store, evaluator, replace(QUICK, concurrency=1, max_usd_per_day=1.0)) as chain:
            await chains.settled(store)
            chain.wake()
            await eventually(lambda: chain.stats.unpriced == {"fake"})

    assert [line["event"] for line in logs].count("spend_unknown") == 1
    assert (await total(store)).known_usd is None


async def test_word_of_a_bad_key_is_left_for_other_processes(store: engine.Store):
    """While the key is refused the store says so, with its words; the first answer takes it back."""
    evaluator = FakeEvaluator(EvaluatorMisconfigured("401: invalid key"))
    await write(store, t1="words")
    with structlog.testing.capture_logs() as logs:
        async with chains.running(store, evaluator) as chain:
            told = await eventually(lambda: store.read(evaluator_outages.now, "fake"))
            known = chain.stats.misconfigured
            evaluator.always = "billing"
            await chains.settled(store)

    assert (told.reason, told.message, told.misconfigured) == ("unavailable", "401: invalid key", True)
    assert (known, chain.stats.misconfigured) == ({"fake"}, frozenset())
    assert await store.read(evaluator_outages.all) == []
    assert "fix its key" in next(line for line in logs if line["event"] == "breaker_opened")["fix"]


async def test_word_of_a_process_that_is_gone_ends_with_an_answer(store: engine.Store):
    """A process that stops while the key is refused leaves its word; the first answer of the next one ends it."""
    evaluator = FakeEvaluator(EvaluatorMisconfigured("401"))
    await write(store, t1="words")
    async with chains.running(store, evaluator):
        await eventually(lambda: store.read(evaluator_outages.now, "fake"))
    left = await store.read(evaluator_outages.all)
    async with chains.running(store, FakeEvaluator(), owner="two"):
        await chains.settled(store)

    assert len(left) == 1
    assert await store.read(evaluator_outages.all) == []


async def test_memory_is_bounded_by_the_one_who_keeps_house(store: engine.Store):
    """Beyond `memo_rows_max` the oldest answers are forgotten, and asked about again."""
    evaluator = FakeEvaluator()
    await write(store, t1="one", t2="two", t3="three")
    async with chains.running(store, evaluator):
        await chains.settled(store)
    given = await chains.assignments(store, evaluator)
    async with classifying(store, given, grace_s=1.0, memo_rows_max=0):
        await eventually(lambda: store.read(no_memory), what="everything is forgotten")
    await write(store, t4="one")
    async with chains.running(store, evaluator):
        await chains.settled(store)

    assert evaluator.calls == {"t1": 1, "t2": 1, "t3": 1, "t4": 1}


def no_memory(tx: engine.Tx) -> bool:
    """Say whether nothing is remembered."""
    return tx.execute(sa.text("SELECT count(*) FROM memo")).scalar_one() == 0


async def test_who_makes_no_calls_reads_in_the_store_why_nobody_does(store: engine.Store):
    """A command beside workers tells their word while it holds, and the spent limit of its own file."""
    limits = {"fake": CallLimits(max_usd_per_day=1.0)}
    fine = await store.read(availability.in_store, "tickets", limits)
    await store.write(evaluator_outages.record, "fake", "unavailable", "401", misconfigured=True, valid_ms=60_000)
    refused = await store.read(availability.in_store, "tickets", limits)
    await store.write(evaluator_outages.clear, "fake")
    await store.write(
        usage_ledger.charge, usage_ledger.UsageBatch("one", "answer", (replace(charge_of(1), cost_usd=1.5),))
    )
    spent = await store.read(availability.in_store, "tickets", limits)

    assert fine is None
    assert refused == availability.stopped("fake", "unavailable: 401", misconfigured=True)
    assert refused.says(2, workers=True) == (
        "fake is paused: it cannot be used (unavailable: 401); fix its key, its quota or its table in facetline.toml."
        " 2 documents wait; calls resume on their own"
    )
    midnight_ms = usage_ledger.next_day_ms(await store.read(lambda tx: tx.now_ms))
    assert spent == availability.spent("fake", daily_budget.Allowance(1.0, 1.5, 0, 0, midnight_ms))
    assert await store.read(availability.in_store, "unknown", limits) is None


async def test_a_forced_reindex_pays_again_and_tells_what_it_remembered(store: engine.Store):
    """Force asks anew and is charged; without it an equal body is answered from memory, and counted as such."""
    evaluator = FakeEvaluator()
    await write(store, t1="words")
    async with chains.reindexing(store, evaluator):
        await chains.settled(store)
        forced = await reindexed(store, "forced", "force")
        paid = (await total(store)).calls
        await write(store, t1="words", t2="words")
        await chains.settled(store)
        again = await reindexed(store, "again", "outdated")

    assert (forced, paid, again) == (0, 2, 0)
    assert (await total(store)).calls == 2


async def reindexed(store: engine.Store, job_id: str, mode: Any) -> int:
    """Run a job to its end; return how many of its answers came from memory."""
    await store.write(jobs.create, job_id, model.JobRequest("tickets", "", mode))

    async def is_over() -> bool:
        return (await store.read(jobs.get, job_id)).state == "succeeded"

    await eventually(is_over, what=f"{job_id} is over")
    return await store.read(jobs.remembered, job_id)
