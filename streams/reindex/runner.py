"""Reindex jobs at work: any process that runs the side chain takes jobs under leases and gives their documents turns.

A round of a job: write the next items, then give turns until as many documents are cleared and unanswered as the bound
allows. The side chain asks about them like about any others, behind the live writes. A crash loses nothing: the items
are in the store, and another process goes on when the lease ends.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from facetline.facets import errors
from facetline.storage.db import engine
from facetline.storage.jobs import jobs, model
from facetline.streams import failpoints, tasks
from facetline.streams.classify.call import Assignment

if TYPE_CHECKING:
    from facetline.streams.views.follower import Follower

UNANSWERED_PER_SLOT = 2
"""So many documents of a job are cleared and unanswered at most, for each call slot: enough to keep all slots busy."""

LEASE_S = 30.0
HELD_MAX = 8
"""Jobs that one process works on at once; the others wait, or are another process's."""

FILL_MAX = 2_000
TURN_MAX = 200
"""Documents of one transaction: some ten milliseconds under their locks."""

IDLE_S = 1.0
"""How soon a new job is seen, and how long a job that waits for answers is left alone at most."""

SOON_S = 0.02
"""How long a job is left alone after a turn that had something to do; without work it doubles, up to `IDLE_S`."""

log = structlog.get_logger(__name__)


@dataclass
class _Held:
    """A job that is ours; times are seconds of the monotonic clock."""

    job: model.Job
    renew_at_s: float
    look_at_s: float
    pause_s: float = SOON_S
    follower: "Follower | None" = field(default=None, repr=False)


class Reindexer:
    """Works on the reindex jobs of some collections.

    Args:
        store: The open store.
        owner: This process's name in leases; no other running process may have it.
        assignments: The collections whose jobs are taken, with the call slots that bound their turns.
        wake: Called after documents were made pending: the side chain's `wake`.
        wanted: How many cleared documents a collection's evaluator has use for: the side chain's `wanted`.
        lease_s: How soon another process goes on after a kill.
        failpoint: Kill switches for tests.
        clock: Seconds of a monotonic clock; the event loop's own, in a simulation.
    """

    def __init__(
        self,
        store: engine.Store,
        *,
        owner: str,
        assignments: Mapping[str, Assignment],
        wake: Callable[[], None] | None = None,
        wanted: Callable[[str], int | None] = lambda _collection: None,
        lease_s: float = LEASE_S,
        failpoint: Callable[[str], None] = failpoints.failpoint,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._owner = owner
        self._assignments = dict(assignments)
        self._wake_chain = wake
        self._wanted = wanted
        self._lease_s = lease_s
        self._failpoint = failpoint
        self._clock = clock
        self._held: dict[str, _Held] = {}
        self._take_at_s = 0.0
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look now: a job was made, or documents were answered."""
        self._take_at_s = 0.0
        self.answered()
        self._woken.set()

    def answered(self) -> None:
        """Give the next turns now: documents were answered. Costs nothing while there is no job."""
        for held in self._held.values():
            held.look_at_s = 0.0
        if self._held:
            self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then give the jobs up for others to go on with. Ends by itself only with an error.

        A running transaction is awaited at a stop, nothing else.
        """
        watching = asyncio.create_task(self._watch(stop), name="reindex: watch for stop")
        try:
            while not stop.is_set():
                self._woken.clear()
                try:
                    await self._round(stop)
                except errors.StoreUnavailable as error:
                    log.warning("store_away", error=error.message)
                    await self._rest(self._clock() + IDLE_S)
                    continue
                await self._rest(min([self._take_at_s, *(each.look_at_s for each in self._held.values())]))
        finally:
            watching.cancel()
            await tasks.run_uncancelled(self._give_up_all(), "reindex: give up")

    async def _watch(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._woken.set()

    async def _rest(self, until_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(until_s - self._clock(), 0.001)):
                await self._woken.wait()

    async def _round(self, stop: asyncio.Event) -> None:
        if self._clock() >= self._take_at_s and len(self._held) < HELD_MAX:
            await self._take()
        for held in list(self._held.values()):
            if held.look_at_s <= self._clock() and not stop.is_set():
                await self._work_on(held)

    async def _take(self) -> None:
        self._take_at_s = self._clock() + IDLE_S
        taken_s = self._clock()
        job = await self._store.write(jobs.take, self._owner, self._lease_ms, list(self._assignments))
        if job is not None:
            self._held[job.id] = _Held(job, self._renewal_s(taken_s), taken_s)
            self._take_at_s = 0.0  # there may be another
            log.info("reindex_taken", job=job.id, collection=job.request.collection, mode=job.request.mode)

    async def _work_on(self, held: _Held) -> None:
        """Renew the lease when it is time, write the next items, and give turns."""
        now_s = self._clock()
        if now_s >= held.renew_at_s:
            if not await self._store.write(jobs.renew, held.job.id, self._owner, self._lease_ms):
                await self._drop(held, "lost")
                return
            held.renew_at_s = self._renewal_s(now_s)
        filling = held.job.filled_to is not None
        if filling and not await self._fill(held):
            return
        self._failpoint("reindex.before_turn")
        turn = await self._store.write(jobs.turn, held.job.id, self._owner, self._unanswered_max(held), TURN_MAX)
        self._failpoint("reindex.after_turn")
        if turn.cleared + turn.adopted and self._wake_chain is not None:
            self._wake_chain()
        if not turn.held or turn.state not in model.ACTIVE:
            await self._drop(held, turn.state if turn.state not in model.ACTIVE else "lost")
            return
        busy = filling or turn.cleared + turn.adopted + turn.closed > 0
        held.pause_s = SOON_S if busy else min(held.pause_s * 2, IDLE_S)
        held.look_at_s = self._clock() + held.pause_s

    def _unanswered_max(self, held: _Held) -> int:
        collection = held.job.request.collection
        most = UNANSWERED_PER_SLOT * self._assignments[collection].limits.concurrency
        wanted = self._wanted(collection)
        return most if wanted is None else min(most, wanted)

    async def _fill(self, held: _Held) -> bool:
        """Write the next items; False when that cannot be done and the job is over."""
        uris = None
        try:
            if held.job.request.filter is not None:
                uris = await self._matching(held)
            held.job = await self._store.write(jobs.fill, held.job.id, FILL_MAX, uris)
        except errors.InvalidQuery as error:  # the collection was changed after the job was made
            log.warning("reindex_impossible", job=held.job.id, error=error.message)
            await self._store.write(jobs.cancel, held.job.id)
            await self._drop(held, "canceled")
            return False
        return True

    async def _matching(self, held: _Held) -> list[str]:
        from facetline.streams.reindex.matching import matching
        from facetline.streams.views.follower import Follower  # DuckDB: only a filter has use for it

        request, after = held.job.request, held.job.filled_to or ""
        if held.follower is None:
            held.follower = Follower(self._store, request.collection)
        return await matching(held.follower, request, after, FILL_MAX)

    async def _drop(self, held: _Held, state: str) -> None:
        del self._held[held.job.id]
        if held.follower is not None:
            await held.follower.close()
        log.info("reindex_ended", job=held.job.id, collection=held.job.request.collection, state=state)

    async def _give_up_all(self) -> None:
        for held in list(self._held.values()):
            with contextlib.suppress(errors.StoreUnavailable):  # its lease ends by itself
                await self._store.write(jobs.give_up, held.job.id, self._owner)
            await self._drop(held, "given up")

    @property
    def _lease_ms(self) -> int:
        return int(self._lease_s * 1000)

    def _renewal_s(self, leased_s: float) -> float:
        return leased_s + self._lease_s / 3
