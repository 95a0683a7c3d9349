"""The views of a process that serves: one for each collection, kept as new as the store behind everybody's back.

A search takes the latest snapshot and asks the store nothing; while the store is away it goes on with what there is.
One loop looks where the store stands, several times a second and at once after a write of this process. A collection
whose questions changed gets a new view beside the old one, which answers until the new one has caught up.

`reached` of a view is a place in the feed: every document of the collection is in it, at least as it was numbered up to
there. It is what tokens are held against; the view itself may be further on in the middle of a long way, or because a
document that changed between its numbering and the reading is yet to come.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import structlog

from facetline.facets import errors
from facetline.facets.definitions import Definition, Definitions
from facetline.facets.search.selection import Selection
from facetline.storage import credentials, definitions, feed
from facetline.storage.db.engine import Store
from facetline.streams.views.follower import Follower
from facetline.streams.views.live_view import Live, searched_alike
from facetline.streams.views.retries import ViewRetries

if TYPE_CHECKING:
    from facetline.facets.documents import Shown

P = ParamSpec("P")
T = TypeVar("T")

POLL_FIRST_S = 0.02
"""Between two looks while things change, and after someone asked for one."""
POLL_MAX_S = 0.25
"""Between two looks while nothing changes: how old a search may be."""
AWAY_S = 1.0
"""Between two looks while the store is away."""
TAKEN_MAX = 20_000
"""Changes that readers see at once: more of them come in several steps."""
SEARCHES_MAX = 4
"""Searches at work at once; DuckDB uses several threads for each, and others wait their turn."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Known:
    """What the loop has read of the store, other than documents."""

    definitions: Definitions = field(default_factory=lambda: Definitions([]))
    by_digest: Mapping[str, credentials.Credential] = field(default_factory=dict)
    """Those in force, by the digest of their tokens."""
    has_credentials: bool = False
    """Whether there has ever been one."""


class LiveViews:
    """Views of all active collections of an open store. `run` keeps them; `close` drops them."""

    def __init__(
        self,
        store: Store,
        *,
        exports: Sequence[Path] = (),
        page: int = feed.NUMBERED_MAX,
        taken_max: int = TAKEN_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`exports` are the folders inside of which views may write snapshots.

        `page` changes are read at once, `taken_max` are seen at once; `clock` counts seconds.
        """
        self.known = Known()
        self.problem: str | None = None
        """Why the last look at the store failed; None when it did not."""
        self.looked_s: float | None = None
        """When the store was last seen as it is, in the clock's seconds."""
        self.begun_s: float | None = None
        """When the look that is under way began; None between two."""
        self.end = 0
        """The feed's end at the last look."""
        self._store = store
        self._exports = exports
        self._page = page
        self._taken_max = taken_max
        self._clock = clock
        self._place: feed.Place | None = None
        self._lives: dict[str, Live] = {}
        self._building: dict[str, asyncio.Task[None]] = {}
        self._one_build = asyncio.Semaphore(1)
        self._retries = ViewRetries()
        self._woken = asyncio.Event()
        self._looked = asyncio.Event()
        self._threads = ThreadPoolExecutor(SEARCHES_MAX, thread_name_prefix="search")

    def wake(self) -> None:
        """Look at the store now."""
        self._woken.set()

    def age_s(self) -> float | None:
        """Return how long ago the store was last seen as it is; None before the first time."""
        return None if self.looked_s is None else self._clock() - self.looked_s

    def busy_s(self) -> float:
        """Return for how long the look that is under way has taken; 0 between two."""
        return 0.0 if self.begun_s is None else self._clock() - self.begun_s

    def unbuilt(self) -> list[str]:
        """Return the active collections that cannot be searched yet."""
        return sorted(name for name in self.known.definitions.by_name if name not in self._lives)

    def why_unbuilt(self, collection: str) -> str | None:
        """Return why a collection's view could not be built the last time; None when it did not fail."""
        return self._retries.reason(collection)

    def behind(self, collection: str) -> int | None:
        """Return how many numbers of the feed a view has not reached, of all collections; None while there is none."""
        live = self._lives.get(collection)
        return None if live is None else max(0, self.end - live.reached)

    async def run(self, stop: asyncio.Event) -> None:
        """Keep all views current until `stop` is set. Ends by itself only with an error."""
        pause_s = POLL_FIRST_S
        while not stop.is_set():
            self._woken.clear()
            try:
                moved = await self.look()
            except errors.StoreUnavailable:
                pause_s = AWAY_S
            else:
                pause_s = POLL_FIRST_S if moved else min(pause_s * 1.5, POLL_MAX_S)
            await asyncio.sleep(POLL_FIRST_S)  # however many wake it
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), pause_s - POLL_FIRST_S)

    async def look(self) -> bool:
        """Look at the store once, and bring every view up to what has been committed before; say whether it moved.

        Raises:
            StoreUnavailable: it cannot be seen; the views stay as they are.
        """
        self.begun_s = self._clock()
        try:
            moved = await self._look()
        except errors.StoreUnavailable as error:
            if self.problem is None:
                log.warning("view_stands_still", reason=error.message)
            self.problem = error.message
            raise
        else:
            if self.problem is not None:
                log.info("view_goes_on")
            self.problem, self.looked_s = None, self._clock()
            return moved
        finally:
            self.begun_s = None
            looked, self._looked = self._looked, asyncio.Event()
            looked.set()

    async def next_look(self) -> None:
        """Wait until the next look has ended; it is asked for now."""
        looked = self._looked
        self.wake()
        await looked.wait()

    async def looked_since(self, limit_s: float) -> None:
        """Wait until a look has ended that began after this call, without asking for one; `limit_s` at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                if self.begun_s is not None:
                    await self._looked.wait()
                await self._looked.wait()

    async def caught_up(self) -> None:
        """Wait until a look has ended that began after this call: it saw all that was committed before."""
        if self.begun_s is not None:
            await self._looked.wait()
        await self.next_look()

    async def built(self, collection: str) -> None:
        """Wait until a collection can be searched, or is none any more."""
        while collection in self.unbuilt():
            building = self._building.get(collection)
            if building is None:
                await self.next_look()
            else:
                await asyncio.wait({building})
                await asyncio.sleep(0)

    @contextlib.asynccontextmanager
    async def using(self, collection: str) -> AsyncIterator[Live]:
        """Have a collection's view for the duration of the body, whatever becomes of it meanwhile.

        Raises:
            NotCaughtUp: it has none yet.
        """
        live = self._lives.get(collection)
        if live is None:
            raise errors.NotCaughtUp(f"the view of '{collection}' is being built; try again in a moment")
        live.users += 1
        try:
            yield live
        finally:
            live.users -= 1
            await live.drop()

    async def read(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a method of a view in one of the threads that searches have."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: function(*args, **kwargs))

    async def close(self) -> None:
        """Drop all views, after the searches that run have ended."""
        for task in list(self._building.values()):
            task.cancel()
            await asyncio.wait({task})
        await asyncio.to_thread(self._threads.shutdown, wait=True)
        lives, self._lives = list(self._lives.values()), {}
        for live in lives:
            live.retired, live.users = True, 0
            await live.drop()

    async def _look(self) -> bool:
        """1. Where the store stands. 2. Who may ask, and about what. 3. Number what has changed. 4. Follow."""
        place = await self._store.read(feed.place)  # 1
        before = self._place
        if before is not None and (place.store_id != before.store_id or place.end < before.end):
            log.warning("view_starts_over", store=place.store_id, end=place.end)
            self._store.store_id, before = place.store_id, None
            await self._retire_all()
        if before is None or place.credentials != before.credentials:  # 2
            await self._know_who_may_ask()
        if before is None or place.definitions != before.definitions:
            _, active = await self._store.read(definitions.active)
            self.known = Known(active, self.known.by_digest, self.known.has_credentials)
            await self._retire([name for name in self._lives if name not in active.by_name])
            self._retries.keep_only(set(active.by_name))
        self._place = place  # not before: what could not be read now is read by the next look
        self._build_what_is_missing()
        moved = place.unnumbered
        while moved and await self._store.write(feed.number) >= feed.NUMBERED_MAX:  # 3
            await self._look_on_the_way()
        for live in list(self._lives.values()):  # 4
            if place.unnumbered or live.reached < place.end:
                moved = await self._follow_or_rebuild(live) or moved
        return moved

    async def _know_who_may_ask(self) -> None:
        found, ever = await self._store.read(credentials.in_force)
        self.known = Known(self.known.definitions, {each.digest: each for each in found}, ever)

    async def _look_on_the_way(self) -> None:
        """Take in a token that is revoked while a long way takes minutes."""
        generation = (await self._store.read(feed.place)).credentials
        if self._place is not None and generation != self._place.credentials:
            await self._know_who_may_ask()
            self._place = replace(self._place, credentials=generation)

    async def _follow(self, live: Live) -> bool:
        """Bring a view up to the end of the feed; what fits is visible to searches at once."""
        taken = False
        at = max(live.view.position, live.reached)
        while True:
            records: list[Shown] = []
            last, chars = False, 0
            while not last and len(records) < self._taken_max and chars < feed.BODY_CHARS_MAX:
                wanted = (at, self._page, live.definition.name, live.view.lacking)
                found, last, end, between = await self._store.read(feed.page_and_end, *wanted)
                records += found
                chars += sum(len(each.body or "") for each in found)
                at = found[-1].feed_seq if found else at
            if not last:
                live.complete = False
                await self._look_on_the_way()
            if records:
                await asyncio.to_thread(live.view.apply, records)
                taken = True
            if last:
                live.came_to(end, between)
                self.end = max(self.end, end)
                return taken

    def _build_what_is_missing(self) -> None:
        for name, definition in self.known.definitions.by_name.items():
            live = self._lives.get(name)
            if name in self._building or (live is not None and live.definition == definition):
                continue
            if not self._retries.is_due(name, self._clock()):
                continue
            if live is not None and searched_alike(live.definition, definition):
                # Only what the table does not depend on: the view need not be built again for it.
                live.definition = definition
                work = asyncio.create_task(self._define(live), name=f"view: define {name}")
            else:
                work = asyncio.create_task(self._build(definition), name=f"view: build {name}")
            self._building[name] = work

    async def _define(self, live: Live) -> None:
        try:
            await asyncio.to_thread(live.view.define, Definitions([live.definition]))
        except Exception as error:  # noqa: BLE001 (a view may fail in any way; another one takes its place)
            await self._give_up(live, error)
        finally:
            self._building.pop(live.definition.name, None)

    async def _build(self, definition: Definition) -> None:
        """Build a collection's view, and have it take the place of the one before when it has caught up."""
        started_s = self._clock()
        follower = Follower(self._store, definition.name, exports=self._exports, texts=True)
        try:
            async with self._one_build:
                view = await follower.caught_up()
            live = Live(definition, view)
            await self._follow(live)
            await self._retire([definition.name] if definition.name in self._lives else [])
            self._lives[definition.name] = live
            self._retries.built(definition.name)
            seconds = round(self._clock() - started_s, 3)
            log.info("view_built", collection=definition.name, position=view.position, seconds=seconds)
        except Exception as error:  # noqa: BLE001 (whatever it is, a later look tries again)
            self._note_failure(definition.name, error)
            await follower.close()
        except BaseException:
            await follower.close()
            raise
        finally:
            self._building.pop(definition.name, None)
            self.wake()

    async def _follow_or_rebuild(self, live: Live) -> bool:
        """Follow; a view that cannot take what the feed holds is dropped, and built again by a later look.

        Raises:
            StoreUnavailable: the store cannot be read; the view stays as it is.
        """
        try:
            return await self._follow(live)
        except errors.StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 (one view's failure must not end the others)
            await self._give_up(live, error)
            return True

    async def _give_up(self, live: Live, error: Exception) -> None:
        """Drop a view that failed, for a later look to build another one."""
        name = live.definition.name
        self._note_failure(name, error)
        if self._lives.get(name) is live:
            await self._retire([name])

    def _note_failure(self, collection: str, error: Exception) -> None:
        pause_s = self._retries.failed(collection, error, self._clock())
        log.warning(
            "view_not_built", collection=collection, reason=self._retries.reason(collection), next_try_s=pause_s
        )

    async def _retire(self, names: Sequence[str]) -> None:
        for name in names:
            live = self._lives.pop(name)
            live.retired = True
            await live.drop()

    async def _retire_all(self) -> None:
        for task in list(self._building.values()):
            task.cancel()
            await asyncio.wait({task})
        await self._retire(list(self._lives))
        self.end = 0


class LiveFollower(Follower):
    """One collection as a `Follower`, without its own view, for callers that need everything committed before."""

    def __init__(self, views: LiveViews, store: Store, collection: str) -> None:
        super().__init__(store, collection)
        self._views = views
        self._name = collection

    async def uris(self, selection: Selection, *, after: str, limit: int) -> list[str]:
        """Return what `Follower.uris` does.

        Raises:
            NotCaughtUp: the view is being built.
        """
        await self._views.caught_up()
        async with self._views.using(self._name) as live:
            return await self._views.read(live.view.uris, selection, after=after, limit=limit)
