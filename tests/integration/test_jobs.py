"""Reindex jobs: which documents, in what steps, and how they end. Each once on SQLite and on PostgreSQL."""

import asyncio
import itertools
from typing import Any

import pytest
import stored

from facetline.facets import errors
from facetline.storage import definitions
from facetline.storage.db import engine
from facetline.storage.jobs import jobs, model
from facetline.storage.queue import due_documents, queue

pytestmark = pytest.mark.collections("notes", "mails", "scoped")

LEASE_MS = 60_000
ME = "me"


async def indexed(store: engine.Store, bodies: dict[str, str], said: str = "billing") -> None:
    """Write documents and answer them."""
    await store.write(stored.write, bodies)
    while claims := (await store.write(stored.claimed, slots=500)).claims:
        await store.write(stored.answer_all, claims, said)


async def made(
    store: engine.Store, clock: stored.Clock, request: model.JobRequest, *, job_id: str = "j1", chunk: int = 500
) -> model.Job:
    """Make a job a while after all that was, write its items and take it."""
    clock.shift_ms += 1_000
    job, _ = await store.write(jobs.create, job_id, request)
    while job.filled_to is not None:
        job = await store.write(jobs.fill, job_id, chunk)
    clock.shift_ms += 1_000
    taken = await store.write(jobs.take, ME, LEASE_MS, [request.collection])
    assert taken is not None
    return taken


async def given_turn(
    store: engine.Store, job_id: str = "j1", unanswered_max: int = 100, limit: int = 500
) -> model.Turn:
    """Give a job a turn."""
    return await store.write(jobs.turn, job_id, ME, unanswered_max, limit)


async def states(store: engine.Store, job_id: str = "j1") -> dict[str, str]:
    """Return the job's items' states by uri."""
    progress = await store.read(jobs.progress, job_id)
    return {item.uri: state for state in progress for item in await store.read(jobs.items, job_id, state)}


FORCE = model.JobRequest("notes", mode="force")
MISSING = model.JobRequest("notes")
OUTDATED = model.JobRequest("notes", mode="outdated")


async def all_kinds(store: engine.Store) -> None:
    """Have one document of every kind: outdated, empty, deleted, failed, pending, indexed; and other collections."""
    await indexed(store, {"notes/outdated": "1", "notes/deleted": "2", "notes/empty": " "})
    await store.write(stored.delete, "notes/deleted")
    await store.write(stored.defined, "notes", fingerprint="newer")
    await indexed(store, {"notes/indexed": "3", "mails/other": "4"})
    await store.write(stored.write, {"notes/failed": "5"})
    [claim] = (await store.write(stored.claimed)).claims
    await store.write(queue.fail, [queue.Failed(claim.uri, claim.indexed_as, claim.attempt, "refused", "no")])
    await store.write(stored.write, {"notes/pending": "6", "mails/pending": "7"})


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("missing", {"notes/failed", "notes/pending"}),
        ("outdated", {"notes/outdated"}),
        ("force", {"notes/failed", "notes/pending", "notes/outdated", "notes/indexed"}),
    ],
)
async def test_mode_says_which_documents(store: engine.Store, clock: stored.Clock, mode: Any, expected: set[str]):
    """Missing are the pending and failed ones, outdated those under another fingerprint, force is all with a text."""
    await all_kinds(store)

    job = await made(store, clock, model.JobRequest("notes", mode=mode))
    plan = await store.read(jobs.plan, model.JobRequest("notes", mode=mode))

    assert set(await states(store)) == expected
    assert job.total == plan.documents == len(expected)


async def test_scope_limits_a_job(store: engine.Store, clock: stored.Clock):
    """A job for one scope has that scope's documents only; one without has all scopes'."""
    await indexed(store, {f"@{scope}/scoped/{n}": f"{n}" for scope in ("ann", "an", "a!", "bob") for n in range(3)})

    await made(store, clock, model.JobRequest("scoped", scope="ann", mode="force"), job_id="one")
    await made(store, clock, model.JobRequest("scoped", mode="force"), job_id="all", chunk=2)

    assert set(await states(store, "one")) == {f"@ann/scoped/{n}" for n in range(3)}
    assert len(await states(store, "all")) == 12


@pytest.mark.parametrize("chunk", [1, 3, 7, 10, 500])
async def test_items_are_written_in_chunks(store: engine.Store, clock: stored.Clock, chunk: int):
    """Whatever the chunk, each document becomes an item once, and no transaction writes more than a chunk."""
    await indexed(store, {f"notes/{n:02}": f"{n}" for n in range(10)})
    clock.shift_ms += 1_000
    job, _ = await store.write(jobs.create, "j1", FORCE)

    totals = [0]
    while job.filled_to is not None:
        job = await store.write(jobs.fill, "j1", chunk)
        totals.append(job.total)

    assert max(later - earlier for earlier, later in itertools.pairwise(totals)) <= chunk
    assert len(await states(store)) == job.total == 10
    assert len(totals) <= 10 // chunk + 2


async def test_items_of_a_filter_are_those_given(store: engine.Store, clock: stored.Clock):
    """With uris from a filter only those become items, if they fit the mode; an empty list ends it."""
    await indexed(store, {f"notes/{n}": f"{n}" for n in range(6)})
    await store.write(stored.delete, "notes/2")
    clock.shift_ms += 1_000
    await store.write(jobs.create, "j1", FORCE)

    first = await store.write(jobs.fill, "j1", 2, ["notes/1", "notes/2"])
    again = await store.write(jobs.fill, "j1", 2, ["notes/1", "notes/2", "notes/4"])
    done = await store.write(jobs.fill, "j1", 2, [])

    assert (first.filled_to, again.filled_to, done.filled_to) == ("notes/2", "notes/4", None)
    assert set(await states(store)) == {"notes/1", "notes/4"}


async def test_late_page_of_a_filter_does_not_end_the_filling(store: engine.Store, clock: stored.Clock):
    """Uris found before another process went on with the job leave it where that process got to."""
    await indexed(store, {f"notes/{n}": f"{n}" for n in range(6)})
    clock.shift_ms += 1_000
    await store.write(jobs.create, "j1", FORCE)
    found_early = ["notes/0", "notes/1"]
    await store.write(jobs.fill, "j1", 2, found_early)
    taken_over = await store.write(jobs.fill, "j1", 2, ["notes/2", "notes/3"])

    late = await store.write(jobs.fill, "j1", 2, found_early)

    assert late.filled_to == taken_over.filled_to == "notes/3"


async def test_document_written_after_the_job_is_no_item(store: engine.Store, clock: stored.Clock):
    """What is written between making the job and writing its items is asked about anyway."""
    await indexed(store, {"notes/a": "1", "notes/b": "2"})
    clock.shift_ms += 1_000
    await store.write(jobs.create, "j1", FORCE)
    clock.shift_ms += 1_000
    await store.write(stored.write, {"notes/a": "rewritten", "notes/new": "3"})

    await store.write(jobs.fill, "j1", 500)

    assert set(await states(store)) == {"notes/b"}


async def test_same_request_joins_and_another_is_refused(store: engine.Store):
    """One job is active for a collection and scope: the same request gets it, another gets its name in a refusal."""
    job, joined = await store.write(jobs.create, "j1", FORCE)
    again = await store.write(jobs.create, "j2", FORCE)
    elsewhere = await store.write(jobs.create, "j3", model.JobRequest("mails", mode="force"))

    await store.read(jobs.refuse_beside_another, FORCE)
    with pytest.raises(errors.Conflict, match="j1"):
        await store.read(jobs.refuse_beside_another, MISSING)
    with pytest.raises(errors.Conflict, match="j1"):
        await store.write(jobs.create, "j4", MISSING)
    with pytest.raises(errors.UnknownCollection, match="nowhere"):
        await store.write(jobs.create, "j5", model.JobRequest("nowhere"))
    assert (joined, again) == (False, (job, True))
    assert elsewhere[1] is False


async def test_one_of_many_makers_makes_it(store: engine.Store):
    """Of many equal requests at once one makes the job and the others join it; told again the maker finds its own."""
    made_jobs = await asyncio.gather(*(store.write(jobs.create, f"j{n}", FORCE) for n in range(8)))
    [first] = [job for job, joined in made_jobs if not joined]
    again = await store.write(jobs.create, first.id, FORCE)

    assert {job.id for job, _ in made_jobs} == {first.id}
    assert again == (first, False)


async def test_job_asks_again_and_ends(store: engine.Store, clock: stored.Clock):
    """A forced job clears each document once, closes each item by its answer or failure, and succeeds."""
    await indexed(store, {f"notes/{n}": f"{n}" for n in range(5)})
    before = await store.read(stored.rows)
    await made(store, clock, FORCE)

    first = await given_turn(store)
    cleared = await store.read(stored.rows)
    claims = (await store.write(stored.claimed)).claims
    await store.write(stored.answer_all, claims[:4], "outage")
    end = queue.Failed(claims[4].uri, claims[4].indexed_as, claims[4].attempt, "refused", "no")
    await store.write(queue.fail, [end])
    last = await given_turn(store)
    job = await store.read(jobs.get, "j1")

    assert (first.cleared, first.adopted, first.closed, first.waiting, first.state) == (5, 0, 0, False, "running")
    for uri, row in cleared.items():
        assert (row["status"], row["facets"], row["feed_seq"]) == ("pending", None, None)
        assert row["version"] == row["indexed_as"] == before[uri]["version"] + 1
        assert (row["revision"], row["lane"]) == (before[uri]["revision"], due_documents.REINDEX)
        assert (row["calls_made"], row["memo_after_ms"]) == (0, job.created_ms)
    assert (last.state, job.state, job.finished_ms is not None) == ("succeeded", "succeeded", True)
    assert await store.read(jobs.progress, "j1") == {"reindexed": 4, "failed": 1}
    failed = await store.read(jobs.items, "j1", "failed")
    assert failed == [model.Item(claims[4].uri, claims[4].key, "", "failed", "refused")]


async def test_no_more_than_the_bound_is_unanswered(store: engine.Store, clock: stored.Clock):
    """However often turns are given, no more than the bound is cleared and unanswered; answers make room."""
    await indexed(store, {f"notes/{n:02}": f"{n}" for n in range(20)})
    await made(store, clock, FORCE)

    pending = []
    for _ in range(3):
        await given_turn(store, unanswered_max=6, limit=4)
        pending.append((await store.read(queue.pending)).total)
    await store.write(stored.answer_all, (await store.write(stored.claimed, slots=2)).claims)
    turn = await given_turn(store, unanswered_max=6)

    assert pending == [4, 6, 6]
    assert (turn.cleared, turn.waiting, (await store.read(queue.pending)).total) == (2, True, 6)


async def test_reindexed_document_waits_behind_written_ones(store: engine.Store, clock: stored.Clock):
    """Documents that a job asks about again are in the lane that written ones overtake."""
    await indexed(store, {"notes/a": "1"})
    await made(store, clock, FORCE)
    await given_turn(store)
    clock.shift_ms += 1_000
    await store.write(stored.write, {"notes/new": "2"})

    [claim] = (await store.write(stored.claimed, slots=1)).claims

    assert claim.uri == "notes/new"


async def test_forced_job_takes_no_older_memory(store: engine.Store, clock: stored.Clock):
    """Force asks again although the answer is remembered, and equal bodies once; missing takes what is remembered."""
    await indexed(store, {"notes/a": "same", "notes/b": "same"})
    await made(store, clock, FORCE)
    await given_turn(store)
    clock.shift_ms += 1_000

    [claim] = (await store.write(stored.claimed)).claims
    await store.write(stored.answer_all, [claim], "outage")
    rest = await store.write(stored.claimed)
    rows = await store.read(stored.rows)

    assert (rest.claims, rest.remembered) == ((), 1)
    assert all('"outage"' in row["facets"] for row in rows.values())


async def test_adopted_document_takes_no_older_memory_either(store: engine.Store, clock: stored.Clock):
    """A document that a forced job takes over unasked is asked about, although the answer is remembered."""
    await indexed(store, {"notes/a": "same"})
    await store.write(stored.write, {"notes/b": "same"})
    await made(store, clock, FORCE)

    turn = await given_turn(store)
    result = await store.write(stored.claimed)

    assert (turn.cleared, turn.adopted) == (1, 1)
    assert (len(result.claims), result.remembered) == (1, 0)


async def test_outdated_job_ends_under_the_active_fingerprint(store: engine.Store, clock: stored.Clock):
    """After a change of definition an outdated job asks about exactly the outdated documents."""
    await indexed(store, {"notes/a": "1", "notes/b": "2"})
    await store.write(stored.defined, "notes", fingerprint="newer")
    await indexed(store, {"notes/c": "3"})
    before = await store.read(stored.row, "notes/c")
    await made(store, clock, OUTDATED)

    turn = await given_turn(store)
    claims = (await store.write(stored.claimed)).claims
    await store.write(stored.answer_all, claims)
    last = await given_turn(store)
    rows = await store.read(stored.rows)

    assert (turn.cleared, last.state) == (2, "succeeded")
    assert {row["fingerprint"] for row in rows.values()} == {"newer"}
    assert rows["notes/c"] == before


@pytest.mark.parametrize("claimed", [False, True])
async def test_awaited_answer_is_taken_over(store: engine.Store, clock: stored.Clock, claimed: bool):
    """A missing document that is waiting or being asked about is not asked about twice: its answer closes the item."""
    await store.write(stored.write, {"notes/a": "1"})
    claims = (await store.write(stored.claimed)).claims if claimed else ()
    await made(store, clock, MISSING)

    turn = await given_turn(store)
    claims = claims or (await store.write(stored.claimed)).claims
    await store.write(stored.answer_all, claims)
    last = await given_turn(store)
    row = await store.read(stored.row, "notes/a")

    assert (turn.adopted, turn.cleared, last.state) == (1, 0, "succeeded")
    assert (row["indexed_as"], row["calls_made"], row["lane"]) == (1, 1, due_documents.LIVE)
    assert await states(store) == {"notes/a": "reindexed"}


async def test_call_under_another_fingerprint_is_not_taken_over(store: engine.Store, clock: stored.Clock):
    """A document being asked about under a replaced definition is cleared, so that its old answer is discarded."""
    await store.write(stored.write, {"notes/a": "1"})
    [old] = (await store.write(stored.claimed)).claims
    await store.write(stored.defined, "notes", fingerprint="newer")
    await made(store, clock, MISSING)

    turn = await given_turn(store)
    late = await store.write(queue.answer, [stored.answer_to(old)])
    [new] = (await store.write(stored.claimed)).claims

    assert (turn.cleared, late.stored, new.fingerprint) == (1, (), "newer")


async def test_forced_job_takes_no_answer_asked_for_before_it(store: engine.Store, clock: stored.Clock):
    """Force clears a document that was being asked about before the job, and adopts one that nobody asked about."""
    await store.write(stored.write, {"notes/a": "1"})
    [old] = (await store.write(stored.claimed)).claims
    await store.write(stored.write, {"notes/b": "2"})
    await made(store, clock, FORCE)

    turn = await given_turn(store)
    late = await store.write(queue.answer, [stored.answer_to(old)])
    again = await store.write(stored.claimed)

    assert (turn.cleared, turn.adopted) == (1, 1)
    assert late.stored == ()
    assert sorted(claim.uri for claim in again.claims) == ["notes/a", "notes/b"]
    assert again.remembered == 0


async def test_forced_job_does_not_trust_a_taken_over_call(store: engine.Store, clock: stored.Clock):
    """A caller that lost its lease may still answer: force clears such a document although nobody holds it now."""
    await store.write(stored.write, {"notes/a": "1"})
    [old] = (await store.write(stored.claimed, lease_ms=1_000)).claims
    clock.shift_ms = 1_000
    [new] = (await store.write(stored.claimed)).claims
    await store.write(queue.release, [queue.Released(new.uri, new.indexed_as, new.attempt, called=False)])
    await made(store, clock, FORCE)

    turn = await given_turn(store)
    late = await store.write(queue.answer, [stored.answer_to(old)])

    assert (turn.cleared, turn.adopted, late.stored) == (1, 0, ())


async def test_document_answered_meanwhile_needs_no_turn(store: engine.Store, clock: stored.Clock):
    """A missing document that got its answer before its turn closes its item at no call."""
    await store.write(stored.write, {"notes/a": "1"})
    await made(store, clock, MISSING)
    await store.write(stored.answer_all, (await store.write(stored.claimed)).claims)
    before = await store.read(stored.row, "notes/a")

    turn = await given_turn(store)

    assert (turn.cleared, turn.adopted, turn.closed, turn.state) == (0, 0, 1, "succeeded")
    assert await store.read(stored.row, "notes/a") == before
    assert await states(store) == {"notes/a": "reindexed"}


async def test_live_write_wins_over_the_job(store: engine.Store, clock: stored.Clock):
    """A write or delete closes its document's item at once, waiting or asked; the job neither clears nor counts it."""
    await indexed(store, {f"notes/{n}": f"{n}" for n in range(4)})
    await made(store, clock, FORCE)
    await given_turn(store, unanswered_max=2)
    clock.shift_ms += 1_000

    await store.write(stored.write, {"notes/0": "rewritten", "notes/2": "rewritten"})
    await store.write(stored.delete, "notes/3")
    at_once = await states(store)
    before = await store.read(stored.row, "notes/2")
    await store.write(stored.answer_all, (await store.write(stored.claimed)).claims)
    last = await given_turn(store)

    assert at_once == {
        "notes/0": "superseded",
        "notes/1": "asked",
        "notes/2": "superseded",
        "notes/3": "superseded",
    }
    assert (last.cleared, last.state) == (0, "succeeded")
    assert (await store.read(stored.row, "notes/2"))["indexed_as"] == before["indexed_as"]


async def test_turn_finds_out_what_nobody_told_it(store: engine.Store, clock: stored.Clock):
    """Items whose documents moved on without closing them are closed by the next turn, asked or waiting."""
    await indexed(store, {f"notes/{n}": f"{n}" for n in range(4)})
    await made(store, clock, FORCE)
    await given_turn(store, unanswered_max=2)
    before = await states(store)
    clock.shift_ms += 1_000
    await store.write(stored.write, {"notes/0": "rewritten", "notes/2": "rewritten"})
    await store.write(stored.delete, "notes/3")

    def untell(tx: engine.Tx) -> None:
        for uri, state in before.items():
            tx.execute(stored.ITEMS.update().where(stored.ITEMS.c.uri == uri).values(state=state))

    await store.write(untell)
    turn = await given_turn(store)

    assert (turn.closed, turn.cleared) == (3, 0)
    assert await states(store) == {
        "notes/0": "superseded",
        "notes/1": "asked",
        "notes/2": "superseded",
        "notes/3": "skipped",
    }


async def test_cancel_stops_turns_and_keeps_what_was_asked(store: engine.Store, clock: stored.Clock):
    """After a cancel nothing more is cleared; asked documents end as usual; waiting ones are told as canceled."""
    await indexed(store, {f"notes/{n}": f"{n}" for n in range(4)})
    await made(store, clock, FORCE)
    await given_turn(store, unanswered_max=1)

    canceled = await store.write(jobs.cancel, "j1")
    turn = await given_turn(store)
    await store.write(stored.answer_all, (await store.write(stored.claimed)).claims)
    again = await store.write(jobs.cancel, "j1")
    other, joined = await store.write(jobs.create, "j2", MISSING)

    assert (canceled.state, again, turn.held, turn.state) == ("canceled", canceled, False, "canceled")
    assert await store.read(jobs.progress, "j1") == {"reindexed": 1, "canceled": 3}
    assert [item.uri for item in await store.read(jobs.items, "j1", "canceled", "notes/1")] == ["notes/2", "notes/3"]
    assert (other.state, joined) == ("queued", False)


async def test_job_is_taken_over_when_its_lease_ends(store: engine.Store, clock: stored.Clock):
    """Nobody takes a job whose lease runs; after it another goes on, and the former owner gives no more turns."""
    await indexed(store, {f"notes/{n}": f"{n}" for n in range(4)})
    await made(store, clock, FORCE)
    await given_turn(store, unanswered_max=1)

    early = await store.write(jobs.take, "two", LEASE_MS, ["notes"])
    clock.shift_ms += LEASE_MS
    expired = await given_turn(store)
    other = await store.write(jobs.take, "two", LEASE_MS, ["mails"])
    taken = await store.write(jobs.take, "two", LEASE_MS, ["notes"])
    former = await given_turn(store)
    renewed = [await store.write(jobs.renew, "j1", owner, LEASE_MS) for owner in (ME, "two")]
    turn = await store.write(jobs.turn, "j1", "two", 2, 500)

    assert (early, other) == (None, None)
    assert taken is not None
    assert (taken.id, taken.owner) == ("j1", "two")
    assert (expired.held, former.held, renewed) == (False, False, [False, True])
    assert turn.cleared == 1


async def test_given_up_job_is_taken_at_once(store: engine.Store, clock: stored.Clock):
    """A process that stops leaves its jobs to others without a wait."""
    await made(store, clock, FORCE)

    await store.write(jobs.give_up, "j1", ME)
    taken = await store.write(jobs.take, "two", LEASE_MS, ["notes"])

    assert taken is not None
    assert taken.owner == "two"


async def test_job_without_documents_succeeds(store: engine.Store, clock: stored.Clock):
    """With nothing to ask about a job ends at its first turn."""
    await made(store, clock, FORCE)

    assert (await given_turn(store)).state == "succeeded"


async def test_plan_counts_calls_as_they_would_be_made(store: engine.Store):
    """Equal bodies are one call; remembered and awaited answers are none, unless forced; sizes are bytes of UTF-8."""
    await indexed(store, {"notes/a": "größe", "notes/b": "größe"})
    await store.write(stored.defined, "notes", fingerprint="newer")
    await indexed(store, {"notes/c": "größe", "notes/d": "new"})
    await store.write(stored.write, {"notes/e": "being asked"})
    await store.write(stored.claimed)
    await store.write(stored.write, {"notes/f": "waits"})

    plans = {
        mode: await store.read(jobs.plan, model.JobRequest("notes", mode=mode))
        for mode in ("missing", "outdated", "force")
    }
    some = await store.read(jobs.plan, FORCE, ["notes/a", "notes/b", "notes/d", "mails/x"])

    assert plans["missing"] == model.Plan(documents=2, calls=1, body_bytes=5)
    assert plans["outdated"] == model.Plan(documents=2, calls=0, body_bytes=0)
    assert plans["force"] == model.Plan(documents=6, calls=4, body_bytes=7 + 3 + 11 + 5)
    assert some == model.Plan(documents=3, calls=2, body_bytes=7 + 3)


async def test_old_jobs_are_forgotten_in_steps(store: engine.Store, clock: stored.Clock):
    """A job that ended long ago goes, its items first, a bounded number at a time; active and recent ones stay."""
    await indexed(store, {f"notes/{n}": f"{n}" for n in range(5)})
    await made(store, clock, FORCE)
    await store.write(jobs.cancel, "j1")
    clock.shift_ms += 31 * model.DAY_MS
    await store.write(jobs.create, "j2", FORCE)
    await store.write(jobs.cancel, "j2")
    await store.write(jobs.create, "j3", FORCE)

    steps = [await store.write(jobs.purge, 30, 2) for _ in range(4)]

    assert steps == [2, 2, 2, 0]
    assert {job.id for job in await store.read(jobs.list_jobs)} == {"j2", "j3"}
    with pytest.raises(errors.NotFound, match="j1"):
        await store.read(jobs.get, "j1")


async def test_active_definition_decides_not_the_jobs_age(store: engine.Store, clock: stored.Clock):
    """A definition that changes while a job runs is the one its later turns go by."""
    await indexed(store, {"notes/a": "1"})
    await store.write(stored.defined, "notes", fingerprint="newer")
    await made(store, clock, OUTDATED)
    await store.write(stored.defined, "notes", fingerprint=stored.FIRST)

    turn = await given_turn(store)
    _, active = await store.read(definitions.active)

    assert active.by_name["notes"].fingerprint == stored.FIRST
    assert (turn.cleared, turn.closed) == (0, 1)
