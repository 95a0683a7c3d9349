"""Whatever is delivered, in whatever order and however often, the store ends as the log says; no Kafka needed.

Goal: nothing that a consumer group can do (skip, repeat, go back, stop) shows in the store. Method: Hypothesis makes a
log and deliveries of parts of it, over two partitions; a model of a few lines says what must come out.
"""

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import kafka_topics
import made_stores
import stored
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import HealthCheck, given, settings, strategies

from facetline.facets import errors
from facetline.storage.log import documents, positions
from facetline.streams.kafka.log_reader import LogRecord, LogSlice
from facetline.streams.kafka.write_worker import IDLE_S, WriteWorker, partition_of

TOPIC = "documents"
PARTITIONS = 2
URIS = ("tickets/a", "tickets/b")


@dataclass
class MemoryLog:
    """A log in memory: records by partition and offset, with holes, and a broker that is away now and then."""

    records: dict[int, dict[int, LogRecord]]
    ends: dict[int, int]
    away: list[bool] = field(default_factory=list)
    slice_max: int = 3

    async def bounds(self, partition: int) -> tuple[int, int]:
        """Nothing is ever deleted here."""
        self._maybe_away()
        return 0, self.ends[partition]

    async def partitions(self) -> int:
        """Always as many."""
        self._maybe_away()
        return PARTITIONS

    async def read(self, partition: int, start: int, end: int, *, records_max: int) -> LogSlice:
        """At most a few records a slice, so that ranges are read in several."""
        self._maybe_away()
        there = [self.records[partition][offset] for offset in range(start, end) if offset in self.records[partition]]
        most = min(records_max, self.slice_max)
        if len(there) <= most:
            return LogSlice(tuple(there), end)
        return LogSlice(tuple(there[:most]), there[most - 1].offset + 1)

    def _maybe_away(self) -> None:
        if self.away and self.away.pop():
            raise errors.BrokerUnavailable("away")


@dataclass(frozen=True)
class Case:
    """A log: for each partition the uris written at its offsets (None: an offset without a record); and deliveries."""

    logs: tuple[tuple[str | None, ...], ...]
    deliveries: tuple[tuple[tuple[int, int], ...], ...]
    away: tuple[bool, ...]


@strategies.composite
def cases(draw: strategies.DrawFn) -> Case:
    """Logs of up to a dozen offsets, and up to six deliveries of any of their records in any order."""
    # A uri lives on one partition, as its key says.
    logs = tuple(tuple(draw(strategies.lists(strategies.sampled_from([uri, None, uri]), max_size=12))) for uri in URIS)
    places = [
        (partition, offset) for partition, log in enumerate(logs) for offset, uri in enumerate(log) if uri is not None
    ]
    part = strategies.lists(strategies.sampled_from(places), min_size=1, max_size=8).map(tuple)
    deliveries = draw(strategies.lists(part, max_size=6)) if places else []
    away = draw(strategies.lists(strategies.booleans(), max_size=2))
    return Case(logs, tuple(deliveries), tuple(away))


def _log(case: Case) -> MemoryLog:
    records = {
        partition: {
            offset: LogRecord(partition, offset, kafka_topics.raw(kafka_topics.write(uri, str(offset)), 1_000 + offset))
            for offset, uri in enumerate(log)
            if uri is not None
        }
        for partition, log in enumerate(case.logs)
    }
    return MemoryLog(records, {partition: len(log) for partition, log in enumerate(case.logs)}, list(case.away))


async def _run(case: Case, url: str) -> tuple[list[tuple[int, str | None]], dict[int, int]]:
    """Deliver, ask about standing partitions in the end, and return versions and bodies, and the positions."""
    log = _log(case)
    time_s = [0.0]
    async with stored.opened(url) as store:
        await store.write(kafka_topics.activate)
        worker = WriteWorker(store, log, TOPIC, clock=lambda: time_s[0])
        await worker.assigned(range(PARTITIONS))
        for delivery in case.deliveries:
            await worker.handle([log.records[partition][offset] for partition, offset in delivery])
            reached = await store.read(positions.get, TOPIC)
            assert all(reached[partition].next_offset > offset for partition, offset in delivery)
        time_s[0] += IDLE_S
        await worker.check_idle()
        found = [await store.read(documents.get, uri) for uri in URIS]
        states = await store.read(positions.get, TOPIC)
    documents_ = [(one.version, one.body) if one else (0, None) for one in found]
    return documents_, {partition: state.next_offset for partition, state in states.items()}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_the_store_ends_as_the_log_says(sqlite_template: Path, case: Case):
    """Every record counts once and in order, and the position stands at the log's end."""
    with tempfile.TemporaryDirectory() as folder:
        found, ends = asyncio.run(_run(case, made_stores.sqlite_copy(sqlite_template, Path(folder) / "store.db")))

    written = [[offset for offset, uri in enumerate(log) if uri is not None] for log in case.logs]
    assert found == [(len(offsets), str(offsets[-1]) if offsets else None) for offsets in written]
    assert ends == {partition: len(log) for partition, log in enumerate(case.logs)}


@given(strategies.binary(max_size=40), strategies.integers(1, 50))
def test_a_keys_partition_is_that_of_every_producer_of_the_topic(key: bytes, partitions: int):
    """The worker's own reckoning is that of aiokafka's default partitioner, which is Java's."""
    everywhere = list(range(partitions))

    assert partition_of(key, partitions) == DefaultPartitioner()(key, everywhere, everywhere)
