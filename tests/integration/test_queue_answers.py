"""What comes of a claim: stored if it is still about the document, else discarded. On SQLite and on PostgreSQL."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import stored

from facetline.storage import counters
from facetline.storage.db import engine, json_rows
from facetline.storage.queue import queue

pytestmark = pytest.mark.collections("notes")

LEASE_MS = 60_000


async def claim_of(store: engine.Store, uri: str = "notes/a", body: str = "text", **options: Any) -> queue.Claim:
    """Write a document and claim it."""
    await store.write(stored.write, {uri: body})
    [claim] = (await store.write(stored.claimed, **options)).claims
    return claim


def failed(claim: queue.Claim, message: str = "no") -> queue.Failed:
    """The end of a claim without an answer."""
    return queue.Failed(claim.uri, claim.indexed_as, claim.attempt, "refused", message)


def retried(claim: queue.Claim, *, counted: bool = True) -> queue.Retried:
    """Ask again in half a minute."""
    return queue.Retried(claim.uri, claim.indexed_as, claim.attempt, 30_000, counted=counted)


def released(claim: queue.Claim, *, called: bool = True) -> queue.Released:
    """Give a claim up."""
    return queue.Released(claim.uri, claim.indexed_as, claim.attempt, called=called)


async def test_answer_is_stored_with_all_that_is_known_of_it(store: engine.Store):
    """A current answer makes the document indexed, under the claim's fingerprint and at the store's time."""
    claim = await claim_of(store)

    settled = await store.write(queue.answer, [stored.answer_to(claim, "outage")])
    row = await store.read(stored.row, "notes/a")

    assert settled == queue.Settled((("notes/a", claim.indexed_as),), ())
    assert (row["status"], row["fingerprint"], row["version"]) == ("indexed", stored.FIRST, claim.indexed_as + 1)
    assert row["indexed_as"] == claim.indexed_as
    assert json_rows.loads(row["facets"])["topic"]["choice"] == "outage"
    evaluation = json_rows.loads(row["evaluation"])
    assert json_rows.moment(row["classified_ms"]).isoformat().startswith(evaluation["classified_at"][:22])
    assert (row["owner"], row["lease_until_ms"], row["due_ms"], row["feed_seq"]) == (None, None, None, None)
    assert (row["calls_made"], row["retries"], row["crashes"]) == (1, 0, 0)


async def test_answer_about_an_older_body_is_discarded(store: engine.Store):
    """An answer asked for before a rewrite changes nothing and is counted."""
    old = await claim_of(store, body="A")
    await store.write(stored.write, {"notes/a": "B"})
    before = await store.read(stored.row, "notes/a")

    settled = await store.write(queue.answer, [stored.answer_to(old)])

    assert settled == queue.Settled((), (("notes/a", old.indexed_as),))
    assert await store.read(stored.row, "notes/a") == before
    assert (await store.read(counters.all))["answers_discarded"] == 1


async def test_answer_from_an_earlier_life_is_discarded(store: engine.Store):
    """An answer asked for before a delete is discarded, after the delete and after a re-creation with that body."""
    old = await claim_of(store, body="A")
    await store.write(stored.delete, "notes/a")
    deleted = await store.write(queue.answer, [stored.answer_to(old)])
    await store.write(stored.write, {"notes/a": "A"})
    recreated = await store.write(queue.answer, [stored.answer_to(old, "outage")])
    row = await store.read(stored.row, "notes/a")

    assert (deleted.stored, recreated.stored) == ((), ())
    assert (row["status"], row["facets"]) == ("pending", None)


async def test_back_to_an_earlier_body_is_another_write(store: engine.Store):
    """A, B, A: the first A's answer is discarded for the second A, which is answered from the memo without a call."""
    first = await claim_of(store, body="A")
    await store.write(stored.write, {"notes/a": "B"})
    await store.write(stored.write, {"notes/a": "A"})

    settled = await store.write(queue.answer, [stored.answer_to(first)])
    pending = await store.read(stored.row, "notes/a")
    result = await store.write(stored.claimed)
    row = await store.read(stored.row, "notes/a")

    assert (settled.stored, pending["status"]) == ((), "pending")
    assert (result.claims, result.remembered) == ((), 1)
    assert (row["status"], row["calls_made"]) == ("indexed", 0)


async def test_first_valid_answer_wins(store: engine.Store, clock: stored.Clock):
    """After a takeover both callers may answer; the first is stored, the second is discarded."""
    slow = await claim_of(store, lease_ms=LEASE_MS)
    clock.shift_ms = LEASE_MS
    [fast] = (await store.write(stored.claimed, owner="two")).claims

    first = await store.write(queue.answer, [stored.answer_to(slow, "outage")])
    second = await store.write(queue.answer, [stored.answer_to(fast, "billing")])
    row = await store.read(stored.row, "notes/a")

    assert (len(first.stored), len(second.stored)) == (1, 0)
    assert '"outage"' in row["facets"]


async def test_answer_under_a_replaced_fingerprint_is_stored_under_it(store: engine.Store):
    """A definition that changes during a call does not throw the answer away; it is stored as what it is."""
    claim = await claim_of(store)
    await store.write(stored.defined, "notes", fingerprint="newer")

    settled = await store.write(queue.answer, [stored.answer_to(claim)])
    row = await store.read(stored.row, "notes/a")

    assert len(settled.stored) == 1
    assert (row["status"], row["fingerprint"]) == ("indexed", stored.FIRST)


async def test_batch_tells_stored_from_discarded_one_by_one(store: engine.Store):
    """In one batch of answers each is judged for itself; the second for one identity is discarded."""
    given = await store.write(stored.write, {f"notes/{n:02}": f"body {n}" for n in range(20)})
    claims = (await store.write(stored.claimed)).claims
    await store.write(stored.write, {f"notes/{n:02}": "rewritten" for n in range(0, 20, 2)})

    answers = [stored.answer_to(claim) for claim in claims]
    settled = await store.write(queue.answer, [*answers, answers[1]])

    expected = {(uri, given[uri]) for uri in given if int(uri[-2:]) % 2}
    assert set(settled.stored) == expected
    assert len(settled.stored) == 10
    assert sorted(settled.discarded) == sorted([*(given.items() - expected), ("notes/01", given["notes/01"])])


async def test_failure_is_kept_with_its_reason(store: engine.Store):
    """A failed document is no longer pending, says why, and costs a version; nothing about it is remembered."""
    claim = await claim_of(store)

    settled = await store.write(queue.fail, [failed(claim, "pro\0vider \ud800 " + "x" * 2_000)])
    row = await store.read(stored.row, "notes/a")
    await store.write(stored.write, {"notes/b": "text"})
    other = await store.write(stored.claimed)

    assert settled.stored == (("notes/a", claim.indexed_as),)
    assert (row["status"], row["reason"], row["facets"]) == ("failed", "refused", None)
    assert row["version"] == claim.indexed_as + 1
    assert len(row["reason_message"]) == queue.MESSAGE_CHARS_MAX
    assert (len(other.claims), other.remembered) == (1, 0)


async def test_retry_waits_and_is_accounted(store: engine.Store, clock: stored.Clock):
    """A retry is due after its delay; an uncounted one moves no bound; both are in the account of calls."""
    first = await claim_of(store)
    await store.write(queue.retry, [retried(first)])
    at_once = await store.write(stored.claimed)
    clock.shift_ms = 30_000
    [second] = (await store.write(stored.claimed)).claims
    await store.write(queue.retry, [retried(second, counted=False)])
    row = await store.read(stored.row, "notes/a")

    assert at_once.claims == ()
    assert (second.tries, second.retry_wait_ms, second.retries) == (1, 30_000, 1)
    assert (row["tries"], row["retry_wait_ms"], row["retries"], row["calls_made"]) == (1, 30_000, 2, 2)
    assert (row["status"], row["version"], row["owner"]) == ("pending", first.indexed_as, None)


@pytest.mark.parametrize(("called", "made", "crashes"), [(True, 1, 1), (False, 0, 0)])
async def test_release_is_due_now(store: engine.Store, called: bool, made: int, crashes: int):
    """A released document is due at once; a call that had begun is a recorded crash, one that had not was no call."""
    claim = await claim_of(store)

    await store.write(queue.release, [released(claim, called=called)])
    row = await store.read(stored.row, "notes/a")
    again = await store.write(stored.claimed, owner="two")

    assert (row["calls_made"], row["crashes"], row["owner"]) == (made, crashes, None)
    assert [each.uri for each in again.claims] == ["notes/a"]


END = pytest.mark.parametrize(
    ("function", "ending", "tally"),
    [
        (queue.fail, failed, "failures_discarded"),
        (queue.retry, retried, "retries_discarded"),
        (queue.release, released, "releases_discarded"),
    ],
    ids=["fail", "retry", "release"],
)


@END
async def test_end_of_a_lost_claim_changes_nothing(
    store: engine.Store, clock: stored.Clock, function: Callable[..., Any], ending: Callable[..., Any], tally: str
):
    """After a takeover the old claim can neither fail, postpone nor release the document; it is counted."""
    old = await claim_of(store, lease_ms=LEASE_MS)
    clock.shift_ms = LEASE_MS
    await store.write(stored.claimed, owner="two")
    before = await store.read(stored.row, "notes/a")

    settled = await store.write(function, [ending(old)])

    assert settled == queue.Settled((), (("notes/a", old.indexed_as),))
    assert await store.read(stored.row, "notes/a") == before
    assert (await store.read(counters.all))[tally] == 1


@END
async def test_end_of_an_earlier_identity_changes_nothing(
    store: engine.Store, function: Callable[..., Any], ending: Callable[..., Any], tally: str
):
    """After a rewrite the claim on the old body has no say, although the new one has the same attempt."""
    old = await claim_of(store, body="A")
    await store.write(stored.write, {"notes/a": "B"})
    [new] = (await store.write(stored.claimed, owner="two")).claims
    before = await store.read(stored.row, "notes/a")

    settled = await store.write(function, [ending(old)])

    assert old.attempt == new.attempt
    assert settled.stored == ()
    assert await store.read(stored.row, "notes/a") == before


@END
async def test_end_is_told_once(
    store: engine.Store, clock: stored.Clock, function: Callable[..., Any], ending: Callable[..., Any], tally: str
):
    """The same end told twice is one end; so is one told for a freed claim that nobody has taken again."""
    claim = await claim_of(store)
    await store.write(function, [ending(claim)])
    once = await store.read(stored.row, "notes/a")

    twice = await store.write(function, [ending(claim)])

    assert twice.stored == ()
    assert await store.read(stored.row, "notes/a") == once


async def test_freed_claim_has_no_say_before_it_is_claimed_again(store: engine.Store, clock: stored.Clock):
    """A lease that was taken over for another collection's sake is lost even while the document is free."""
    await store.write(stored.write, {"notes/a": "one", "notes/b": "two"})
    old = {claim.uri: claim for claim in (await store.write(stored.claimed, lease_ms=LEASE_MS)).claims}
    clock.shift_ms = LEASE_MS
    taken = (await store.write(stored.claimed, owner="two", slots=1)).claims
    free = old["notes/b" if taken[0].uri == "notes/a" else "notes/a"]

    settled = await store.write(queue.fail, [failed(free)])
    row = await store.read(stored.row, free.uri)

    assert settled.stored == ()
    assert (row["status"], row["crashes"], row["owner"]) == ("pending", 1, None)


@pytest.mark.postgres
async def test_batches_in_opposite_order_do_not_deadlock(postgres_url: str):
    """Answers, writes and failures that name the same documents in opposite orders at once all get through."""
    async with stored.opened(postgres_url) as store:
        await store.write(stored.defined, "notes")
        bodies = {f"notes/{n:03}": f"body {n}" for n in range(100)}
        turned = dict(reversed(bodies.items()))
        failures = []

        def run(work: Callable[[engine.Tx], Any]) -> None:
            try:
                with store.engine.connect() as connection, connection.begin():
                    work(engine.Tx(connection, engine.no_shift))
            except Exception as error:  # noqa: BLE001 (a thread's failure is the test's)
                failures.append(error)

        for _ in range(15):
            claims = (await store.write(stored.claimed)).claims
            answers = [stored.answer_to(claim) for claim in claims]
            works: list[Callable[[engine.Tx], Any]] = [
                lambda tx, given=answers: queue.answer(tx, given),
                lambda tx, given=answers[::-1]: queue.answer(tx, given),
                lambda tx, given=claims[::-1]: queue.retry(tx, [retried(claim) for claim in given]),
                lambda tx: stored.write(tx, bodies),
                lambda tx: stored.write(tx, turned),
            ]
            threads = [threading.Thread(target=run, args=(work,)) for work in works]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)

        assert failures == []
