"""One worker process of the Kafka runtime: it applies events, answers what is due, and publishes facets.

Any number of them may run. What is not there yet (store, broker, topics' leaders) is waited for and said; what is wrong
(definitions, topics) ends the process at once. The first signal stops: the batch in hand is committed, running calls
get their grace period; a second one ends the calls as well.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import TypeVar

import structlog

from facets import errors
from storage import definitions
from storage.engine import Clock, Store, no_shift
from streams import project as project_
from streams import topics, wiring
from streams.classifying import assignments, classifying, owner_name
from streams.faust_worker import FaustWorker
from streams.log_reader import KafkaLog
from streams.project import Project
from streams.publisher import Publisher
from streams.settings import Settings
from streams.write_worker import WriteWorker

WAIT_FIRST_S = 1.0
WAIT_MOST_S = 15.0

T = TypeVar("T")
log = structlog.get_logger(__name__)


async def run_worker(settings: Settings, *, clock_shift: Clock = no_shift) -> None:
    """Work until a signal comes; `clock_shift` lets tests shift the store's clock.

    Raises:
        InvalidSettings, InvalidDefinition, InvalidTopics, StoreMismatch: what a person must mend first.
    """
    project = project_.load_project(settings)
    stop = asyncio.Event()
    with _signals(stop):
        try:
            async with contextlib.AsyncExitStack() as opened:

                async def store_opened() -> Store:
                    return await opened.enter_async_context(wiring.open_store(settings, clock_shift=clock_shift))

                store = await _when_there(store_opened, stop)
                if store is not None:
                    await _run(settings, project, store, stop)
        finally:
            await project.close()


async def _run(settings: Settings, project: Project, store: Store, stop: asyncio.Event) -> None:
    await store.write(definitions.activate_unknown, project.definitions)
    found = await _when_there(lambda: topics.check_topics(settings.kafka, store), stop)
    if found is None:
        return
    documents = topics.topic_names(settings.kafka.topic_prefix).documents
    async with (
        _log(settings, documents) as source,
        classifying(
            store,
            assignments(project),
            grace_s=settings.grace_s,
            memo_rows_max=settings.memo_rows_max,
            stop=stop,
        ) as work,
    ):
        worker = WriteWorker(
            store,
            source,
            documents,
            partitions=found[documents],
            on_applied=lambda _outcomes: work.side_chain.wake(),
        )
        parts = {
            "consumer": FaustWorker(settings.kafka, documents, worker).run(stop),
            "publisher": Publisher(settings.kafka, store, owner=owner_name()).run(stop),
        }
        log.info("worker_started", topic=documents, partitions=found[documents])
        await _together(parts)
    log.info("worker_stopped")


async def _together(parts: Mapping[str, Coroutine[object, object, None]]) -> None:
    """Run all parts to their end; when one fails the others are cancelled, and its error is raised."""
    try:
        async with asyncio.TaskGroup() as running:
            for name, part in parts.items():
                running.create_task(part, name=name)
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


@contextlib.asynccontextmanager
async def _log(settings: Settings, topic: str) -> AsyncIterator[KafkaLog]:
    source = KafkaLog(settings.kafka, topic)
    try:
        yield source
    finally:
        await source.stop()


async def _when_there(open_: Callable[[], Awaitable[T]], stop: asyncio.Event) -> T | None:
    """Try until what is needed is there; None when told to stop before."""
    pause_s = WAIT_FIRST_S
    while not stop.is_set():
        try:
            return await open_()
        except errors.TransientError as error:
            log.warning("worker_waits", reason=error.message, pause_s=pause_s)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause_s)
        pause_s = min(pause_s * 2, WAIT_MOST_S)
    return None


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM set `stop`, and a second one cancel everything."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def told() -> None:
        if stop.is_set() and task is not None:
            log.warning("worker_stops_at_once")
            task.cancel()
        log.info("worker_stops")
        stop.set()

    caught = (signal.SIGINT, signal.SIGTERM)
    for each in caught:
        loop.add_signal_handler(each, told)
    try:
        yield
    finally:
        for each in caught:
            loop.remove_signal_handler(each)
