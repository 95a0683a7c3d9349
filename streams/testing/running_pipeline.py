"""A pipeline that runs beside a test, in a thread with an event loop of its own: plain calls, with or without asyncio.

Locally the side chain runs in that thread. With Kafka a worker process is started, on topics, a group and a store that
are made for it and removed in the end: nothing of anybody else's is touched, whatever the environment says.
"""

import asyncio
import contextlib
import math
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from facetline.facets import errors
from facetline.storage import feed
from facetline.streams import wiring
from facetline.streams.files import kcat
from facetline.streams.files.expected_facets import Document
from facetline.streams.loop_thread import LoopThread
from facetline.streams.pipeline import Pipeline, poll
from facetline.streams.replay import replayer
from facetline.streams.replay.pacing import Pace

if TYPE_CHECKING:
    from facetline.streams.settings import Settings

T = TypeVar("T")
LIMIT_S = 120.0
"""How long one call may take: a worker's start, a group's first assignment and slow evaluators lie within it."""
STOP_S = 20.0
PAGE = 1_000
PARTITIONS = 4
LOG_CHARS = 2_000


def of_its_own(settings: "Settings", folder: Path, bootstrap: str | None) -> "Settings":
    """Return settings whose data is in `folder` alone; with a `bootstrap` address topics of a prefix of their own."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    kafka = {
        "bootstrap_servers": bootstrap,
        "topic_prefix": name,
        "group_id": name,
        "partitions": PARTITIONS,
        "replication_factor": 1,
    }
    change = {"data_folder": folder, "store_url": None, "kafka": settings.kafka.model_copy(update=kafka)}
    return settings.model_copy(update=change)


class RunningPipeline:
    """Used in a `with`; every method blocks until it has its result, or raises after `limit_s` seconds.

    `pipeline` is what runs, for use within `run`.
    """

    pipeline: Pipeline

    def __init__(self, settings: "Settings", *, limit_s: float = LIMIT_S) -> None:
        self.settings = settings
        self._limit_s = limit_s
        self._running = LoopThread(self._opened)

    def __enter__(self) -> Self:
        try:
            self.pipeline = self._running.start(self._limit_s)
        except TimeoutError as error:
            raise errors.StoreUnavailable(f"the pipeline did not start within {self._limit_s:g} s") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._running.stop(self._limit_s)
        except BaseException as failure:
            if error is None:
                raise errors.StoreUnavailable(f"the pipeline has ended by itself: {failure}") from failure

    def run(self, make: Callable[[Pipeline], Awaitable[T]]) -> T:
        """Run what `make` returns for the pipeline, in the pipeline's event loop, and return its result.

        Raises:
            TimeoutError: it took longer than the limit.
            StoreUnavailable: the pipeline has ended by itself.
        """

        async def work(pipeline: Pipeline) -> T:
            async with asyncio.timeout(self._limit_s):
                return await make(pipeline)

        return self._running.run(work)

    def write(self, uri: str, **given: Any) -> dict[str, Any]:
        """Write a document and wait for its answers: `Pipeline.write`."""
        return self.run(lambda pipeline: pipeline.write(uri, **{"timeout_s": self._limit_s, **given}))

    def delete(self, uri: str, **given: Any) -> dict[str, Any]:
        """Delete a document: `Pipeline.delete`."""
        return self.run(lambda pipeline: pipeline.delete(uri, **{"timeout_s": self._limit_s, **given}))

    def get(self, uri: str) -> dict[str, Any]:
        """Return a document whole: `Pipeline.get`."""
        return self.run(lambda pipeline: pipeline.get(uri))

    def search(self, collection: str, facets: Any = None, **options: Any) -> dict[str, Any]:
        """Search: `Pipeline.search`."""
        return self.run(lambda pipeline: pipeline.search(collection, facets, **options))

    def replay(self, events: Path, *, speed: float | None = None) -> replayer.Tally:
        """Replay a file of recorded events and wait until all of it is applied and answered."""

        async def work(pipeline: Pipeline) -> replayer.Tally:
            pace = None if speed is None else Pace(speed)
            job = replayer.Replay(pipeline, await pipeline.definitions(), pace=pace)
            with events.open("rb") as file:
                tally = await job.run(kcat.read(file))
            await _settled(pipeline, tally.collections)
            return tally

        return self.run(work)

    def documents(self) -> dict[str, Document]:
        """Return status, reason and facets of every document that is not deleted, by uri."""
        return self.run(_documents)

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Pipeline]:
        if self.settings.runtime == "kafka":
            async with self._opened_with_kafka() as pipeline:
                yield pipeline
            return
        async with wiring.open_pipeline(self.settings, classify=True) as pipeline:
            yield pipeline

    @contextlib.asynccontextmanager
    async def _opened_with_kafka(self) -> AsyncIterator[Pipeline]:
        from facetline.streams.kafka import topics

        await topics.create_topics(self.settings.kafka)
        try:
            async with wiring.open_pipeline(self.settings) as pipeline:  # makes the store before the worker comes
                with _worker(self.settings):
                    yield pipeline
        finally:
            await topics.delete_topics(self.settings.kafka)


async def _settled(pipeline: Pipeline, collections: set[str]) -> None:
    """Wait until the log is applied and no document of these collections waits for an answer.

    Raises:
        EvaluatorUnavailable, EvaluatorMisconfigured: the answers will not come.
    """
    from facetline.streams.cli.imports import give_up_when_stopped

    ends = await replayer.log_ends(pipeline)

    async def look() -> bool | None:
        if await replayer.behind(pipeline, ends):
            return None
        waiting = await replayer.pending(pipeline, collections)
        for collection in sorted(collections) if waiting else ():
            await give_up_when_stopped(pipeline, collection, waiting)
        return None if waiting else True

    await poll(look, math.inf)  # the caller has a limit


async def _documents(pipeline: Pipeline) -> dict[str, Document]:
    while await pipeline.store.write(feed.number) >= feed.NUMBERED_MAX:
        pass
    found: dict[str, Document] = {}
    after = 0
    while page := await pipeline.store.read(feed.read, after, PAGE):
        after = page[-1].feed_seq
        for record in page:
            if record.status != "deleted":
                found[record.uri] = record.model_dump(mode="json", include={"status", "reason", "facets"})
    return found


@contextlib.contextmanager
def _worker(settings: "Settings") -> Iterator[None]:
    """Run a worker process; it must not have ended by itself.

    Raises:
        StoreUnavailable: it has; the message is its last one.
    """
    message = settings.data_folder / "worker.log"
    command = [sys.executable, "-c", "from facetline.streams.cli.main import main; main()", "worker"]
    with message.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 (our own command)
            command, env={**os.environ, **_variables(settings)}, stdout=log, stderr=log
        )
    try:
        yield
        ended = process.poll()
        if ended is not None:
            text = message.read_text(encoding="utf-8", errors="replace")[-LOG_CHARS:]
            raise errors.StoreUnavailable(f"the worker ended by itself with {ended}:\n{text}")
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _variables(settings: "Settings") -> Mapping[str, str]:
    """Return the environment in which a process has these settings."""
    kafka = settings.kafka
    return {
        "FACETLINE_CONFIG": str(settings.config.resolve()),
        "FACETLINE_DATA_FOLDER": str(settings.data_folder.resolve()),
        "FACETLINE_STORE_URL": settings.store,
        "FACETLINE_WORKER_HTTP": "off",
        "FACETLINE_CALLS": settings.calls,
        "FACETLINE_CALLS_FILE": str(settings.calls_file.resolve()),
        "FACETLINE_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers or "",
        "FACETLINE_KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
        "FACETLINE_KAFKA__GROUP_ID": kafka.group_id,
    }
