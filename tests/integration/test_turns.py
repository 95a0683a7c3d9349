"""Claims take turns: a document that is alone in its scope or collection does not wait for everybody else's."""

from collections.abc import Sequence

import pytest
import sqlalchemy as sa
import stored

from facetline.storage.db import engine
from facetline.storage.queue import queue

pytestmark = pytest.mark.collections("notes", "mails", "scoped")

MANY = 300


async def claimed(store: engine.Store, rounds: int, slots: int = 1) -> list[Sequence[queue.Claim]]:
    """Claim so many times, as one process does: each claim begins after the last one's turns."""
    found: list[Sequence[queue.Claim]] = []
    turns: queue.picking.Turns = {}
    for _ in range(rounds):
        result = await store.write(stored.claimed, slots=slots, turns=turns)
        turns = result.turns or turns
        found.append(result.claims)
    return found


async def test_a_lone_document_of_a_scope_is_among_the_next_claims(store: engine.Store):
    """Behind 300 of another scope it is claimed second, one document at a time; nobody is claimed twice."""
    await store.write(stored.write, {f"@many/scoped/{n:03d}": f"text {n}" for n in range(MANY)})
    await store.write(stored.write, {"@zoe/scoped/alone": "her text"})

    found = await claimed(store, 4)

    assert [each[0].scope for each in found] == ["many", "zoe", "many", "many"]
    assert len({each[0].uri for each in found}) == 4


async def test_a_lone_document_is_in_a_claim_of_several(store: engine.Store):
    """With several slots each scope has one of them, and the rest go to those that are due longest."""
    await store.write(stored.write, {f"@many/scoped/{n:03d}": f"text {n}" for n in range(MANY)})
    await store.write(stored.write, {f"@{name}/scoped/alone": f"text of {name}" for name in ("ann", "zoe")})

    [found] = await claimed(store, 1, slots=8)

    assert sorted({each.scope for each in found}) == ["ann", "many", "zoe"]
    assert sum(each.scope == "many" for each in found) == 6


async def test_every_scope_has_its_turn(store: engine.Store):
    """Ten scopes with ten documents each, one slot: each is served once before any is served again."""
    for name in range(10):
        await store.write(stored.write, {f"@s{name}/scoped/{n}": f"text {name} {n}" for n in range(10)})

    scopes = [each[0].scope for each in await claimed(store, 30)]

    assert [sorted(scopes[at : at + 10]) for at in (0, 10, 20)] == [[f"s{name}" for name in range(10)]] * 3


async def test_collections_of_one_evaluator_are_claimed_in_turn(store: engine.Store):
    """A lone document of a collection does not wait for the many of another one of the same evaluator."""
    await store.write(stored.write, {f"notes/{n:03d}": f"text {n}" for n in range(MANY)})
    await store.write(stored.write, {"mails/alone": "its text", "mails/again": "its second text"})

    found = await claimed(store, 4)

    assert [each[0].collection for each in found] == ["notes", "mails", "notes", "mails"]


async def test_scopes_without_anything_due_cost_no_turn(store: engine.Store):
    """Scopes whose documents wait for a retry are passed over, and the slots go to what is due."""
    await store.write(stored.write, {f"@later{n:02d}/scoped/a": f"text {n}" for n in range(70)})
    claims = (await store.write(stored.claimed, slots=70)).claims
    later = [queue.Retried(each.uri, each.indexed_as, each.attempt, 60_000, counted=True) for each in claims]
    await store.write(queue.retry, later)
    await store.write(stored.write, {f"@many/scoped/{n:03d}": f"more {n}" for n in range(MANY)})

    found = await claimed(store, 3, slots=2)

    assert [len(each) for each in found] == [2, 2, 2]


async def test_one_scope_is_claimed_in_the_order_of_time(store: engine.Store):
    """Turns change nothing where there is one scope: what is due longest comes first."""
    await store.write(stored.write, {f"@one/scoped/{n:03d}": f"text {n}" for n in range(20)})

    found = await claimed(store, 4, slots=5)

    assert [each.uri for claims in found for each in claims] == [f"@one/scoped/{n:03d}" for n in range(20)]


async def test_the_cost_of_a_turn_does_not_grow_with_what_is_pending(sqlite_url: str):
    """Steps of SQLite's machine for a claim behind 20,000 documents are those behind 2,000."""
    steps = []
    for count in (2_000, 20_000):
        async with stored.opened(sqlite_url) as store:
            await store.write(stored.defined, "scoped")
            for start in range(0, count, 500):
                chunk = range(start, start + 500)
                await store.write(stored.write, {f"@many{n % 7}/scoped/{count}-{n}": f"{count} {n}" for n in chunk})
            steps.append(await store.write(_steps_of_a_claim))
    assert steps[1] < 2 * steps[0]


def _steps_of_a_claim(tx: engine.Tx) -> int:
    seen = [0]

    def count() -> int:
        seen[0] += 1
        return 0

    driver = tx.connection.connection.driver_connection
    assert driver is not None
    driver.set_progress_handler(count, 10)
    stored.claimed(tx, slots=4)
    driver.set_progress_handler(None, 0)
    tx.execute(sa.text("SELECT 1"))
    return seen[0]
