"""The background work of a process that runs the side chain: calls, reindex jobs and housekeeping, started and stopped
together. When one of them dies, so does the work in whose name they run: nothing stops silently.
"""

import asyncio
import contextlib
import socket
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from facetline.facets import errors
from facetline.storage import processes, usage_ledger
from facetline.storage.db.engine import Store
from facetline.storage.jobs import jobs, request_keys
from facetline.storage.log import outcomes
from facetline.storage.queue import answer_cache
from facetline.streams.classify.call import Assignment
from facetline.streams.classify.side_chain import SideChain
from facetline.streams.project import Project
from facetline.streams.reindex.runner import Reindexer

HOUSEKEEPING_EVERY_S = 3600.0
PURGE_CHUNK = 5_000
OUTCOME_DAYS = 30
JOB_DAYS = 30

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Background:
    """The running work of a process that asks evaluators, to be woken and watched."""

    side_chain: SideChain
    reindexer: Reindexer
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def wake_jobs(self) -> None:
        """Look for reindex jobs now."""
        self.reindexer.wake()


def assignments(project: Project) -> dict[str, Assignment]:
    """Return what a process may ask, by collection."""
    if project.settings.calls != "live":
        log.warning("calls_not_live", mode=project.settings.calls, file=str(project.settings.calls_file))
    return {
        each.name: Assignment(each, project.evaluators[each.evaluator], project.limits[each.evaluator])
        for each in project.definitions
    }


def owner_name() -> str:
    """Return a name for this process as a holder of leases: one that a person can find, and no other has."""
    return f"{socket.gethostname()}-{uuid.uuid4().hex[:12]}"


@asynccontextmanager
async def classifying(
    store: Store,
    assigned: Mapping[str, Assignment],
    *,
    grace_s: float,
    memo_rows_max: int,
    stop: asyncio.Event | None = None,
    kind: processes.Kind = "command",
) -> AsyncIterator[Background]:
    """Run the side chain while the body runs; at its end running calls get `grace_s` seconds, then are released.

    `stop` lets the caller say so earlier, while the body ends its own work. `kind` is what this process is to others.
    Cancelling the body drains as well; cancelling it once more ends the calls at once.
    """
    owner = owner_name()
    work = _made(store, assigned, grace_s, owner)
    stop = stop or asyncio.Event()
    tasks = [
        asyncio.create_task(work.side_chain.run(stop), name="side-chain"),
        asyncio.create_task(work.reindexer.run(stop), name="reindexer"),
        asyncio.create_task(_beat(store, owner, kind, stop), name="heartbeat"),
        asyncio.create_task(_keep_house(store, stop, memo_rows_max), name="housekeeping"),
    ]
    work.tasks.extend(tasks)
    body = asyncio.current_task()
    died: list[BaseException] = []

    def watch(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            died.append(error)
            if body is not None and not stop.is_set():
                body.cancel()

    for task in tasks:
        task.add_done_callback(watch)
    try:
        yield work
    except asyncio.CancelledError:
        if not died:
            raise
    finally:
        stop.set()
        store.hurry()
        await _ended(tasks)
    if died:
        raise died[0]


def _made(store: Store, assigned: Mapping[str, Assignment], grace_s: float, owner: str) -> Background:
    """Make both parts known to each other: cleared documents wake the chain, answers call for the next turns."""
    listening: list[Reindexer] = []

    def settled() -> None:
        for reindexer in listening:
            reindexer.answered()

    chain = SideChain(store, assigned, owner=owner, grace_s=grace_s, on_settled=settled)
    listening.append(Reindexer(store, owner=owner, assignments=assigned, wake=chain.wake, wanted=chain.wanted))
    return Background(chain, listening[0])


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    """Wait until the tasks have ended by themselves; a cancellation of the waiting ends them at once."""
    try:
        await asyncio.shield(asyncio.gather(*tasks, return_exceptions=True))
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _beat(store: Store, owner: str, kind: processes.Kind, stop: asyncio.Event) -> None:
    """Let others see that this process answers, until it stops; a command only if it takes longer than a moment."""
    if kind != "worker":
        await _stopped(stop, processes.BEAT_S)
    seen = False
    while not stop.is_set():
        try:
            await store.write(processes.beat, owner, kind)
            seen = True
        except errors.StoreUnavailable as error:
            log.debug("heartbeat_missed", error=error.message)
        await _stopped(stop, processes.BEAT_S)
    if seen and not store.silent:
        with contextlib.suppress(errors.StoreUnavailable):  # then the row ends by itself
            await store.write(processes.leave, owner)


async def _stopped(stop: asyncio.Event, limit_s: float) -> None:
    """Wait for a stop, for so long at most."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), limit_s)


async def _keep_house(store: Store, stop: asyncio.Event, memo_rows_max: int) -> None:
    """Drop what is old: outcomes, jobs and their keys, remembered answers beyond the bound, marks of the ledger.

    Now and every hour; each transaction is bounded.
    """
    while not stop.is_set():
        try:
            while await store.write(outcomes.purge, OUTCOME_DAYS, PURGE_CHUNK) >= PURGE_CHUNK:
                pass
            while await store.write(jobs.purge, JOB_DAYS, PURGE_CHUNK):  # one job at a time
                pass
            while await store.write(request_keys.purge) >= request_keys.PURGED_MAX:
                pass
            while await store.write(answer_cache.prune, memo_rows_max, PURGE_CHUNK) >= PURGE_CHUNK:
                pass
            await store.write(usage_ledger.purge_marks)
        except errors.StoreUnavailable as error:
            log.warning("housekeeping_put_off", error=error.message)
        await _stopped(stop, HOUSEKEEPING_EVERY_S)
