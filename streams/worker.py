"""One worker process of the Kafka runtime: it applies events, answers what is due, and publishes facets.

Any number of them may run. What is not there yet (store, broker, topics' leaders) is waited for and logged; what is
wrong (definitions, topics) ends the process at once. The first signal stops: the batch in hand is committed, running
calls get their grace period; a second one ends the calls as well.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import TypeVar

import structlog

from facetline.facets import errors
from facetline.storage import definitions
from facetline.storage.db.engine import Clock, Store, no_shift
from facetline.streams import project as project_
from facetline.streams import wiring
from facetline.streams.background import assignments, classifying, owner_name
from facetline.streams.kafka import topics
from facetline.streams.kafka.consumer import FaustWorker
from facetline.streams.kafka.log_reader import KafkaLog
from facetline.streams.kafka.publisher import Publisher
from facetline.streams.kafka.write_worker import WriteWorker
from facetline.streams.monitor import http
from facetline.streams.monitor import observer as observing
from facetline.streams.monitor.worker_state import Members
from facetline.streams.settings import Settings
from facetline.streams.tasks import stop_on_signals

WAIT_FIRST_S = 1.0
WAIT_MAX_S = 15.0

T = TypeVar("T")
log = structlog.get_logger(__name__)


async def run_worker(
    settings: Settings, *, clock_shift: Clock = no_shift, on_ready: Callable[[str], None] = lambda _line: None
) -> None:
    """Work until a signal comes; `clock_shift` lets tests shift the store's clock.

    `on_ready` gets one line for people once records can flow: what is consumed, into which store, where its health is.

    Raises:
        InvalidSettings, InvalidDefinition, InvalidTopics, StoreMismatch: what must be fixed first.
    """
    project = project_.load_project(settings)
    stop = asyncio.Event()
    members = Members(settings, project)
    with _signals(stop, members):
        try:
            async with contextlib.AsyncExitStack() as opened:

                async def store_opened() -> Store:
                    return await opened.enter_async_context(wiring.open_store(settings, clock_shift=clock_shift))

                # Shown from the first moment on, and no longer asked about when the store is closed.
                observer = observing.Observer(members)
                members.address = await opened.enter_async_context(http.serving(settings, observer))
                opened.push_async_callback(observer.close)
                store = await _when_there(store_opened, stop, members)
                opened.push_async_callback(observer.close)
                if store is not None:
                    members.store = store
                    await _run(members, store, stop, on_ready)
        finally:
            await project.close()


async def _run(members: Members, store: Store, stop: asyncio.Event, on_ready: Callable[[str], None]) -> None:
    settings, project = members.settings, members.project

    async def activated() -> bool:
        await store.write(definitions.activate_unknown, project.definitions)
        return True

    if await _when_there(activated, stop, members) is None:
        return
    found = await _when_there(lambda: topics.check_topics(settings.kafka, store), stop, members)
    if found is None:
        return
    documents = members.topics.documents
    members.partitions = found[documents]
    async with (
        _log(settings, documents) as source,
        classifying(
            store,
            assignments(project),
            grace_s=settings.grace_s,
            memo_rows_max=settings.memo_rows_max,
            stop=stop,
            kind="worker",
        ) as work,
    ):
        worker = WriteWorker(
            store,
            source,
            documents,
            partitions=found[documents],
            on_applied=lambda _outcomes: work.side_chain.wake(),
        )
        consumer = FaustWorker(settings.kafka, documents, worker, on_assigned=_Ready(members, store, on_ready))
        publisher = Publisher(settings.kafka, store, owner=owner_name())
        members.work, members.writer, members.consumer, members.publisher = work, worker, consumer, publisher
        log.info("worker_started", topic=documents, partitions=found[documents])
        await _together(members, {"consumer": consumer.run(stop), "publisher": publisher.run(stop)})
    log.info("worker_stopped")


class _Ready:
    """Logs once that a worker is ready: what it consumes, into which store, and where its health is."""

    def __init__(self, members: Members, store: Store, on_ready: Callable[[str], None]) -> None:
        self._members = members
        self._url = store.engine.url
        self._on_ready = on_ready
        self._was_ready = False

    def __call__(self, partitions: frozenset[int]) -> None:
        """Hear of an assignment; the first one makes a worker ready, whatever it is."""
        if self._was_ready:
            return
        self._was_ready = True
        url = self._url  # only parts of it that hold no secret
        at = url.database or ""
        mine = f"{len(partitions)} of {self._members.partitions} partitions"
        found = {
            "consumes": f"{self._members.topics.documents} ({mine})",
            "store": f"SQLite {at}" if url.get_backend_name() == "sqlite" else f"PostgreSQL {url.host or ''}/{at}",
            "health": "off" if self._members.address is None else _page(*self._members.address),
        }
        log.info("worker_ready", **found)
        self._on_ready("worker ready: " + ", ".join(f"{name} {value}" for name, value in found.items()))


def _page(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/readyz"


async def _together(members: Members, parts: Mapping[str, Coroutine[object, object, None]]) -> None:
    """Run all parts to their end; when one fails the others are cancelled, and its error is raised."""
    try:
        async with asyncio.TaskGroup() as running:
            for name, part in parts.items():
                members.tasks.append(running.create_task(part, name=name))
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


@contextlib.asynccontextmanager
async def _log(settings: Settings, topic: str) -> AsyncIterator[KafkaLog]:
    source = KafkaLog(settings.kafka, topic)
    try:
        yield source
    finally:
        await source.stop()


async def _when_there(open_: Callable[[], Awaitable[T]], stop: asyncio.Event, members: Members) -> T | None:
    """Try until what is needed is there; None when asked to stop before."""
    pause_s = WAIT_FIRST_S
    while not stop.is_set():
        try:
            found = await _unless_stopped(open_(), stop)
            if found is None:
                return None
        except errors.TransientError as error:
            members.waits_for = error.message
            log.warning("worker_waits", reason=error.message, pause_s=pause_s)
        else:
            members.waits_for = None
            return found
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause_s)
        pause_s = min(pause_s * 2, WAIT_MAX_S)
    return None


async def _unless_stopped(opening: Awaitable[T], stop: asyncio.Event) -> T | None:
    """Return what comes of `opening`; cancel it, and return None, when asked to stop before."""
    task, stopped = asyncio.ensure_future(opening), asyncio.create_task(stop.wait(), name="wait for stop")
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        return None if task.cancelled() else task.result()
    finally:
        task.cancel()
        stopped.cancel()


def _signals(stop: asyncio.Event, members: Members) -> contextlib.AbstractContextManager[None]:
    """Say what a signal does to the worker, and have the process take it."""

    def first() -> None:
        log.info("worker_stops")
        members.stopping = True
        if members.store is not None:
            members.store.hurry()

    def at_once() -> None:
        log.warning("worker_stops_at_once")
        if members.work is not None:  # cancelling alone would let calls have their grace, while others still leave
            members.work.side_chain.halt()

    return stop_on_signals(stop, at_once=at_once, first=first)
