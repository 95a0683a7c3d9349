"""What the store says about itself: equal to plain counting, read by the right indexes, and bounded in time.

Each test runs on SQLite and on PostgreSQL.
"""

from typing import Any

import pytest
import sqlalchemy as sa
import stored

from facetline.facets import errors
from facetline.storage import counters, feed, publications, store_stats
from facetline.storage.db import engine
from facetline.storage.jobs import jobs, model
from facetline.storage.log import apply, dead_letters
from facetline.storage.log.folding import Letter
from facetline.storage.queue import queue

pytestmark = pytest.mark.collections("notes", "mails")

# Takes minutes on any machine.
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT count(*) FROM n"


async def look(store: engine.Store) -> store_stats.StoreSummary:
    """Return a glance."""
    return await store.read(store_stats.glance, stored.TOPIC, "facets")


def cleared_ms(tx: engine.Tx, uri: str) -> int:
    """When a document was cleared."""
    return int(stored.row(tx, uri)["cleared_ms"])


async def test_a_glance_says_how_far_everything_has_come(store: engine.Store):
    """Positions, tallies, feed, what was published and set aside, jobs, and the active fingerprints are the rows'."""
    await store.write(stored.write, {f"notes/{n}": "x" for n in range(5)})
    await store.write(feed.number)
    await store.write(publications.elect, "facets", "me", 1_000)
    await store.write(publications.advance, "facets", "me", 3, start=0)
    await store.write(publications.set_aside, "facets", "notes/1", "too large", 1_000)
    await store.write(counters.add, "answers_discarded", 7)
    await store.write(jobs.create, "j1", model.JobRequest("notes", mode="force"))
    await store.write(jobs.create, "j2", model.JobRequest("mails", mode="force"))
    await store.write(jobs.cancel, "j2")

    found = await look(store)

    assert found.store_id == store.store_id
    assert found.fingerprints == {"mails": stored.FIRST, "notes": stored.FIRST}
    assert found.next_offsets == {0: 5}
    assert (found.feed_end, found.published, found.set_aside) == (5, 3, 1)
    assert found.tallies["answers_discarded"] == 7
    assert sum(found.jobs.values()) >= 1
    assert found.jobs.get("queued", 0) + found.jobs.get("running", 0) == sum(found.jobs.values())


async def test_the_oldest_is_found_wherever_it_waits(store: engine.Store, clock: stored.Clock):
    """Due, claimed or put off to a later try, it is told by its clearing, for each collection where something waits."""
    await store.write(stored.write, {"notes/old": "a"})
    clock.shift_ms = 1_000
    await store.write(stored.write, {"notes/young": "b", "mails/one": "c"})
    old, young, one = [await store.read(cleared_ms, uri) for uri in ("notes/old", "notes/young", "mails/one")]
    due = (await look(store)).oldest_ms
    claims = {claim.uri: claim for claim in (await store.write(stored.claimed)).claims}
    claimed = (await look(store)).oldest_ms
    first = claims["notes/old"]
    await store.write(queue.retry, [queue.Retried(first.uri, first.indexed_as, first.attempt, 60_000, counted=True)])
    later = (await look(store)).oldest_ms
    await store.write(
        queue.fail,
        [
            queue.Failed(each.uri, each.indexed_as, each.attempt, "refused", "no")
            for each in (claims["notes/young"], claims["mails/one"])
        ],
    )
    one_left = (await look(store)).oldest_ms

    assert due == claimed == later == {"notes": old, "mails": one}
    assert one_left == {"notes": old}
    assert old < young


async def test_what_waits_is_counted(store: engine.Store):
    """Due, later and claimed documents by collection, changes without a number, and letters that were not sent."""
    await store.write(stored.write, {**{f"notes/{n}": f"{n}" for n in range(6)}, "mails/1": "x"})
    claims = (await store.write(stored.claimed, slots=3)).claims
    put_off = claims[0]
    await store.write(
        queue.retry, [queue.Retried(put_off.uri, put_off.indexed_as, put_off.attempt, 60_000, counted=True)]
    )
    event = stored.event("notes/1", None)  # type: ignore[arg-type]
    letter = Letter(event, "not_json", "no", "decode", "open", 1)
    await store.write(dead_letters.store, [letter])
    found = await store.read(store_stats.waiting)
    by_status = await store.read(store_stats.by_status)
    letters = await store.read(store_stats.open_letters)
    rows = (await store.read(stored.rows)).values()

    assert sum(found.claimed.values()) == sum(row["owner"] is not None for row in rows) == 2
    assert sum(found.later.values()) == 1
    assert sum(found.due.values()) == 4
    assert (found.unnumbered, found.unsent) == (7, 1)
    assert by_status == {"notes": {"pending": 6}, "mails": {"pending": 1}}
    assert letters == {"not_json": 1}


async def test_crashes_are_counted_for_good(store: engine.Store, clock: stored.Clock):
    """A takeover and a call cut off are crashes; a claim that was never called is none, and a new body forgets none."""
    await store.write(stored.write, {f"notes/{n}": f"{n}" for n in range(3)})
    first, second, _ = (await store.write(stored.claimed)).claims
    await store.write(queue.release, [queue.Released(first.uri, first.indexed_as, first.attempt, called=True)])
    await store.write(queue.release, [queue.Released(second.uri, second.indexed_as, second.attempt, called=False)])
    await store.write(queue.release, [queue.Released(first.uri, first.indexed_as, first.attempt, called=True)])
    clock.shift_ms = 120_000
    await store.write(stored.claimed)
    await store.write(stored.write, {f"notes/{n}": "another" for n in range(3)})

    assert (await look(store)).tallies[counters.CRASHES] == 2


async def test_duplicates_are_counted_for_good(store: engine.Store):
    """An event that was settled before and comes again is counted; the same uri under another id is not."""
    event = stored.written("notes/1", "x")
    await store.write(apply.append, stored.TOPIC, [event, stored.written("notes/1", "x"), event])
    await store.write(apply.append, stored.TOPIC, [event])

    assert (await look(store)).tallies[counters.DUPLICATES] == 2


async def statements(store: engine.Store) -> dict[str, Any]:
    """Return the statements of a glance and of the count of what waits, with their parameters."""
    seen: dict[str, Any] = {}

    def note(_c: Any, _cursor: Any, text: str, given: Any, _context: Any, _many: bool) -> None:
        if "FROM documents" in text or "FROM dead_letters" in text:
            seen[text] = given

    sa.event.listen(store.engine, "before_cursor_execute", note)
    await look(store)
    await store.read(store_stats.waiting)
    sa.event.remove(store.engine, "before_cursor_execute", note)
    return seen


async def test_no_look_reads_a_table(store: engine.Store):
    """Each question is answered from an index that holds only what waits; the oldest by a search in it."""
    await store.write(stored.write, {f"notes/{n}": f"{n}" for n in range(10)})
    seen = await statements(store)
    explain = "EXPLAIN QUERY PLAN" if store.engine.dialect.name == "sqlite" else "EXPLAIN"
    plans = {}
    with store.engine.connect() as connection:
        if store.engine.dialect.name == "postgresql":  # a small table is read whole if that is not forbidden
            connection.exec_driver_sql("SET enable_seqscan = off")
        for text, given in seen.items():
            plans[text] = " ".join(str(row[-1]) for row in connection.exec_driver_sql(f"{explain} {text}", given))

    partial = ("documents_due", "documents_turns", "documents_leased", "documents_unnumbered", "dead_letters_unsent")
    assert len(plans) == 7
    assert {text: plan for text, plan in plans.items() if not any(name in plan for name in partial)} == {}
    oldest = [plan for text, plan in plans.items() if "LIMIT" in text]
    assert len(oldest) == 2
    assert all("lane" in plan and "due_ms" in plan for plan in oldest)


async def test_a_question_that_takes_too_long_is_ended(store: engine.Store):
    """It ends as a store that does not answer; the connection is good for others, and their time is not limited."""

    def limited(tx: engine.Tx) -> None:
        with tx.limited(0.05):
            tx.execute(sa.text(ENDLESS.format(10**10)))

    def unlimited(tx: engine.Tx) -> int:
        return int(tx.execute(sa.text(ENDLESS.format(500_000))).scalar_one())

    for _ in range(engine.POOL_SIZE):
        with pytest.raises(errors.StoreUnavailable, match=r"within 0\.05 s"):
            await store.read(limited)

    assert await store.read(unlimited) == 500_000
