"""How SQLite reads for the queue, the feed and jobs: by the right index, whatever the store holds.

SQLite plans without statistics, so its plans over a small store are those over a large one. PostgreSQL plans by what is
there; it is measured, not tested.
"""

from typing import Any

import pytest
import sqlalchemy as sa
import stored

from facetline.storage import feed, processes
from facetline.storage.db import engine
from facetline.storage.jobs import jobs, model
from facetline.storage.queue import answer_cache, queue

pytestmark = pytest.mark.collections("notes", "mails")

LARGE = ("documents", "bodies", "memo", "job_items")
# What may be read from end to end: indexes that hold little, or of which a limit or the question itself needs all.
WHOLE = ("documents_unnumbered", "documents_leased", "documents_due", "documents_turns", "memo_created")


@pytest.fixture
def store_url(sqlite_url: str) -> str:
    """SQLite alone: nothing here depends on the database."""
    return sqlite_url


async def work(store: engine.Store) -> None:
    """Run every statement of the queue, the feed, jobs and processes."""
    failed, retried, released, *others = (await store.write(stored.claimed, reindex_slots_min=3)).claims
    await store.write(stored.answer_all, others)
    await store.write(queue.fail, [queue.Failed(failed.uri, failed.indexed_as, failed.attempt, "refused", "no")])
    await store.write(queue.retry, [queue.Retried(retried.uri, retried.indexed_as, retried.attempt, 5, counted=True)])
    released_ = queue.Released(released.uri, released.indexed_as, released.attempt, called=True)
    await store.write(queue.release, [released_])
    await store.read(queue.unanswered, "test")
    await store.read(queue.failed, "test")
    await store.read(queue.pending)
    await store.read(queue.pending, ["notes"])
    await store.write(stored.write, {f"mails/{n}": f"body {n}" for n in range(40)})
    await store.write(feed.number)
    await store.read(feed.read, 0, 50)
    await store.read(feed.shown, 0, 50, "notes")
    await store.read(feed.records, ["notes/1"])
    for mode in ("missing", "outdated", "force"):
        await store.write(jobs.create, mode, model.JobRequest("notes", mode=mode))
        await store.write(jobs.fill, mode, 3)
        await store.write(jobs.fill, mode, 500)
        await store.write(jobs.take, "me", 10_000, ["notes"])
        for bound in (5, 10):
            await store.write(jobs.turn, mode, "me", bound, 5)
        await store.read(jobs.progress, mode)
        await store.read(jobs.items, mode, "waiting")
        await store.write(jobs.cancel, mode)
    await store.write(jobs.create, "filtered", model.JobRequest("notes", mode="force", filter="x"))
    await store.write(jobs.fill, "filtered", 10, ["notes/1"])
    await store.write(stored.answer_all, (await store.write(stored.claimed)).claims)
    await store.write(stored.write, {"notes/1": "rewritten"})
    await store.write(answer_cache.prune, 3, 5)
    await store.write(processes.beat, "me", "worker")
    await store.read(processes.answering)


def bad_steps(plan: list[str]) -> list[str]:
    """Return what reads a large table whole, by a collection, by a state, or sorts it."""
    by_place = [step for step in plan if "documents_collection (collection=?" in step and "(scope,uri)" not in step]
    of_a_job = [step for step in plan if step.endswith("(job_id=?)")]
    scans = [step for step in plan if step.split()[:1] == ["SCAN"] and step.split()[1] in LARGE]
    return by_place + of_a_job + [step for step in scans if not any(name in step for name in WHOLE)]


async def test_every_statement_takes_the_right_index(store: engine.Store):
    """No statement reads a large table from end to end, or every row of a collection or a job."""
    await store.write(stored.write, {f"notes/{n}": f"body {n}" for n in range(40)})
    seen: dict[str, Any] = {}

    def note(_c: Any, _cursor: Any, text: str, given: Any, _context: Any, many: bool) -> None:
        seen.setdefault(text, given[0] if many else given)

    sa.event.listen(store.engine, "before_cursor_execute", note)
    await work(store)
    sa.event.remove(store.engine, "before_cursor_execute", note)

    counts_of_a_job = "GROUP BY job_items.state"
    found = {}
    with store.engine.connect() as connection:
        for text, given in seen.items():
            if text.split()[0] in {"SELECT", "UPDATE", "INSERT", "DELETE", "WITH"} and counts_of_a_job not in text:
                plan = [str(row[-1]) for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", given)]
                found[" ".join(text.split())] = bad_steps(plan)
    assert len(found) > 40
    assert {text: steps for text, steps in found.items() if steps} == {}
