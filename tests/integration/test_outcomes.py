"""Outcomes: found by id and digest, told for 30 days, forgotten in bounded steps."""

from dataclasses import replace

import judged
import stored

from facetline.storage.db import engine
from facetline.storage.log import apply, outcomes

DAY_MS = 24 * 60 * 60 * 1000


async def test_an_outcome_is_found_by_id_and_by_digest(store: engine.Store):
    """A poller with the digest gets its own event's outcome, one without gets what settled the id."""
    applied = judged.write("tickets/a", "x", event_id="one")
    reused = judged.write("tickets/a", "y", event_id="one")
    done = await store.write(apply.append, "local", [applied, reused])

    assert await store.read(outcomes.find, "test", "one") == done.outcomes[0]
    assert await store.read(outcomes.find, "test", "one", applied.digest) == done.outcomes[0]
    assert await store.read(outcomes.find, "test", "one", reused.digest) == done.outcomes[1]


async def test_an_unknown_event_has_no_outcome(store: engine.Store):
    """Ids are told apart by source, and an event not seen yet has no outcome."""
    await store.write(apply.append, "local", [judged.write("tickets/a", "x", event_id="one")])

    assert await store.read(outcomes.find, "test", "two") is None
    assert await store.read(outcomes.find, "elsewhere", "one") is None


async def test_the_same_id_of_two_sources_is_two_events(store: engine.Store):
    """A producer can only reuse its own ids."""
    event = judged.write("tickets/a", "x", event_id="one")

    done = await store.write(apply.append, "local", [event, replace(event, source="other")])

    assert [outcome.version for outcome in done.outcomes] == [1, 2]


async def test_outcomes_are_kept_30_days(store: engine.Store, clock: stored.Clock):
    """The purge takes what is older than 30 days and nothing else."""
    await store.write(apply.append, "local", [judged.write("tickets/a", "x", event_id="old")])
    clock.shift_ms = 30 * DAY_MS - 60_000
    early = await store.write(outcomes.purge)
    await store.write(apply.append, "local", [judged.write("tickets/a", "x", event_id="new")])
    clock.shift_ms = 30 * DAY_MS + 60_000

    assert early == 0
    assert await store.write(outcomes.purge) == 1
    assert await store.read(outcomes.find, "test", "old") is None
    assert await store.read(outcomes.find, "test", "new") is not None


async def test_the_purge_is_bounded(store: engine.Store, clock: stored.Clock):
    """One transaction forgets no more than it was told to; repeating it forgets all."""
    events = [judged.write(f"tickets/{n}", "x", offset=n) for n in range(7)]
    await store.write(apply.append, "local", events)
    clock.shift_ms = 31 * DAY_MS

    assert [await store.write(outcomes.purge, limit=3) for _ in range(4)] == [3, 3, 1, 0]


async def test_a_forgotten_event_is_judged_afresh(store: engine.Store, clock: stored.Clock):
    """After its outcome is forgotten the same id is a new event."""
    event = judged.write("tickets/a", "x", event_id="one")
    await store.write(apply.append, "local", [event])
    clock.shift_ms = 31 * DAY_MS
    await store.write(outcomes.purge)

    done = await store.write(apply.append, "local", [event])

    assert (done.outcomes[0].version, done.outcomes[0].duplicate) == (2, False)


async def test_a_settled_outcome_is_never_overwritten(store: engine.Store):
    """A worker that rejects an event while another applies it, by other definitions, does not take that back."""
    done = await store.write(apply.append, "local", [judged.write("tickets/a", "x", event_id="one")])

    await store.write(outcomes.store, [replace(done.outcomes[0], outcome="rejected", reason="unknown_collection")])

    assert await store.read(outcomes.find, "test", "one") == done.outcomes[0]


async def test_outcomes_of_a_source_are_counted_and_its_rejections_paged(store: engine.Store):
    """An import finds out from the store how its events ended, page by page for the rejected ones."""
    events = [judged.refused(event_id=f"bad{n}") for n in range(3)]
    await store.write(apply.append, "local", [judged.write("tickets/a", "x", event_id="good"), *events])

    first = await store.read(outcomes.rejected, "test", limit=2)
    second = await store.read(outcomes.rejected, "test", after=first[-1].id, limit=2)

    assert await store.read(outcomes.tally, "test") == {"applied": 1, "rejected": 3}
    assert [outcome.id for outcome in (*first, *second)] == ["bad0", "bad1", "bad2"]
