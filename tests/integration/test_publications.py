"""Publishing: one sender at a time, a position that only grows. Each once on SQLite and on PostgreSQL."""

import asyncio

import stored

from facetline.storage import publications
from facetline.storage.db import engine

TOPIC = "facets"
LEASE_MS = 10_000


async def test_one_sender_of_many(store: engine.Store):
    """Of many that want to send at once exactly one is elected, for each topic."""
    owners = [f"worker {n}" for n in range(8)]

    elected = await asyncio.gather(*(store.write(publications.elect, TOPIC, owner, LEASE_MS) for owner in owners))
    other = await store.write(publications.elect, "another", "worker x", LEASE_MS)

    assert sorted(elected, key=str) == [0, *[None] * 7]
    assert other == 0


async def test_lease_passes_on_when_it_ends(store: engine.Store, clock: stored.Clock):
    """The sender keeps its place as long as it renews; the next one goes on where it recorded to be."""
    await store.write(publications.elect, TOPIC, "one", LEASE_MS)
    await store.write(publications.advance, TOPIC, "one", 50, start=0)
    clock.shift_ms = LEASE_MS - 1_000
    renewed = await store.write(publications.elect, TOPIC, "one", LEASE_MS)
    clock.shift_ms = LEASE_MS + 1_000
    early = await store.write(publications.elect, TOPIC, "two", LEASE_MS)
    clock.shift_ms = 3 * LEASE_MS
    late = await store.write(publications.elect, TOPIC, "two", LEASE_MS)

    assert (renewed, early, late) == (50, None, 50)


async def test_former_sender_moves_nothing(store: engine.Store, clock: stored.Clock):
    """Once another is the sender the former one can neither advance nor resign."""
    await store.write(publications.elect, TOPIC, "one", LEASE_MS)
    clock.shift_ms = LEASE_MS
    await store.write(publications.elect, TOPIC, "two", LEASE_MS)

    advanced = await store.write(publications.advance, TOPIC, "one", 99, start=0)
    await store.write(publications.resign, TOPIC, "one")
    third = await store.write(publications.elect, TOPIC, "three", LEASE_MS)

    assert (advanced, third, await store.read(publications.position, TOPIC)) == (False, None, 0)


async def test_a_position_moves_only_from_where_it_stands(store: engine.Store):
    """What was read at another position than the recorded one moves nothing, neither forward nor back."""
    await store.write(publications.elect, TOPIC, "one", LEASE_MS)

    steps = [
        await store.write(publications.advance, TOPIC, "one", end, start=start)
        for start, end in ((0, 5), (0, 7), (9, 12), (5, 3), (5, 7))
    ]

    assert steps == [True, False, False, True, True]
    assert await store.read(publications.own_position, TOPIC, "one") == 7
    assert await store.read(publications.own_position, TOPIC, "two") is None


async def test_resigned_sender_is_replaced_at_once(store: engine.Store):
    """After resigning nobody waits for the lease to end."""
    await store.write(publications.elect, TOPIC, "one", LEASE_MS)

    await store.write(publications.resign, TOPIC, "one")

    assert await store.write(publications.elect, TOPIC, "two", LEASE_MS) == 0


async def test_set_aside_rows_come_back_when_due(store: engine.Store, clock: stored.Clock):
    """What could not be sent is due after its delay, counts its attempts, and is forgotten when it was sent."""
    await store.write(publications.set_aside, TOPIC, "notes/a", "too\0 large", 5_000)
    again = await store.write(publications.set_aside, TOPIC, "notes/a", "still too large", 9_000)
    await store.write(publications.set_aside, TOPIC, "notes/b", "no", 1_000)
    at_once = await store.read(publications.due_again, TOPIC, 10)
    clock.shift_ms = 5_000
    soon = await store.read(publications.due_again, TOPIC, 10)
    clock.shift_ms = 9_000
    later = await store.read(publications.due_again, TOPIC, 10)
    await store.write(publications.clear, TOPIC, ["notes/b"])
    left = await store.read(stored.aside, TOPIC)

    assert again == 2
    assert (at_once, [each.uri for each in soon]) == ([], ["notes/b"])
    assert [each.uri for each in later] == ["notes/b", "notes/a"]
    assert [(each.uri, each.message, each.attempts) for each in left] == [("notes/a", "still too large", 2)]
