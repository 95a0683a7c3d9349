"""Views that are kept current: never older than they say, searched while the store is away, rebuilt beside the old one.

Method: a real store, and the loop's looks made one by one by the test; a store that can be away in front of it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import sqlalchemy as sa
import stored

from facetline.facets import errors, tokens
from facetline.facets.backend import NOW, Caller, Freshness, Right
from facetline.facets.search.selection import Selection
from facetline.storage import credentials, definitions, feed
from facetline.storage.db import engine, models
from facetline.streams.serve import health
from facetline.streams.views import consistency
from facetline.streams.views.live_views import LiveViews

pytestmark = pytest.mark.collections("notes", "mails")

ALL = Selection(collection="notes")
READER = Caller("reader", frozenset[Right]({"read"}))


class Away:
    """A store that does not answer while `away`."""

    def __init__(self, store: engine.Store) -> None:
        self.away = False
        self.reads = 0
        self.before_read: Callable[[], None] = lambda: None
        self.instead: dict[Any, Callable[[], Awaitable[None]]] = {}
        self._store = store

    @property
    def store_id(self) -> str:
        """The store's own."""
        return self._store.store_id

    @store_id.setter
    def store_id(self, value: str) -> None:
        self._store.store_id = value

    async def read(self, function: Any, *given: Any) -> Any:
        """Read as the store does."""
        self._check()
        self.before_read()
        self.reads += 1
        if function in self.instead:
            await self.instead.pop(function)()
        return await self._store.read(function, *given)

    async def write(self, function: Any, *given: Any) -> Any:
        """Write as the store does."""
        self._check()
        return await self._store.write(function, *given)

    def _check(self) -> None:
        if self.away:
            raise errors.StoreUnavailable("away")


@asynccontextmanager
async def looking(store: Any, **options: Any) -> AsyncIterator[LiveViews]:
    """Views that have looked once and are built; nothing looks by itself."""
    views = LiveViews(store, **options)
    try:
        await until(views, lambda: not views.unbuilt())
        yield views
    finally:
        await views.close()


async def until(views: LiveViews, condition: Callable[[], bool]) -> None:
    """Look again and again until something is so."""
    async with asyncio.timeout(20):
        await views.look()
        while not condition():
            await asyncio.sleep(0.01)
            await views.look()


async def found(views: LiveViews, selection: Selection = ALL) -> list[str]:
    """The uris that a search finds now."""
    async with views.using(selection.collection) as live:
        reply = await views.read(live.view.search, selection)
    return [hit["uri"] for hit in reply["hits"]]


async def test_a_look_takes_in_all_that_was_committed(store: engine.Store):
    """After a look each view holds what was written, answered and deleted before, and is at the feed's end."""
    async with looking(store) as views:
        await store.write(stored.write, {"notes/a": "1", "notes/b": "2", "mails/m": "3"})
        await views.look()
        assert await found(views) == ["notes/a", "notes/b"]

        await store.write(stored.delete, "notes/a")
        await views.look()

        assert await found(views) == ["notes/b"]
        assert [views.behind(name) for name in ("notes", "mails")] == [0, 0]
        assert views.end == await store.read(feed.end)


async def test_a_search_asks_the_store_nothing(store: engine.Store):
    """Without a token a search reads the view alone."""
    counted = Away(store)
    async with looking(counted) as views:
        before = counted.reads

        await consistency.reached(views, counted, "notes", [], NOW.wait_ms, None)  # type: ignore[arg-type]
        await found(views)

        assert counted.reads == before


async def test_searches_go_on_while_the_store_is_away(store: engine.Store):
    """What was in the view is found while the store is away, and only tokens that the view holds are honoured."""
    front = Away(store)
    await store.write(stored.write, {"notes/a": "1"})
    async with looking(front) as views:
        front.away = True
        with pytest.raises(errors.StoreUnavailable):
            await views.look()
        held = [tokens.WriteToken(store.store_id, "notes/a", 1), tokens.FeedToken(store.store_id, 1)]

        await consistency.reached(views, front, "notes", held, 10_000, None)  # type: ignore[arg-type]

        assert await found(views) == ["notes/a"]
        assert views.problem == "away"
        later = [tokens.WriteToken(store.store_id, "notes/a", 2)]
        with pytest.raises(errors.NotCaughtUp, match="away"):
            await consistency.reached(views, front, "notes", later, 50, None)  # type: ignore[arg-type]
        front.away = False
        await views.look()
        assert views.problem is None


async def test_a_reader_never_goes_back_between_nodes(store: engine.Store):
    """A token of the node that is ahead is refused by one that is behind, until that has come as far."""
    async with looking(store) as ahead, looking(store) as behind:
        await store.write(stored.write, {"notes/a": "1"})
        await ahead.look()
        async with ahead.using("notes") as live:
            token = (await ahead.read(live.view.search, ALL))["as_of"]["token"]
        wanted = consistency.check(Freshness((token,)), READER, "facetline/api/reader", store.store_id)

        with pytest.raises(errors.NotCaughtUp):
            await consistency.reached(behind, store, "notes", wanted, 50, None)
        await behind.look()
        await consistency.reached(behind, store, "notes", wanted, 50, None)

        assert await found(behind) == ["notes/a"]


async def test_what_changed_between_its_number_and_the_reading_is_waited_for(store: engine.Store):
    """A document that changes again after it was numbered is in no page; till it comes, no token of it is honoured."""
    front = Away(store)
    async with looking(front) as views:
        await store.write(stored.write, {"notes/a": "1", "notes/b": "1"})
        await store.write(feed.number)
        wanted = [tokens.FeedToken(store.store_id, await store.read(feed.end))]

        async def change() -> None:
            await store.write(stored.write, {"notes/a": "2"})

        front.instead[feed.page_and_end] = change
        await views.look()
        assert await found(views) == ["notes/b"]

        with pytest.raises(errors.NotCaughtUp):
            await consistency.reached(views, front, "notes", wanted, 50, None)  # type: ignore[arg-type]
        await views.look()
        await consistency.reached(views, front, "notes", wanted, 50, None)  # type: ignore[arg-type]

        assert await found(views) == ["notes/a", "notes/b"]


async def test_a_scopes_count_says_nothing_while_a_document_of_it_is_between(store: engine.Store):
    """A higher count of changes is no proof while a document of the scope has changed and was not read again."""
    await store.write(stored.defined, "scoped")
    front = Away(store)
    async with looking(front) as views:
        await store.write(stored.write, {"@s/scoped/a": "1", "@s/scoped/b": "1", "@t/scoped/a": "1"})
        await views.look()

        async def change() -> None:
            await store.write(stored.write, {"@s/scoped/a": "2"})

        await store.write(stored.write, {"@s/scoped/b": "2"})
        front.instead[feed.page_and_end] = change
        await views.look()
        mine, other = (tokens.ScopeToken(store.store_id, "scoped", scope, 1) for scope in "st")

        await consistency.reached(views, front, "scoped", [other], 50, "t")  # type: ignore[arg-type]
        with pytest.raises(errors.NotCaughtUp):
            await consistency.reached(views, front, "scoped", [mine], 50, "s")  # type: ignore[arg-type]
        await views.look()
        await consistency.reached(views, front, "scoped", [mine], 50, "s")  # type: ignore[arg-type]


async def test_a_document_that_never_stands_still_holds_up_what_is_after_it_alone(store: engine.Store):
    """With a document between at every look, `reached` follows once the documents owed have come, whoever is next."""
    async with looking(store) as views, views.using("notes") as live:
        steps = [(10, {"a"}), (20, {"a", "b"}), (30, {"b"}), (40, {"c"}), (50, set())]
        live.reached = 5
        reached = []

        for end, between in steps:
            live.came_to(end, frozenset(between))
            reached.append(live.reached)

        assert reached == [5, 5, 10, 30, 50]


@pytest.mark.parametrize("function", [credentials.in_force, definitions.active])
async def test_what_could_not_be_read_is_read_by_the_next_look(store: engine.Store, function: Any):
    """A store that goes away in the middle of a look hides no revoked token and no changed questions for good."""
    await store.write(credentials.create, "c", "t", name="", rights=["read"], scope=None)
    front = Away(store)
    async with looking(front) as views:
        await store.write(credentials.revoke, "c")
        await store.write(stored.defined, "mails", "others")

        front.instead[function] = _away
        with pytest.raises(errors.StoreUnavailable):
            await views.look()
        await views.look()

        assert views.known.by_digest == {}
        assert "others" in views.known.definitions.by_name


async def test_a_revoked_token_opens_nothing_while_a_long_way_is_gone(store: engine.Store):
    """Who was revoked while a view takes in very many changes is nobody before it has come to their end."""
    await store.write(credentials.create, "c", "t", name="", rights=["read"], scope=None)
    front = Away(store)
    async with looking(front, page=2, taken_max=2) as views, views.using("notes") as live:
        await store.write(stored.write, {f"notes/{number}": "x" for number in range(9)})
        valid: list[bool] = []

        async def revoke() -> None:
            await store.write(credentials.revoke, "c")

        front.instead[feed.page_and_end] = revoke
        front.before_read = lambda: valid.append(bool(views.known.by_digest))
        await views.look()

        assert live.complete
        assert valid[0]
        assert not valid[-1]


async def _away() -> None:
    """Be away, once."""
    raise errors.StoreUnavailable("away")


async def test_a_view_in_the_middle_of_a_long_way_has_not_reached_it(store: engine.Store):
    """While changes come in steps, `reached` stays where it was, so that no token is honoured too early."""
    front = Away(store)
    async with looking(front, page=2, taken_max=2) as views, views.using("notes") as live:
        await store.write(stored.write, {f"notes/{number}": "x" for number in range(7)})
        seen: list[tuple[int, int, bool]] = []
        front.before_read = lambda: seen.append((live.view.position, live.reached, live.complete))

        await views.look()
        front.before_read = lambda: None
        on_the_way = [(reached, complete) for position, reached, complete in seen if position > 0]

        assert len(on_the_way) > 1
        assert set(on_the_way) == {(0, False)}
        assert (live.reached, live.complete) == (await store.read(feed.end), True)


async def test_a_scopes_token_waits_for_the_end_of_a_long_way(store: engine.Store):
    """In the middle of a long way a count of changes proves nothing, however high it is."""
    await store.write(stored.defined, "scoped")
    await store.write(stored.write, {"@s/scoped/a": "1"})
    async with looking(store) as views, views.using("scoped") as live:
        wanted = [tokens.ScopeToken(store.store_id, "scoped", "s", 1)]
        await consistency.reached(views, store, "scoped", wanted, 50, "s")

        live.complete = False

        with pytest.raises(errors.NotCaughtUp) as told:
            await consistency.reached(views, store, "scoped", wanted, 50, "s")
        assert "changes" not in told.value.message


async def test_changed_questions_are_searched_when_their_view_is_whole(store: engine.Store):
    """While a collection's view is built anew the old one answers; then the new one does, with every document."""
    await store.write(stored.write, {"notes/a": "1", "notes/b": "2"})
    async with looking(store) as views:
        async with views.using("notes") as old:
            await store.write(stored.defined, "notes", fingerprint="f2")
            await views.look()
            assert await found(views) == ["notes/a", "notes/b"]
            await until(views, lambda: old.retired and not views._building)

            assert len((await views.read(old.view.search, ALL))["hits"]) == 2  # held by who uses it

        async with views.using("notes") as new:
            assert new is not old
            assert new.definition.fingerprint == "f2"
        assert await found(views) == ["notes/a", "notes/b"]


async def test_a_store_that_went_back_is_read_from_the_start(store: engine.Store):
    """A feed that ends before the view's place (a backup was restored) makes the views start over."""
    await store.write(stored.write, {"notes/a": "1", "notes/b": "2"})
    async with looking(store) as views:
        await store.write(_restore, "notes/a")

        await until(views, lambda: views.unbuilt() == [] and views.end == 1)

        assert await found(views) == ["notes/a"]


async def test_as_many_changes_after_a_restore_are_other_changes(store: engine.Store):
    """A node that has seen a token does not take it for valid after a restore, although as many changes were made."""

    async def make(id_: str) -> str:
        await store.write(credentials.create, id_, id_, name="", rights=("read",), scope=None)
        return credentials.digest(id_)

    backed_up = await store.read(credentials.generation)
    gone = await make("made-after-the-backup")
    async with looking(store) as views:
        assert set(views.known.by_digest) == {gone}

        def restore(tx: engine.Tx) -> None:
            tx.execute(sa.delete(models.CREDENTIALS))
            values = {"credentials_generation": backed_up.number, "credentials_mark": backed_up.mark}
            tx.execute(sa.update(models.STORE).values(values))

        await store.write(restore)
        other = await make("made-after-the-restore")
        await views.look()

        assert set(views.known.by_digest) == {other}


async def test_another_store_in_its_place_starts_over(store: engine.Store):
    """A store with another id is another store, whatever its feed says; its tokens are the ones that count."""
    await store.write(stored.write, {"notes/a": "1"})
    async with looking(store) as views:
        await store.write(_rename, "another")

        await until(views, lambda: store.store_id == "another" and views.unbuilt() == [])

        async with views.using("notes") as live:
            token = tokens.decode((await views.read(live.view.search, ALL))["as_of"]["token"])
        assert token == tokens.FeedToken("another", 1)


async def test_a_view_that_stands_still_is_searched_and_told(store: engine.Store):
    """While a view takes nothing in, searches go on as they were; after two minutes the process is no longer alive."""
    now_s = [0.0]
    await store.write(stored.write, {"notes/a": "1"})
    async with looking(store, clock=lambda: now_s[0]) as views, views.using("notes") as live:
        with live.view._writing:
            await store.write(stored.write, {"notes/b": "2"})
            stuck = asyncio.create_task(views.look())
            while views.behind("notes") == 0 and not stuck.done():
                await asyncio.sleep(0.01)
                views.end = await store.read(feed.end)

            assert await found(views) == ["notes/a"]
            assert [check.level for check in health.alive(views, following=True, work_dead=[])] == ["ok", "ok"]
            now_s[0] = health.STUCK_S + 1
            assert [check.level for check in health.alive(views, following=True, work_dead=[])][1] == "failed"
            assert not stuck.done()
        await stuck

        assert await found(views) == ["notes/a", "notes/b"]
        assert [check.level for check in health.alive(views, following=True, work_dead=[])] == ["ok", "ok"]


async def test_a_view_that_cannot_be_built_now_is_tried_again(store: engine.Store):
    """A store that goes away during a build leaves the collection unbuilt and said so, until it is there again."""
    front = Away(store)
    views = LiveViews(front)  # type: ignore[arg-type]
    try:
        await views.look()
        front.away = True
        await asyncio.sleep(0)
        with pytest.raises(errors.NotCaughtUp):
            await consistency.reached(views, front, "notes", [], 50, None)  # type: ignore[arg-type]
        front.away = False
        await until(views, lambda: not views.unbuilt())

        assert await found(views) == []
    finally:
        await views.close()


async def test_a_view_that_fails_in_any_way_is_built_again(store: engine.Store):
    """A fault in a build is no end: its reason is in readiness, the next try waits longer, and then it is searched."""
    now_s = [0.0]
    front = Away(store)
    views = LiveViews(front, clock=lambda: now_s[0])  # type: ignore[arg-type]

    async def fault() -> None:
        raise ImportError("half made", name="numpy")

    try:
        for tries in range(1, 4):
            front.instead[feed.page] = fault
            now_s[0] += 60 * tries
            await until(views, lambda: feed.page not in front.instead and not views._building)
            check = health._view(views)
            assert check.level == "failed"
            assert "(retrying: numpy cannot be imported)" in check.detail
        await views.look()
        assert not views._building  # not due yet
        now_s[0] += 60
        await until(views, lambda: not views.unbuilt())

        assert [views.why_unbuilt(name) for name in ("notes", "mails")] == [None, None]
        assert await found(views) == []
    finally:
        await views.close()


async def test_a_view_that_breaks_while_it_follows_is_replaced(store: engine.Store):
    """A view whose database fails under a batch is dropped and built again; the views of other collections go on."""
    now_s = [0.0]
    await store.write(stored.write, {"notes/a": "1"})
    async with looking(store, clock=lambda: now_s[0]) as views:
        async with views.using("notes") as live:
            live.view._connection.close()
        await store.write(stored.write, {"notes/b": "2"})
        await until(views, lambda: "notes" in views.unbuilt())
        assert views.why_unbuilt("notes") is not None
        now_s[0] += 60
        await until(views, lambda: not views.unbuilt())

        assert await found(views) == ["notes/a", "notes/b"]


def _restore(tx: engine.Tx, kept: str) -> None:
    """Leave one document, as the first of the feed: what a backup of then would hold."""
    stores, documents = models.STORE, stored.DOCUMENTS
    tx.execute(sa.delete(documents).where(documents.c.uri != kept))
    tx.execute(sa.update(documents).values(feed_seq=1))
    tx.execute(sa.update(stores).values(feed_seq=1))


def _rename(tx: engine.Tx, store_id: str) -> None:
    stores = models.STORE
    tx.execute(sa.update(stores).values(store_id=store_id))
