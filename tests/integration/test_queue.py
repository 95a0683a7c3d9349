"""Claiming: who gets which document, in what order, and what is never claimed. On SQLite and on PostgreSQL."""

from dataclasses import replace

import judged
import pytest
import stored

from facetline.storage.db import engine
from facetline.storage.log import apply
from facetline.storage.queue import due_documents, queue

pytestmark = pytest.mark.collections("notes", "mails", "scoped")

LEASE_MS = 60_000


def to_reindex_lane(tx: engine.Tx, *uris: str) -> None:
    """Move documents to the lane of reindex jobs, as a turn does."""
    tx.execute(stored.DOCUMENTS.update().where(stored.DOCUMENTS.c.uri.in_(uris)).values(lane=due_documents.REINDEX))


def uris(result: queue.ClaimResult) -> list[str]:
    """Name what was claimed, in order."""
    return [claim.uri for claim in result.claims]


async def test_claim_carries_all_that_a_call_needs(store: engine.Store, clock: stored.Clock):
    """A claim holds body, identity, attempt, fingerprint and a lease by the store's clock; the row says the same."""
    clock.shift_ms = 5_000_000
    as_ = (await store.write(stored.write, {"@ann/scoped/a": "text"}))["@ann/scoped/a"]

    [claim] = (await store.write(stored.claimed, owner="me", lease_ms=LEASE_MS)).claims
    row = await store.read(stored.row, "@ann/scoped/a")

    assert (claim.body, claim.scope, claim.key, claim.indexed_as) == ("text", "ann", "a", as_)
    assert (claim.attempt, claim.fingerprint, claim.body_hash) == (1, stored.FIRST, stored.hash_of("text"))
    assert claim.lease_until_ms == claim.asked_ms + LEASE_MS == row["lease_until_ms"]
    assert claim.asked_ms >= row["written_ms"] > 5_000_000
    assert (row["owner"], row["attempt"], row["calls_made"]) == ("me", 1, 1)
    assert (row["claimed_ms"], row["claimed_fingerprint"]) == (claim.asked_ms, stored.FIRST)


async def test_claimed_document_is_not_claimed_again(store: engine.Store):
    """While a lease runs nobody else gets the document."""
    await store.write(stored.write, {"notes/a": "one", "notes/b": "two"})

    first = await store.write(stored.claimed, slots=1)
    second = await store.write(stored.claimed, slots=5, owner="two")

    assert [uris(first), uris(second)] == [["notes/a"], ["notes/b"]]


async def test_no_more_than_the_slots(store: engine.Store):
    """A claim takes no more than its slots over all collections and lanes; no slot, no claim."""
    await store.write(stored.write, {f"{name}/{n}": f"{name} {n}" for name in ("notes", "mails") for n in range(5)})
    await store.write(to_reindex_lane, "notes/3", "notes/4", "mails/3", "mails/4")

    none = await store.write(stored.claimed, slots=0)
    some = await store.write(stored.claimed, slots=4, reindex_slots_min=1)
    rest = await store.write(stored.claimed, slots=100)

    assert (len(none.claims), len(some.claims), len(rest.claims)) == (0, 4, 6)


async def test_longest_due_first_over_all_collections(store: engine.Store, clock: stored.Clock):
    """Within a lane the document that has been due longest comes first, whatever its collection."""
    for n, uri in enumerate(["mails/z", "notes/y", "mails/x", "notes/w"]):
        clock.shift_ms = n * 1_000
        await store.write(stored.write, {uri: uri})

    first = await store.write(stored.claimed, slots=3)

    assert uris(first) == ["mails/z", "notes/y", "mails/x"]


async def test_live_lane_comes_before_the_reindex_lane(store: engine.Store, clock: stored.Clock):
    """A reindexed document waits for every written one, although it has been due longer."""
    await store.write(stored.write, {"notes/old": "old"})
    await store.write(to_reindex_lane, "notes/old")
    clock.shift_ms = 1_000
    await store.write(stored.write, {"notes/new": "new"})

    first = await store.write(stored.claimed, slots=1)
    second = await store.write(stored.claimed, slots=1)

    assert [uris(first), uris(second)] == [["notes/new"], ["notes/old"]]


async def test_reindex_lane_keeps_its_share(store: engine.Store):
    """However many documents are written, the reindex lane gets its slots; without work it leaves them."""
    await store.write(stored.write, {f"notes/{n}": f"body {n}" for n in range(30)})
    await store.write(to_reindex_lane, "notes/28", "notes/29")

    first = await store.write(stored.claimed, slots=10, reindex_slots_min=1)
    second = await store.write(stored.claimed, slots=10, reindex_slots_min=2)

    lanes = [[claim.lane for claim in each.claims] for each in (first, second)]
    assert lanes == [
        [due_documents.LIVE] * 9 + [due_documents.REINDEX],
        [due_documents.LIVE] * 9 + [due_documents.REINDEX],
    ]


async def test_expired_lease_is_taken_over_and_recorded(store: engine.Store, clock: stored.Clock):
    """A lease that ran out is a recorded crash, and the document goes to the next who claims, not a moment earlier."""
    await store.write(stored.write, {"notes/a": "text"})
    [first] = (await store.write(stored.claimed, lease_ms=LEASE_MS)).claims

    early = await store.write(stored.claimed, owner="two")
    clock.shift_ms = LEASE_MS
    [second] = (await store.write(stored.claimed, owner="two")).claims
    row = await store.read(stored.row, "notes/a")

    assert early.claims == ()
    assert early.next_due_ms == first.lease_until_ms
    assert second.attempt > first.attempt
    assert (row["owner"], row["crashes"], row["calls_made"], second.crashes) == ("two", 1, 2, 1)


async def test_only_the_active_fingerprint_claims(store: engine.Store):
    """A process whose own fingerprint is not the active one claims nothing in that collection, and all in others."""
    await store.write(stored.write, {"notes/a": "one", "mails/b": "two"})
    await store.write(stored.defined, "notes", fingerprint="newer")

    old = {"notes": stored.FIRST, "mails": stored.FIRST}
    behind = await store.write(stored.claimed, fingerprints=old)
    unknown = await store.write(stored.claimed, fingerprints={"nowhere": "newer"})
    current = await store.write(stored.claimed, fingerprints={"notes": "newer"})

    assert [uris(behind), uris(unknown), uris(current)] == [["mails/b"], [], ["notes/a"]]
    assert current.claims[0].fingerprint == "newer"


async def test_foreign_lease_is_not_taken_over(store: engine.Store, clock: stored.Clock):
    """A process that may not claim in a collection records no crash there either."""
    await store.write(stored.write, {"notes/a": "one"})
    await store.write(stored.claimed)
    clock.shift_ms = LEASE_MS * 2

    await store.write(stored.claimed, fingerprints={"notes": "other"})
    await store.write(stored.claimed, paused=["notes"])
    row = await store.read(stored.row, "notes/a")

    assert (row["crashes"], row["owner"]) == (0, "one")


async def test_paused_collection_is_left_alone(store: engine.Store):
    """Nothing is claimed, and nothing waited for, in a paused collection."""
    await store.write(stored.write, {"notes/a": "one", "mails/b": "two"})

    result = await store.write(stored.claimed, paused=["notes"])
    nothing = await store.write(stored.claimed, paused=["notes", "mails"])

    assert uris(result) == ["mails/b"]
    assert nothing == queue.ClaimResult((), 0, None)


async def test_equal_bodies_are_claimed_once(store: engine.Store):
    """Of documents about the same thing one is claimed; another scope or collection is another thing."""
    bodies = {"notes/a": "same", "notes/b": "same", "@ann/scoped/a": "same", "@ann/scoped/b": "same"}
    await store.write(stored.write, {**bodies, "@bob/scoped/c": "same"})
    await store.write(stored.defined, "scoped", fingerprint="another")

    result = await store.write(stored.claimed)

    assert sorted(uris(result)) == ["@ann/scoped/a", "@bob/scoped/c", "notes/a"]


async def test_busy_keys_are_skipped_and_hold_nobody_up(store: engine.Store):
    """Documents that wait for an answer in flight never keep those behind them from being claimed, however many."""
    await store.write(stored.write, {f"notes/{n:03}": "same" for n in range(200)} | {"notes/z": "other"})

    first = await store.write(stored.claimed, slots=2)
    busy = [("", first.claims[0].body_hash, stored.FIRST)]
    second = await store.write(stored.claimed, slots=2, busy_keys=busy)

    assert uris(first) == ["notes/000", "notes/z"]
    assert uris(second) == []


async def test_remembered_answer_needs_no_claim(store: engine.Store):
    """A document with a remembered answer is indexed by the claim itself: no call, marked as cached, no cost."""
    await store.write(stored.write, {"notes/a": "same"})
    await store.write(stored.answer_all, (await store.write(stored.claimed)).claims, "outage")
    await store.write(stored.write, {"notes/b": "same", "notes/c": "other"})

    result = await store.write(stored.claimed)
    first, second = [await store.read(stored.row, uri) for uri in ("notes/a", "notes/b")]

    assert (uris(result), result.remembered) == (["notes/c"], 1)
    assert (second["status"], second["facets"], second["fingerprint"]) == ("indexed", first["facets"], stored.FIRST)
    assert (second["calls_made"], second["attempt"], second["feed_seq"]) == (0, 0, None)
    assert second["version"] == second["indexed_as"] + 1
    assert '"cached":true' in second["evaluation"]
    assert '"cached":false' in first["evaluation"]
    assert '"cost_usd":null' in second["evaluation"]


@pytest.mark.parametrize("change", ["scope", "fingerprint"])
async def test_memo_is_by_scope_and_fingerprint(store: engine.Store, change: str):
    """An answer for another scope or another fingerprint is not taken."""
    await store.write(stored.write, {"@ann/scoped/a": "same"})
    await store.write(stored.answer_all, (await store.write(stored.claimed)).claims)
    if change == "fingerprint":
        await store.write(stored.defined, "scoped", fingerprint="newer")
    scope = "bob" if change == "scope" else "ann"
    await store.write(stored.write, {f"@{scope}/scoped/b": "same"})

    result = await store.write(stored.claimed)

    assert (uris(result), result.remembered) == ([f"@{scope}/scoped/b"], 0)


async def test_forced_document_takes_no_older_memory(store: engine.Store, clock: stored.Clock):
    """With `memo_after_ms` an answer asked for before is not taken; one asked for later is."""
    await store.write(stored.write, {"notes/a": "same"})
    [claim] = (await store.write(stored.claimed)).claims
    await store.write(stored.answer_all, [claim])
    clock.shift_ms = 10_000
    await store.write(stored.write, {"notes/b": "same", "notes/c": "same"})

    def force(tx: engine.Tx, uri: str, after_ms: int) -> None:
        tx.execute(stored.DOCUMENTS.update().where(stored.DOCUMENTS.c.uri == uri).values(memo_after_ms=after_ms))

    await store.write(force, "notes/b", claim.asked_ms)
    await store.write(force, "notes/c", claim.asked_ms - 1)
    result = await store.write(stored.claimed)

    assert (uris(result), result.remembered) == (["notes/b"], 1)


async def test_many_remembered_documents_are_answered_in_bounded_steps(store: engine.Store):
    """One claim answers a bounded number from the memo, and the next goes on; a claim among them is still made."""
    await store.write(stored.write, {"notes/0": "same"})
    await store.write(stored.answer_all, (await store.write(stored.claimed)).claims)
    await store.write(stored.write, {f"notes/{n:04}": "same" for n in range(1_100)})
    await store.write(stored.write, {"notes/z": "other"})

    results = [await store.write(stored.claimed, slots=8)]
    while results[-1].remembered:
        results.append(await store.write(stored.claimed, slots=8))

    assert sum(each.remembered for each in results) == 1_100
    assert max(each.remembered for each in results) <= queue.REMEMBERED_MAX
    assert len(results) < 10
    assert [uri for each in results for uri in uris(each)] == ["notes/z"]


async def test_next_due_says_when_to_look_again(store: engine.Store, clock: stored.Clock):
    """With slots left the claim names the next retry's time; with nothing to wait for, nothing."""
    nothing = await store.write(stored.claimed)
    await store.write(stored.write, {"notes/a": "text"})
    [claim] = (await store.write(stored.claimed)).claims
    await store.write(queue.retry, [queue.Retried(claim.uri, claim.indexed_as, claim.attempt, 30_000, counted=True)])

    waiting = await store.write(stored.claimed)
    row = await store.read(stored.row, "notes/a")
    clock.shift_ms = 30_000
    again = await store.write(stored.claimed, slots=1)

    assert nothing.next_due_ms is None
    assert (waiting.claims, waiting.next_due_ms) == ((), row["due_ms"])
    assert (uris(again), again.next_due_ms) == (["notes/a"], None)


async def test_pending_counts_tell_due_later_and_claimed(store: engine.Store):
    """Pending documents are counted by what they wait for, in all collections or in some."""
    await store.write(stored.write, {"notes/a": "1", "notes/b": "2", "notes/c": "3", "mails/d": "4", "mails/e": " "})
    first, second = (await store.write(stored.claimed, slots=2, paused=["mails"])).claims
    await store.write(queue.retry, [queue.Retried(first.uri, first.indexed_as, first.attempt, 30_000, counted=False)])

    counts = await store.read(queue.pending)
    mails = await store.read(queue.pending, ["mails"])
    row = await store.read(stored.row, "mails/d")

    assert (counts.due, counts.later, counts.claimed, counts.total) == (2, 1, 1, 4)
    assert (mails.due, mails.total, mails.oldest_due_ms) == (1, 1, row["due_ms"])
    assert second.uri == "notes/b"


async def test_unanswered_are_those_whose_write_still_waits(store: engine.Store):
    """Of what a source wrote, documents count that still wait for just that; answered and passed ones do not."""
    before = await store.read(queue.unanswered, "test")
    await store.write(stored.write, {"notes/a": "1", "notes/b": "2", "notes/c": "3", "notes/d": " "})
    claims = (await store.write(stored.claimed, slots=1)).claims
    await store.write(stored.answer_all, claims)
    await store.write(apply.append, "local", [replace(judged.write("notes/b", "rewritten"), source="other", id="o")])

    assert before == 0
    assert await store.read(queue.unanswered, "test") == 1
    assert await store.read(queue.unanswered, "other") == 1


async def test_failed_are_those_whose_write_was_given_up(store: engine.Store):
    """Of what a source wrote, it is told why documents failed just for that, the most frequent reason first."""
    await store.write(stored.write, {"notes/a": "1", "notes/b": "2", "notes/c": "3", "notes/d": "4"})
    first, *others = (await store.write(stored.claimed)).claims
    told = [("too_long", "long", first)] + [("refused", "no", each) for each in others]
    gone = [queue.Failed(each.uri, each.indexed_as, each.attempt, reason, why) for reason, why, each in told]
    await store.write(queue.fail, gone)
    rewritten = replace(judged.write(others[0].uri, "rewritten"), source="other", id="o")
    await store.write(apply.append, "local", [rewritten])

    assert await store.read(queue.failed, "test") == [("refused", 2, "no"), ("too_long", 1, "long")]
    assert await store.read(queue.failed, "other") == []
