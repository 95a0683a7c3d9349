"""A pipeline to be broken: its own broker, database and proxy (Kafka) or a data folder, worker processes by name, and
a reader process that keeps every reply.

All of it is shared by the tests of a file. Each test takes a `Trial`: a scope of its own whose writes are recorded, and
which is held against the promises at its end.
"""

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import cutting_proxy
import freezing
import kafka_broker
import postgres_server
import runtimes
from commands import environment
from forked import Forked
from runtimes import Site, Worker
from trials import MARKS, Trial, note_the_past, watch

from facetline.streams.kafka import topics

CALL_S = 90.0
"""Longer than a rebalance may take, and than three of them."""
LEASES_S = 120.0
"""All leases have ended when so much time has passed for the store."""
SLOTS = 8
STARTED_S = 20.0
"""Until then a worker has started, or something keeps it from it."""


class Rig:
    """A site and what it stands on. `broker`, `server` and `proxy` are None in the local runtime."""

    def __init__(
        self,
        site: Site,
        broker: kafka_broker.Broker | None = None,
        server: postgres_server.Server | None = None,
        proxy: cutting_proxy.Proxy | None = None,
    ) -> None:
        self.site = site
        self.broker, self.server, self.proxy = broker, server, proxy
        self.workers: dict[str, Worker] = {}
        self._stack = ExitStack()
        self._ends: dict[str, ExitStack] = {}
        self._special: set[str] = set()
        self._reader: Forked | None = None
        self.define()

    def define(self, *questions: str, concurrency: int = SLOTS, **limits: Any) -> None:
        """Write the configuration that later workers read."""
        self.site.define(*questions, call_s=CALL_S, concurrency=concurrency, options=MARKS, **limits)

    def restore(self) -> None:
        """Be as tests find it: nothing cut, nothing frozen, the plain configuration."""
        if self.proxy is not None:
            self.proxy.cut(0)
            self.proxy.speak()
        for worker in self.workers.values():
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
        self.define()

    def start(self, name: str, failpoint: str = "", **settings: str) -> Worker:
        """Start a worker under a name, in place of one that has ended."""
        if self.proxy is not None:
            settings = {"FACETLINE_STORE_URL": self.proxied_url, **settings}
        if name in self._ends:
            self._ends.pop(name).close()
        self._special.discard(name)
        if failpoint or set(settings) - {"FACETLINE_STORE_URL"}:
            self._special.add(name)
        self._ends[name] = ExitStack()
        self.workers[name] = self._ends[name].enter_context(self.site.worker(failpoint, **settings))
        return self.workers[name]

    def running(self, *names: str) -> None:
        """Have exactly these workers running; one that runs with its failpoint is started anew."""
        for name in [name for name in self.workers if name not in names]:
            self.stop(name)
        for name in names:
            worker = self.workers.get(name)
            if worker is None or worker.poll() is not None or name in self._special:
                self.start(name)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self.workers[name].kill()
        self.workers[name].wait()

    def freeze(self, name: str) -> None:
        """SIGSTOP."""
        freezing.freeze(self.workers[name].pid)

    def thaw(self, name: str) -> None:
        """SIGCONT."""
        self.workers[name].send_signal(signal.SIGCONT)

    def stop(self, name: str) -> int:
        """SIGTERM, and wait for the end. A worker that has just begun is given time to listen for it."""
        worker = self.workers.pop(name)
        if self.broker is not None:
            self._let_start(worker)
        code = runtimes.stop(worker)
        self._ends.pop(name).close()
        return code

    def _let_start(self, worker: Worker) -> None:
        log = self.site.logs_of[worker.pid]
        deadline = time.monotonic() + STARTED_S
        while worker.poll() is None and b"worker_started" not in log.read_bytes() and time.monotonic() < deadline:
            with suppress(subprocess.TimeoutExpired):
                worker.wait(0.05)

    @property
    def proxied_url(self) -> str:
        """The store's URL by way of the proxy."""
        assert self.proxy is not None
        database = self.site.place.settings["FACETLINE_STORE_URL"].partition("?")[0].rpartition("/")[2]
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.proxy.port}/{database}?sslmode=disable"

    def read(self) -> None:
        """Start the reader; its replies stand in the file `replies`."""
        log = self.site.folder / "worker-reader.log"
        words = (str(self.site.clock.path), "replies")
        environment_ = environment(self.site.place.settings)
        self._reader = Forked("reader_child.py", *words, cwd=self.site.folder, env=environment_, log=log)

    @asynccontextmanager
    async def trial(self, *, classify: bool = False) -> AsyncIterator[Trial]:
        """Open a pipeline for one test, and hold all that came of it against the promises in the end."""
        async with self.site.pipeline(classify=classify) as pipeline:
            await pipeline.store.write(note_the_past)
            if self._reader is None:
                self.read()
            trial = Trial(self.site, pipeline)
            try:
                yield trial
                assert self._reader is not None
                assert self._reader.poll() is None, self.site.logs()
                await trial.conclude()
            finally:
                watch(self.site, "")

    def close(self) -> None:
        """End every process."""
        for name in list(self.workers):
            with suppress(ProcessLookupError):
                self.kill(name)
            self._ends.pop(name).close()
        if self._reader is not None:
            self._reader.kill()
            self._reader.wait()


@contextmanager
def local(folder: Path) -> Iterator[Rig]:
    """A rig of the local runtime."""
    rig = Rig(Site("local", folder, {}, clocked=True))
    try:
        yield rig
    finally:
        rig.close()


@contextmanager
def kafka(folder: Path) -> Iterator[Rig]:
    """A rig with a Kafka and a PostgreSQL of its own.

    Raises:
        MissingKafka, MissingPostgres: they cannot be run here.
    """
    with ExitStack() as stack:
        server = postgres_server.Server()
        stack.callback(server.stop)
        broker = kafka_broker.Broker(folder / "broker")
        broker.folder.mkdir()
        stack.callback(broker.stop)
        with ThreadPoolExecutor(2) as starting:
            for done in [starting.submit(server.start), starting.submit(broker.start)]:
                done.result()
        proxy = stack.enter_context(cutting_proxy.before(server.folder / ".s.PGSQL.5432"))
        kafka_settings = {
            "BOOTSTRAP_SERVERS": broker.bootstrap,
            "TOPIC_PREFIX": "rig",
            "GROUP_ID": "rig",
            "PARTITIONS": str(runtimes.PARTITIONS),
        }
        settings = {f"FACETLINE_KAFKA__{name}": value for name, value in kafka_settings.items()}
        settings["FACETLINE_STORE_URL"] = postgres_server.create_database(server.admin_url, "rig")
        settings |= {"FACETLINE_WRITE_DEADLINE_S": "2", "FACETLINE_WORKER_HTTP": "off"}
        settings["FACETLINE_STORE_STATEMENT_S"] = "3"  # a silent connection is given up after 8 s
        site = Site("kafka", folder, settings, clocked=True)
        asyncio.run(topics.create_topics(site.settings.kafka))
        rig = Rig(site, broker, server, proxy)
        stack.callback(rig.close)
        yield rig
