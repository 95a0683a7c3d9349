"""The documents topic as a log that can be asked: where it begins and ends, and what stands in a range of offsets.

A plain aiokafka consumer without a group, read-committed. It takes no part in the flow of events: the write worker asks
it whenever what Kafka delivered is not what the store expects next.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import aiokafka
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from facetline.facets import errors
from facetline.storage.log.events import Raw
from facetline.streams.kafka import clients
from facetline.streams.settings import KafkaSettings
from facetline.streams.wire.undecodable import Undecodable

WAIT_S = 10.0
"""How long one question may take."""
STOP_S = 5.0
POLL_MS = 500
SLICE_BYTES_MAX = 16 * 1024 * 1024
"""A slice ends early at about this size: 500 records of 4 MB each would be 2 GB."""


class Unreadable(errors.PipelineError):
    """What a partition holds at `offset` cannot be read, while the broker answers; what to do is in the message."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str, *, end: int) -> None:
        super().__init__(
            f"{topic}, partition {partition} cannot be read at offset {offset}: {reason}. Make a replica that has it"
            f" whole the leader (kafka-leader-election); if none has, delete the records below {end} with"
            " kafka-delete-records: those not applied become one dead letter"
        )
        self.partition = partition
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Bounds:
    """The first offset of a partition, and one above the last that readers of committed records can read."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record and where the log has it."""

    partition: int
    offset: int
    raw: Raw


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Records of one partition, ascending; everything below `end` has been seen, also offsets without a record."""

    records: tuple[LogRecord, ...]
    end: int


class Log(Protocol):
    """What the write worker needs of a log."""

    async def bounds(self, partition: int) -> tuple[int, int]:
        """Return the first offset and the end: one above the last that can be read."""
        ...

    async def read(self, partition: int, start: int, end: int, *, records_max: int) -> LogSlice:
        """Return what stands in `[start, end)`, or its beginning; a slice that ends at `start` says "not now".

        Raises:
            Unreadable: what stands at `start` cannot be read.
        """
        ...

    async def partitions(self) -> int:
        """Return how many partitions the topic has now; 0 when there is no such topic."""
        ...


def record_hash(raw: Raw) -> str:
    """Return the SHA-256 (hex) of a record's key, value and headers, each with its length; not of its time."""
    found = hashlib.sha256()
    for part in (raw.key, raw.value, *(item for name, value in raw.headers for item in (_name(name), value))):
        found.update(b"-" if part is None else len(part).to_bytes(8, "big"))
        found.update(part or b"")
    return found.hexdigest()


def _name(text: str) -> bytes:
    """Return a header's name as it was sent, also when it is not UTF-8."""
    return text.encode(errors="surrogateescape")


def raw_of(record: Any) -> Raw:
    """Return the bytes of an aiokafka record; a header without a value becomes an empty one."""
    headers = tuple((name, value or b"") for name, value in record.headers or ())
    return Raw(record.key, record.value, headers, record.timestamp)


class KafkaLog:
    """The log of one topic. Questions are answered one after another; `stop` closes the connection."""

    def __init__(self, settings: KafkaSettings, topic: str, *, wait_s: float = WAIT_S) -> None:
        self.topic = topic
        self._settings = settings
        self._wait_s = wait_s
        self._asking = asyncio.Lock()
        self._consumer: aiokafka.AIOKafkaConsumer | None = None
        self._at: tuple[int, int] | None = None
        """Partition and offset that the consumer reads next; None: it must be set."""

    async def bounds(self, partition: int) -> tuple[int, int]:
        """Return the first offset of the partition and its read-committed end.

        Raises:
            BrokerUnavailable: no answer in time.
        """
        found = (await self.all_bounds([partition]))[partition]
        return found.first, found.end

    async def all_bounds(self, partitions: Iterable[int]) -> dict[int, Bounds]:
        """Return the same of several partitions, at the cost of one.

        Raises:
            BrokerUnavailable: no answer in time.
        """
        places = [aiokafka.TopicPartition(self.topic, partition) for partition in partitions]
        async with self._ask() as consumer:
            first = await consumer.beginning_offsets(places)
            end = await consumer.end_offsets(places)
            return {place.partition: Bounds(int(first[place]), int(end[place])) for place in places}

    async def partitions(self) -> int:
        """Return how many partitions the topic has now, by the broker's own word; 0 when there is no such topic.

        Raises:
            BrokerUnavailable: no answer in time.
        """
        async with self._ask() as consumer:
            client = consumer._client  # noqa: SLF001 (aiokafka is pinned for this)
            client.set_topics([self.topic])
            if not await client.force_metadata_update():
                raise errors.BrokerUnavailable(f"Kafka does not say how many partitions {self.topic} has")
            return len(client.cluster.partitions_for_topic(self.topic) or ())

    async def read(self, partition: int, start: int, end: int, *, records_max: int) -> LogSlice:
        """Return what stands in `[start, end)`, at most `records_max` records and about 16 MiB of them.

        `end` must not lie above what `bounds` returned: records that are not there yet would be waited for.
        A slice that ends at `start` means that the log no longer has that offset: ask `bounds` again.

        Raises:
            BrokerUnavailable: no connection in time.
            Unreadable: what stands at `start` is damaged, or the broker gives nothing there.
        """
        place = aiokafka.TopicPartition(self.topic, partition)
        async with self._ask() as consumer:
            if self._at != (partition, start):
                consumer.assign([place])
                consumer.seek(place, start)
            self._at = None
            try:
                found, seen = await self._collect(consumer, place, start, end, records_max)
            except OffsetOutOfRangeError:
                return LogSlice((), start)
            self._at = (partition, await consumer.position(place))
            return LogSlice(tuple(found), min(seen, end))

    async def stop(self) -> None:
        """Close the connection."""
        async with self._asking:
            await self._drop()

    async def _collect(
        self, consumer: Any, place: aiokafka.TopicPartition, start: int, end: int, records_max: int
    ) -> tuple[list[LogRecord], int]:
        """Return records of the range and the offset below which everything has been seen."""
        found: list[LogRecord] = []
        seen, size = start, 0
        deadline = asyncio.get_running_loop().time() + self._wait_s * 0.8  # within the time for the whole question
        while seen < end and len(found) < records_max and size < SLICE_BYTES_MAX:
            if asyncio.get_running_loop().time() > deadline:
                break
            got = await consumer.getmany(place, timeout_ms=POLL_MS, max_records=records_max - len(found))
            for record in got.get(place, ()):
                if record.offset >= end:
                    return found, end
                if isinstance(record.value, Undecodable) and record.value.damaged:
                    if found:
                        return found, record.offset
                    raise self._damaged(record)
                found.append(LogRecord(place.partition, record.offset, raw_of(record)))
                size += len(record.value or b"") + len(record.key or b"")
            # Markers, aborted records and compacted ones only show in the position moving past them.
            seen = max(seen, await consumer.position(place))
        if seen <= start < end:
            raise Unreadable(self.topic, place.partition, start, "the broker gives nothing there", end=start + 1)
        return found, seen

    def _damaged(self, record: Any) -> Unreadable:
        reason = f"the batch is damaged ({record.value.reason})"
        return Unreadable(self.topic, record.partition, record.offset, reason, end=record.value.end)

    @asynccontextmanager
    async def _ask(self) -> AsyncIterator[aiokafka.AIOKafkaConsumer]:
        """Lend the connected consumer to one question, and drop it when the question fails."""
        async with self._asking:
            try:
                async with asyncio.timeout(self._wait_s):
                    if self._consumer is None:
                        self._consumer = await self._connect()
                    yield self._consumer
            except (KafkaError, OSError, TimeoutError) as error:
                await self._drop()
                message = f": {error}" if str(error) else f" within {self._wait_s:g} s"
                address = self._settings.bootstrap_servers
                raise errors.BrokerUnavailable(
                    f"Kafka at {address} does not answer about {self.topic}{message}"
                ) from error
            except BaseException:
                await self._drop()
                raise

    async def _connect(self) -> aiokafka.AIOKafkaConsumer:
        consumer = clients.make_consumer(self._settings, group_id=None, auto_offset_reset="none")
        try:
            await consumer.start()
        except BaseException:
            await clients.stop_within(consumer, STOP_S)
            raise
        return consumer

    async def _drop(self) -> None:
        consumer, self._consumer, self._at = self._consumer, None, None
        if consumer is not None:
            await clients.stop_within(consumer, STOP_S)
