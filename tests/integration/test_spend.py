"""The ledger and the spend limit: charged once whatever is told again, by the store's day. On both databases."""

import threading

import pytest
import stored

from facetline.storage import counters, evaluator_outages, usage_ledger
from facetline.storage.db import engine
from facetline.storage.queue import answer_cache, daily_budget, queue

pytestmark = pytest.mark.collections("notes")


def charge_of(number: int, cost_usd: float | None = 0.5, **fields: str) -> usage_ledger.UsageEntry:
    """A call of 10 tokens in and 2 out."""
    named = {"collection": "notes", "evaluator": "fake", "model": "m", **fields}
    return usage_ledger.UsageEntry(number, **named, input_tokens=10, output_tokens=2, cost_usd=cost_usd)


def bill(*charges: usage_ledger.UsageEntry, owner: str = "one", kind: str = "answer") -> usage_ledger.UsageBatch:
    """A bill of one process."""
    return usage_ledger.UsageBatch(owner, kind, charges)


async def sums(store: engine.Store, by: usage_ledger.By = "evaluator", **chosen: str) -> dict[str, usage_ledger.Spent]:
    """Return the ledger's sums."""
    return dict(await store.read(usage_ledger.totals, by, **chosen))


async def test_charges_are_folded_by_what_they_are_about(store: engine.Store):
    """Each sum has its own calls, tokens and cost; a cost that nobody told is counted apart, and not as 0."""
    charges = [charge_of(1), charge_of(2, None), charge_of(3, 0.25, model="n"), charge_of(4, 2.0, collection="mails")]

    await store.write(usage_ledger.charge, bill(*charges))
    by_model, by_collection = await sums(store, "model"), await sums(store, "collection")

    assert by_model == {"m": usage_ledger.Spent(3, 1, 30, 6, 2.5), "n": usage_ledger.Spent(1, 0, 10, 2, 0.25)}
    assert by_collection["mails"] == usage_ledger.Spent(1, 0, 10, 2, 2.0)
    assert await sums(store, collection="mails") == {"fake": usage_ledger.Spent(1, 0, 10, 2, 2.0)}
    assert await sums(store, evaluator="nobody") == {}
    assert (usage_ledger.Spent(2, 2).known_usd, usage_ledger.Spent(2, 1, cost_usd=3.0).known_usd) == (None, 3.0)


async def test_a_charge_that_is_told_again_is_written_once(store: engine.Store):
    """After a commit that nobody heard of the same calls come again, with later ones; other kinds and owners count."""
    first = bill(charge_of(1), charge_of(2))
    await store.write(usage_ledger.charge, first)
    await store.write(usage_ledger.charge, first)
    await store.write(usage_ledger.charge, bill(charge_of(1), charge_of(2), charge_of(5)))
    await store.write(usage_ledger.charge, bill(charge_of(3), kind="failure"))
    await store.write(usage_ledger.charge, bill(charge_of(1), owner="two"))

    found = await sums(store)

    assert found["fake"].calls == 5


async def test_days_are_those_of_the_stores_clock(store: engine.Store, clock: stored.Clock):
    """A call belongs to the UTC day in which it was charged; today begins anew at midnight."""
    await store.write(usage_ledger.charge, bill(charge_of(1)))
    now_ms = await store.read(lambda tx: tx.now_ms)
    clock.shift_ms = usage_ledger.next_day_ms(now_ms) - now_ms
    before = await store.read(usage_ledger.today, "fake")
    await store.write(usage_ledger.charge, bill(charge_of(2, 3.0)))
    days = await sums(store, "day")

    assert (before.calls, (await store.read(usage_ledger.today, "fake")).cost_usd) == (0, 3.0)
    assert list(days) == [usage_ledger.day_of(now_ms), usage_ledger.day_of(now_ms + usage_ledger.DAY_MS)]
    assert await sums(store, "day", since=list(days)[1]) == {list(days)[1]: usage_ledger.Spent(1, 0, 10, 2, 3.0)}


async def test_marks_are_forgotten_and_the_ledger_is_not(store: engine.Store, clock: stored.Clock):
    """How far a process was heard is kept for days; what it spent for good."""
    await store.write(usage_ledger.charge, bill(charge_of(1)))
    early = await store.write(usage_ledger.purge_marks)
    clock.shift_ms = (usage_ledger.MARK_DAYS + 1) * usage_ledger.DAY_MS

    assert (early, await store.write(usage_ledger.purge_marks)) == (0, 1)
    assert (await sums(store))["fake"].calls == 1


@pytest.mark.parametrize("kind", ["fail", "retry", "release"])
async def test_what_ends_a_claim_is_charged_with_it(store: engine.Store, kind: str):
    """A failure, a retry and a release write their bill in their own transaction, also when they came too late."""
    given = await store.write(stored.write, {"notes/a": "text"})
    [claim] = (await store.write(stored.claimed)).claims
    identity = ("notes/a", given["notes/a"], claim.attempt)
    ended = {
        "fail": (queue.fail, queue.Failed(*identity, "refused", "no")),
        "retry": (queue.retry, queue.Retried(*identity, 0, counted=True)),
        "release": (queue.release, queue.Released(*identity, called=True)),
    }
    function, ending = ended[kind]

    await store.write(function, [ending], bill(charge_of(1)))
    await store.write(function, [ending], bill(charge_of(1)))
    await store.write(function, [ending], bill(charge_of(2)))

    assert (await sums(store))["fake"].calls == 2


async def test_the_limit_counts_what_is_under_way(store: engine.Store):
    """At half a dollar a call, with one under way and one not charged yet, 1.60 of 3 dollars leave room for three."""
    await store.write(usage_ledger.charge, bill(charge_of(1), charge_of(2, 0.5)))
    await store.write(stored.write, {"notes/a": "text"})
    await store.write(stored.claimed)

    def left(tx: engine.Tx, limit_usd: float) -> tuple[int, bool]:
        found = daily_budget.allowance(tx, "fake", limit_usd, collections=["notes"], slots=8, unbilled_usd=0.1)
        return found.calls, found.reached

    assert await store.read(left, 3.0) == (3, False)
    assert await store.read(left, 1.5) == (0, False)  # the one under way may use it up
    assert await store.read(left, 1.1) == (0, True)
    assert await store.read(left, 100.0) == (8, False)


async def test_without_a_known_price_the_limit_lets_calls_start(store: engine.Store):
    """Nobody knows what the first calls will cost: as many start as there are slots, and the untold are counted."""
    await store.write(usage_ledger.charge, bill(charge_of(1, None)))

    found = await store.read(lambda tx: daily_budget.allowance(tx, "fake", 1.0, collections=["notes"], slots=8))

    assert (found.calls, found.reached, found.unpriced_calls) == (8, False, 1)


async def test_the_word_on_an_evaluator_is_kept_until_it_is_taken_back(store: engine.Store, clock: stored.Clock):
    """The newest word counts, since when is kept, and after its time it is no longer what is so now."""
    await store.write(evaluator_outages.record, "fake", "unavailable", "503", misconfigured=False, valid_ms=1_000)
    [first] = await store.read(evaluator_outages.all)
    clock.shift_ms = 500
    await store.write(evaluator_outages.record, "fake", "unavailable", "401", misconfigured=True, valid_ms=1_000)
    now = await store.read(evaluator_outages.now, "fake")
    clock.shift_ms = 60_000
    later, known = await store.read(evaluator_outages.now, "fake"), await store.read(evaluator_outages.all)
    await store.write(evaluator_outages.clear, "fake")

    assert now is not None
    assert (now.message, now.misconfigured, now.since_ms, later) == ("401", True, first.since_ms, None)
    assert (known, await store.read(evaluator_outages.all)) == ([now], [])


@pytest.mark.postgres
async def test_bills_in_opposite_order_do_not_deadlock(postgres_url: str):
    """Processes that charge the same rows at once, with tallies and memo entries before, all get through."""
    async with stored.opened(postgres_url) as store:
        failures = []

        def work(owner: str) -> None:
            try:
                for round_ in range(20):
                    models = ("a", "b") if owner == "one" else ("b", "a")
                    charges = [charge_of(2 * round_ + at + 1, model=model) for at, model in enumerate(models)]
                    with store.engine.connect() as connection, connection.begin():
                        tx = engine.Tx(connection, engine.no_shift)
                        answer_cache.put(tx, [answer_cache.Entry(answer_cache.Key("", owner, "f"), "{}", "{}", round_)])
                        counters.add(tx, "answers_discarded", 1)
                        usage_ledger.charge(tx, bill(*charges, owner=owner))
            except Exception as error:  # noqa: BLE001 (a thread's failure is the test's)
                failures.append(error)

        threads = [threading.Thread(target=work, args=(owner,)) for owner in ("one", "two", "three")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)

        assert failures == []
        assert (await sums(store))["fake"].calls == 120
