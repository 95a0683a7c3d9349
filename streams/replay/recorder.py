"""What a topic holds, read from its log for a file: committed records only, in the order of their time.

A plain consumer without a group, so no group's offsets move. Partitions are merged by the log's own time as far as the
topic reached when the reading began; what comes later is taken as it comes. Each partition has at most one fetch (4
MiB) and 500 records waiting.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiokafka
import structlog
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from facetline.facets import errors
from facetline.streams.files.kcat import Recorded
from facetline.streams.kafka import clients, topics
from facetline.streams.kafka.log_reader import Bounds, KafkaLog, Unreadable, raw_of
from facetline.streams.settings import KafkaSettings
from facetline.streams.wire.undecodable import Undecodable

CHUNK = 500
POLL_MS = 500
WAIT_S = 30.0
"""How long a log that should have more may give nothing."""
STOP_S = 5.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Span:
    """What to read of a partition: from `start` up to but without `end`."""

    start: int
    end: int


async def spans(
    settings: KafkaSettings, topic: str, *, partitions: Sequence[int] = (), starts: Mapping[int, int] | None = None
) -> dict[int, Span]:
    """Return what there is to read of a topic now; of these `partitions` only, and from these offsets on.

    Raises:
        BrokerUnavailable: no broker answers.
        InvalidQuery: no such topic or partition, or an offset that the log does not have (any more).
    """
    counts = await topics.partition_counts(settings, [topic])
    if topic not in counts:
        raise errors.InvalidQuery(f"there is no topic {topic} at {settings.bootstrap_servers}")
    wanted = sorted({*partitions} or {*(starts or {})} or range(counts[topic]))
    if wanted[-1] >= counts[topic]:
        raise errors.InvalidQuery(f"topic {topic} has no partition {wanted[-1]}; it has 0 to {counts[topic] - 1}")
    source = KafkaLog(settings, topic)
    try:
        found = await source.all_bounds(wanted)
    finally:
        await source.stop()
    return {partition: _span(partition, found[partition], (starts or {}).get(partition)) for partition in wanted}


def _span(partition: int, bounds: Bounds, start: int | None) -> Span:
    if start is None:
        return Span(bounds.first, bounds.end)
    if not bounds.first <= start <= bounds.end:
        raise errors.InvalidQuery(
            f"partition {partition} has no offset {start}: its log begins at {bounds.first} and ends at {bounds.end}"
        )
    return Span(start, bounds.end)


class Recorder:
    """Reads the spans of one topic; `at` says at any time with which offset of each partition to go on."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        wanted: Mapping[int, Span],
        *,
        follow: bool = False,
        incarnations: Mapping[int, int] | None = None,
        wait_s: float = WAIT_S,
    ) -> None:
        """Read `topic`; with `follow` go on after the end, for ever. `incarnations` are noted with the records."""
        self.at = {partition: span.start for partition, span in wanted.items()}
        self._settings = settings
        self._topic = topic
        self._wanted = dict(wanted)
        self._follow = follow
        self._incarnations = incarnations or {}
        self._wait_s = wait_s

    async def chunks(self) -> AsyncIterator[list[Recorded]]:
        """Return the records, in chunks; `at` moves on when the next chunk is asked for.

        Raises:
            BrokerUnavailable: the broker no longer answers; go on later from `at`.
            Unreadable: a batch is damaged.
        """
        if not self._follow and all(span.start >= span.end for span in self._wanted.values()):
            return
        async with self._consumer() as consumer:
            async for chunk in self._merged(consumer):
                yield chunk
                self._pass(chunk)
            self.at = {partition: max(span.end, self.at[partition]) for partition, span in self._wanted.items()}
            while self._follow:
                chunk = _by_time([self._recorded(each) for each in await _polled(consumer, self._places())])
                if chunk:
                    yield chunk
                    self._pass(chunk)

    def _pass(self, chunk: Sequence[Recorded]) -> None:
        for each in chunk:
            self.at[each.partition] = each.offset + 1

    async def _merged(self, consumer: Any) -> AsyncIterator[list[Recorded]]:
        """Return what stands in the spans, oldest first; each partition keeps its own order."""
        waiting: dict[int, deque[Recorded]] = {partition: deque() for partition in self._wanted}
        unread = {partition for partition, span in self._wanted.items() if span.start < span.end}
        chunk: list[Recorded] = []
        while unread or any(waiting.values()):
            hungry = [partition for partition in unread if not waiting[partition]]
            if hungry:
                if chunk:
                    yield chunk
                    chunk = []
                unread -= await self._fed(consumer, hungry, waiting)
                continue
            chunk.append(_oldest(waiting))
            if len(chunk) >= CHUNK:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    async def _fed(self, consumer: Any, hungry: Sequence[int], waiting: dict[int, deque[Recorded]]) -> set[int]:
        """Wait until one of these partitions has records or is known to have none left; return those read to their end.

        Markers, aborted records and compacted ones only show in the position moving past them.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._wait_s
        places = [aiokafka.TopicPartition(self._topic, partition) for partition in hungry]
        while loop.time() < deadline_s:
            for record in await _polled(consumer, places):
                if record.offset < self._wanted[record.partition].end:
                    waiting[record.partition].append(self._recorded(record))
            ended = {place.partition for place in places if await self._is_read(consumer, place)}
            if ended or any(waiting[partition] for partition in hungry):
                return ended
        raise errors.BrokerUnavailable(
            f"Kafka at {self._settings.bootstrap_servers} gave nothing of {self._topic} for {self._wait_s:g} s"
        )

    async def _is_read(self, consumer: Any, place: aiokafka.TopicPartition) -> bool:
        position: int = await consumer.position(place)
        end = self._wanted[place.partition].end
        if position > end:  # what came meanwhile was dropped, and is read again by who follows
            consumer.seek(place, end)
        return position >= end

    def _recorded(self, record: Any) -> Recorded:
        if isinstance(record.value, Undecodable):
            self._judge(record)
        return Recorded(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            raw=raw_of(record),
            incarnation=self._incarnations.get(record.partition),
            timestamp_type=record.timestamp_type,
        )

    def _judge(self, record: Any) -> None:
        """Let a batch pass that its producer sent so: its bytes are recorded as the value of one record.

        Raises:
            Unreadable: it is damaged.
        """
        value = record.value
        if value.damaged:
            reason = f"the batch is damaged ({value.reason}); record what follows it with --from-offsets"
            raise Unreadable(self._topic, record.partition, record.offset, reason, end=value.end)
        log.warning(
            "batch_not_decoded",
            topic=self._topic,
            partition=record.partition,
            offset=record.offset,
            end=value.end,
            reason=value.reason,
        )

    def _places(self) -> list[aiokafka.TopicPartition]:
        return [aiokafka.TopicPartition(self._topic, partition) for partition in self._wanted]

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[aiokafka.AIOKafkaConsumer]:
        """Lend a consumer that stands at the spans' starts.

        Raises:
            BrokerUnavailable: whatever the broker or the way to it did.
        """
        consumer = clients.make_consumer(self._settings, group_id=None, auto_offset_reset="none")
        try:
            await consumer.start()
            consumer.assign(self._places())
            for place in self._places():
                consumer.seek(place, self._wanted[place.partition].start)
            yield consumer
        except OffsetOutOfRangeError as error:
            raise errors.BrokerUnavailable(f"{self._topic} lost records while it was read: {error}") from error
        except (KafkaError, OSError) as error:
            address = self._settings.bootstrap_servers
            raise errors.BrokerUnavailable(
                f"Kafka at {address} does not answer about {self._topic}: {error}"
            ) from error
        finally:
            await clients.stop_within(consumer, STOP_S)


async def _polled(consumer: Any, places: Sequence[aiokafka.TopicPartition]) -> list[Any]:
    got = await consumer.getmany(*places, timeout_ms=POLL_MS, max_records=CHUNK)
    return [record for records in got.values() for record in records]


def _oldest(waiting: Mapping[int, deque[Recorded]]) -> Recorded:
    """Take the record with the earliest time of those at the heads; of equal ones that of the lowest partition."""
    _, partition = min((each[0].raw.timestamp_ms or 0, partition) for partition, each in waiting.items() if each)
    return waiting[partition].popleft()


def _by_time(chunk: list[Recorded]) -> list[Recorded]:
    """Sort by time without changing the order in any partition, also where a producer's clock was set back."""
    latest: dict[int, int] = {}
    keyed = []
    for each in chunk:
        latest[each.partition] = max(latest.get(each.partition, 0), each.raw.timestamp_ms or 0)
        keyed.append((latest[each.partition], each))
    return [each for _, each in sorted(keyed, key=lambda pair: pair[0])]
