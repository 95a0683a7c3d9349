"""Both runtimes as one thing to test: a place with a store (and topics), worker processes, and an open pipeline.

`local` is SQLite in a folder, `kafka` a real Kafka with PostgreSQL. The evaluator of both is a `FolderEvaluator`, which
tests hold back, make fail and count from outside, whatever process it runs in.
"""

import asyncio
import itertools
import signal
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import kafka_topics
import made_stores
import postgres_server
import pytest
from clocks import FileClock
from commands import Place, environment
from folder_evaluator import Script
from forked import Forked
from polling import eventually

from facetline.facets.documents import Status
from facetline.storage import counters
from facetline.storage.log import dead_letters, documents, positions
from facetline.storage.log.events import DeadLetter, Position, Raw
from facetline.streams import failpoints, wiring
from facetline.streams.kafka import log_reader, topics
from facetline.streams.pipeline import Pipeline
from facetline.streams.settings import Settings, load_settings
from facetline.streams.wire import codec as wire
from facetline.streams.wire.outgoing import Sent

RUNTIMES = ("local", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.postgres]))
ANSWERED_S = 45.0
"""How long an answer may take that nothing holds back: a worker's start and a rebalance lie within it."""
Worker: TypeAlias = "Forked | subprocess.Popen[str]"
STOP_S = 20.0
PARTITIONS = 4

MODULE = '''
"""Collections of a test."""

from pathlib import Path

from folder_evaluator import FolderEvaluator

from facetline.facets.collections import define_collection
from facetline.facets.questions import choice

evaluator = FolderEvaluator(Path(__file__).parent / "script")
options = {{name: name.capitalize() for name in {options!r}}}
questions = {{name: choice(ask=f"What {{name}}?", options=options) for name in {questions!r}}}


def define(name, pattern, **given):
    return define_collection(name=name, pattern=pattern, evaluator=evaluator, questions=questions, **given)


collections = [
    define("tickets", "tickets/*", scoped=True, state={{"title": "string", "priority": "integer"}}),
    define("notes", "notes/**"),
    *(define(name, f"{{name}}/*") for name in {more!r}),
]
'''


class Site:
    """A place of one runtime. `partitions` 0: there is no topic."""

    def __init__(self, name: str, folder: Path, settings: dict[str, str], *, clocked: bool = False) -> None:
        """A place; `clocked`: its processes' store has a clock that `clock` shifts."""
        self.name = name
        self.folder = folder
        self.clocked = clocked
        self.clock = FileClock(folder / "clock")
        self.script = Script(folder / "script")
        self.place = Place(folder, settings)
        self.logs_of: dict[int, Path] = {}
        """What each worker says, by its process id."""
        self._numbers = itertools.count(1)
        self.define()

    @property
    def is_kafka(self) -> bool:
        """Which runtime this is."""
        return self.name == "kafka"

    @property
    def settings(self) -> Settings:
        """The settings in force, as a process started here would have them."""
        kafka = {
            name.removeprefix("FACETLINE_KAFKA__").lower(): value
            for name, value in self.place.settings.items()
            if name.startswith("FACETLINE_KAFKA__")
        }
        return load_settings(
            config=self.folder / "facetline.toml",
            data_folder=self.folder / ".facetline",
            store_url=self.place.settings.get("FACETLINE_STORE_URL"),
            kafka=kafka,
        )

    def define(
        self,
        *questions: str,
        more: Sequence[str] = (),
        call_s: float = 30.0,
        concurrency: int = 8,
        grace_s: float = 1.0,
        options: Sequence[str] = ("billing", "outage", "other"),
        file: str = "facetline.toml",
        limits: str = "",
    ) -> None:
        """Write a configuration: `questions` about each document (`topic` unless named), `more` collections.

        `limits` are further lines of the evaluator's table.
        """
        module = f"collections_{uuid.uuid4().hex}"  # a module is imported once in a process, also in this one
        text = MODULE.format(questions=list(questions) or ["topic"], more=list(more), options=list(options))
        (self.folder / f"{module}.py").write_text(text)
        limits += f"\nconcurrency = {concurrency}\ncall_s = {call_s}\nretry_first_s = 0.05\nprobe_first_s = 0.2\n"
        (self.folder / file).write_text(
            f'collections = "{module}:collections"\n[settings]\ngrace_s = {grace_s}\n[evaluators.tickets]\n{limits}'
        )

    @contextmanager
    def worker(self, failpoint: str = "", **settings: str) -> Iterator["Worker"]:
        """Run a worker process; in the end it is told to stop, and killed when it does not."""
        given = {**self.place.settings, **settings, "FACETLINE_LOG_LEVEL": "info"}
        if failpoint:
            given[failpoints.VARIABLE] = failpoint
        path = self.folder / f"worker-{next(self._numbers)}.log"
        process: Worker
        if self.is_kafka and not self.clocked:
            with path.open("wb") as log:
                process = self.place.start("worker", settings=given, stdin=None, stdout=log, stderr=log)
        else:
            script = "clocked_worker.py" if self.is_kafka else "local_worker.py"
            process = Forked(script, str(self.clock.path), cwd=self.folder, env=environment(given), log=path)
        self.logs_of[process.pid] = path
        try:
            yield process
        finally:
            stop(process)

    @asynccontextmanager
    async def pipeline(self, *, classify: bool = False) -> AsyncIterator[Pipeline]:
        """Open the pipeline in this process; `classify` (local): it runs the side chain as well."""
        async with wiring.open_pipeline(self.settings, classify=classify, clock_shift=self.clock) as opened:
            yield opened

    def logs(self) -> str:
        """What the workers said, for a failing test's reader."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("worker-*.log")))


def stop(process: "Worker") -> int:
    """Tell a process to stop, and kill it when it does not."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    if process.poll() is None:
        process.kill()
    return process.wait()


async def died(process: "Worker", deadline_s: float = ANSWERED_S) -> None:
    """Wait until a process has killed itself at a failpoint."""
    code = await eventually(process.poll, deadline_s=deadline_s, what="the process dies at its failpoint")
    assert code == -signal.SIGKILL


@contextmanager
def made(name: str, folder: Path, fixture: Callable[[str], Any], *, clocked: bool = False) -> Iterator[Site]:
    """Make a site; `fixture` (pytest's `getfixturevalue`) gives the services that the runtime needs."""
    if name == "local":
        made_stores.sqlite_copy(fixture("sqlite_template"), folder / ".facetline" / "facetline.db")
        yield Site(name, folder, {}, clocked=clocked)
        return
    admin_url, own = fixture("postgres_admin_url"), f"t{uuid.uuid4().hex[:12]}"
    kafka = {
        "BOOTSTRAP_SERVERS": fixture("kafka_bootstrap"),
        "TOPIC_PREFIX": own,
        "GROUP_ID": own,
        "PARTITIONS": str(PARTITIONS),
    }
    settings = {f"FACETLINE_KAFKA__{part}": value for part, value in kafka.items()}
    settings["FACETLINE_STORE_URL"] = made_stores.postgres_copy(admin_url, fixture("postgres_template"), own)
    site = Site(name, folder, settings, clocked=clocked)
    asyncio.run(topics.create_topics(site.settings.kafka))
    try:
        yield site
    finally:
        postgres_server.drop_database(admin_url, own)


class Case:
    """One test's share of a site: its documents are in a scope of their own, its files and bodies carry its name."""

    def __init__(self, site: Site, pipeline: Pipeline) -> None:
        self.site = site
        self.pipeline = pipeline
        self.scope = f"s{uuid.uuid4().hex[:8]}"

    def uri(self, key: str) -> str:
        """The uri of this test's document."""
        return f"@{self.scope}/tickets/{key}"

    def body(self, text: str) -> str:
        """A body that no other test has: its files are this test's."""
        words = (f"{word}-{self.scope}" if "=" in word else word for word in text.split(" "))
        return " ".join([*words, f"#{self.scope}"])

    def on(self, name: str) -> None:
        """Hold or fail bodies with that word from now on."""
        self.site.script.on(f"{name}-{self.scope}")

    def off(self, name: str) -> None:
        """Hold or fail them no longer."""
        self.site.script.off(f"{name}-{self.scope}")

    async def write(self, key: str, body: str | None = None, **options: Any) -> dict[str, Any]:
        """Write a document and wait for its answers, unless told otherwise."""
        text = None if body is None else self.body(body)
        return await self.pipeline.write(self.uri(key), body=text, **{"timeout_s": ANSWERED_S, **options})

    async def delete(self, key: str) -> dict[str, Any]:
        """Delete a document."""
        return await self.pipeline.delete(self.uri(key), timeout_s=ANSWERED_S)

    async def get(self, key: str) -> dict[str, Any]:
        """Return a document whole."""
        return await self.pipeline.get(self.uri(key))

    async def topic(self, key: str) -> str | None:
        """What the document's answer to `topic` is."""
        facets = (await self.get(key))["facets"]
        return None if facets is None else str(facets["topic"]["choice"])

    def calls(self, key: str, body: str | None = None) -> int:
        """How many calls there were about a document (about one body of it)."""
        wanted = None if body is None else self.body(body)
        return sum(
            call.key == key and call.body.endswith(f"#{self.scope}") and wanted in {None, call.body}
            for call in self.site.script.calls()
        )

    async def called(self, key: str, count: int = 1) -> None:
        """Wait until so many calls about a document have begun."""
        what = f"{count} calls about {key} have begun"
        await eventually(lambda: self.calls(key) >= count, deadline_s=ANSWERED_S, what=what)

    async def settled(self, *keys: str) -> list[dict[str, Any]]:
        """Wait until these documents are pending no longer; return them."""

        async def look() -> list[dict[str, Any]] | None:
            found = [await self.pipeline.store.read(documents.get, self.uri(key)) for key in keys]
            if any(each is None or each.status is Status.PENDING for each in found):
                return None
            return [each.model_dump(mode="json") for each in found if each is not None]

        return await eventually(look, deadline_s=ANSWERED_S, what=f"{', '.join(keys)} are settled")

    async def search(self, facets: Any = None, **options: Any) -> dict[str, Any]:
        """Search this test's documents."""
        return await self.pipeline.search("tickets", facets, scope=self.scope, limit=200, **options)

    async def keys(self, topic: str) -> list[str]:
        """The keys of the documents with this answer to `topic`."""
        return sorted((await self.search({"topic": topic}))["keys"])

    async def tally(self, name: str) -> int:
        """One of the store's counts."""
        return (await self.pipeline.store.read(counters.all)).get(name, 0)

    async def discarded(self, name: str, before: int) -> None:
        """Wait until one more late word was discarded."""

        async def look() -> bool:
            return await self.tally(name) > before

        await eventually(look, deadline_s=ANSWERED_S, what=f"{name} is above {before}")

    def message(self, key: str, body: str, event_id: str | None = None, source: str = "test") -> wire.Message:
        """A valid write as bytes."""
        return wire.encode_write(
            self.uri(key), body=self.body(body), state=None, source=source, event_id=event_id or uuid.uuid4().hex
        )

    async def produce(self, *messages: wire.Message) -> None:
        """Put bytes into the log, as any producer might, and wait until they have been judged."""
        await produce(self.site, self.pipeline, messages)
        await self.caught_up()

    async def caught_up(self) -> None:
        """Wait until everything in the log has been judged."""
        await caught_up(self.site, self.pipeline)

    async def letters(self, *messages: wire.Message) -> list[DeadLetter | None]:
        """Return the dead letter of each of these messages, None where there is none."""
        found, after = [], 0
        every_state = ("open", "redriving", "redriven", "superseded", "discarded")
        while page := await self.pipeline.store.read(dead_letters.find, after=after, states=every_state):
            found += page
            after = page[-1].id
        by_bytes = {(each.raw.key, each.raw.value, each.raw.headers): each for each in found}
        return [by_bytes.get((each.key, each.value, each.headers)) for each in messages]


@asynccontextmanager
async def case(site: Site, *, classify: bool = False) -> AsyncIterator[Case]:
    """Open a pipeline for one test."""
    async with site.pipeline(classify=classify) as pipeline:
        yield Case(site, pipeline)


async def produce(site: Site, pipeline: Pipeline, messages: Sequence[wire.Message]) -> None:
    """Put bytes into the log in order."""
    if site.is_kafka:
        await kafka_topics.fill(site.settings.kafka, messages)
        return
    active = await pipeline.definitions()
    for each in messages:
        raw = Raw(each.key, each.value, each.headers, time.time_ns() // 1_000_000)
        await pipeline.append([Sent(each, wire.decode(raw, Position("local", 1, 0, 0), active))])


async def caught_up(site: Site, pipeline: Pipeline) -> None:
    """Wait until the store's positions are at the log's end; at once without a broker."""
    if not site.is_kafka:
        return
    kafka = site.settings.kafka
    topic = topics.topic_names(kafka.topic_prefix).documents
    log = log_reader.KafkaLog(kafka, topic)
    try:
        ends = {partition: (await log.bounds(partition))[1] for partition in range(PARTITIONS)}

        async def look() -> bool:
            states = await pipeline.store.read(positions.get, topic)
            return all(partition in states and states[partition].next_offset >= ends[partition] for partition in ends)

        await eventually(look, deadline_s=ANSWERED_S, what=f"the positions reach {ends}")
    finally:
        await log.stop()
