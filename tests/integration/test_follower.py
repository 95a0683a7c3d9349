"""The follower: a search sees all that was committed before it, whatever happens between its own transactions."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import sqlalchemy as sa
import stored

from facetline.facets.search.selection import Selection
from facetline.storage import feed
from facetline.storage.db import engine
from facetline.streams.views.follower import Follower

pytestmark = pytest.mark.collections("notes")

ALL = Selection(collection="notes")


class Interleaved:
    """A store in which something else happens just before the call with the number `at`; counts from 1."""

    def __init__(self, store: engine.Store, at: int, happens: Callable[[], Awaitable[None]]) -> None:
        self.calls = 0
        self.store_id = store.store_id
        self._store = store
        self._at = at
        self._happens = happens

    async def read(self, function: Any, *given: Any) -> Any:
        """Read as the store does."""
        await self._call()
        return await self._store.read(function, *given)

    async def write(self, function: Any, *given: Any) -> Any:
        """Write as the store does."""
        await self._call()
        return await self._store.write(function, *given)

    async def _call(self) -> None:
        self.calls += 1
        if self.calls == self._at:
            await self._happens()


async def seen(store: Any) -> list[tuple[str, int]]:
    """Return what a search by a new view finds: uris and their `indexed_as`."""
    follower = Follower(store, "notes")
    try:
        reply = await follower.search(ALL)
    finally:
        await follower.close()
    return [(hit["uri"], hit["indexed_as"]) for hit in reply["hits"]]


async def test_answer_in_the_middle_of_a_search_hides_no_write(store: engine.Store):
    """A document answered between any two transactions of a search is found as it was written before the search."""
    calls = 99
    at = 1
    found = []
    while at <= calls:
        written = await store.write(stored.write, {"notes/a": f"text {at}"})
        claims = (await store.write(stored.claimed)).claims

        async def answer(claims: Any = claims) -> None:
            await store.write(stored.answer_all, claims, "billing")

        interleaved = Interleaved(store, at, answer)
        found.append((await seen(interleaved), list(written.items())))
        calls = interleaved.calls
        at += 1

    assert at > 3
    assert [hits for hits, _ in found] == [written for _, written in found]


@pytest.mark.postgres
async def test_search_waits_for_what_somebody_has_locked(postgres_url: str):
    """A document that a claim has locked for a moment was written before the search all the same."""
    async with stored.opened(postgres_url) as store:
        await store.write(stored.defined, "notes")
        written = await store.write(stored.write, {"notes/a": "1", "notes/b": "2"})
        with contextlib.ExitStack() as locking:
            connection = locking.enter_context(store.engine.connect())
            locking.enter_context(connection.begin())
            locked = sa.select(stored.DOCUMENTS.c.uri).where(stored.DOCUMENTS.c.uri == "notes/a").with_for_update()
            connection.execute(locked)
            numbered: list[bool] = []

            async def unlock() -> None:
                numbered.append(len(await store.read(feed.read, 0, 10)) == 1)
                locking.close()

            found = await seen(Interleaved(store, 5, unlock))

        assert numbered == [True]
        assert sorted(found) == sorted(written.items())
