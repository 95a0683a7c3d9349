"""From the documents topic into the store: every record once, in order, whatever Kafka delivers.

The store's positions are the position of record, not the consumer group's. What arrives in order is applied as it
comes. Anything else (a jump, a redelivery, a partition without progress, a topic that was created again) is only a
reason to ask the log itself, and what the log says is applied.

What a crash means, step by step: before the commit nothing has happened, and the records come again; after it the
position stands above them, so that they are skipped when they come again. Acknowledging to Kafka is the caller's, after
`handle` has returned, and serves the lag tools alone.
"""

import asyncio
import functools
import hashlib
import itertools
import math
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from aiokafka.partitioner import murmur2

from facetline.facets import errors
from facetline.facets.definitions import Definitions
from facetline.facets.documents import EventReason
from facetline.storage import counters, definitions
from facetline.storage.db.engine import Store, Tx
from facetline.storage.generations import Generation
from facetline.storage.log import apply, positions
from facetline.storage.log.events import Applied, Batch, Event, Outcome, Position, Raw
from facetline.storage.log.positions import PositionState
from facetline.streams import failpoints
from facetline.streams.histogram import BATCH_EVENTS, BATCH_SECONDS, Histogram
from facetline.streams.kafka import log_reader
from facetline.streams.kafka.log_reader import Log, LogRecord, Unreadable
from facetline.streams.wire import codec
from facetline.streams.wire.undecodable import Undecodable

EVENTS_MAX = 500
"""Events of one transaction."""
IDLE_S = 10.0
"""How long an owned partition may be without progress before the log is asked whether more is there."""
QUIET_S = 5.0
"""A record after a pause this long is checked against the log first: a topic can be created again meanwhile."""
STOPPED_S = 30.0
"""How often a partition that cannot be read is tried again: a try may take seconds, in which the others wait."""
COUNTED_S = 1.0
"""How long the broker's word about the number of partitions counts, while keys stand on partitions not their own."""
LOOK_BACK = (1, 16, 256)
"""Offsets looked at, in turn, for the last record below the position: markers of transactions may stand above it."""
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 5.0

MISPLACED = "misplaced_keys"
"""Tally of records that stand on another partition than their key's: their producer hashes keys in another way."""

log = structlog.get_logger(__name__)


class PartitionsChanged(errors.TransientError):
    """The topic has another number of partitions than when it was first used: its keys stand on others now."""


@dataclass(slots=True)
class Stats:
    """Counts since the start of this process. `unchanged` has the `duplicates` in it."""

    applied: int = 0
    unchanged: int = 0
    duplicates: int = 0
    rejected: int = 0
    rejected_for: Counter[str] = field(default_factory=Counter)
    redelivered: int = 0
    reread: int = 0
    """Records taken from the log itself, because they did not come in order or not at all."""
    incarnations: int = 0
    misplaced: int = 0
    batch_events: Histogram = field(default_factory=lambda: Histogram(BATCH_EVENTS))
    batch_seconds: Histogram = field(default_factory=lambda: Histogram(BATCH_SECONDS))
    """How long a batch's transaction took, retries and all."""


class WriteWorker:
    """Applies the records of the owned partitions. One at a time is enough for a process; calls wait for each other.

    A store or a broker that is away is waited for, as long as it takes, and so is a topic whose number of partitions
    has changed: `waiting` then says for what. A partition that cannot be read stops alone: `stopped` says why.
    Only errors that make going on wrong leave these methods.
    """

    def __init__(
        self,
        store: Store,
        source: Log,
        topic: str,
        *,
        partitions: int | None = None,
        on_applied: Callable[[Sequence[Outcome]], None] | None = None,
        failpoint: Callable[[str], None] = failpoints.failpoint,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Work on `topic` of `source`, with `partitions` in all (None: neither keys nor the topic are checked)."""
        self.stats = Stats()
        self.waiting: str | None = None
        self.stopped: dict[int, str] = {}
        """The stopped partitions, whose records cannot be read: why, and the way out."""
        self._stopped_at: dict[int, float] = {}
        self._counted_at = -math.inf
        self._store = store
        self._log = source
        self._topic = topic
        self._partitions = partitions
        self._on_applied = on_applied or (lambda _outcomes: None)
        self._failpoint = failpoint
        self._clock = clock
        self._working = asyncio.Lock()
        self._owned: frozenset[int] = frozenset()
        self._sound_at: dict[int, float] = {}
        """When a partition was last seen to be what the store has a position of."""
        self._incarnations: dict[int, int] = {}
        """Which log a partition was when it was last looked at: what was delivered before may be of another one."""
        self._restarts: dict[int, int] = {}
        self._generation: Generation | None = None
        self._definitions = Definitions([])

    async def assigned(self, partitions: Iterable[int]) -> None:
        """Take these partitions and no others, and check each against the log before its first record."""
        async with self._working:
            self._owned = frozenset(partition for partition in partitions if not self._is_new(partition))
            self._sound_at.clear()
            self._incarnations.clear()
            self.stopped.clear()
            await self._insist(self._check_count)
            for partition in sorted(self._owned):
                await self._insist_alone(partition, functools.partial(self._verify, partition))

    async def handle(self, records: Sequence[LogRecord]) -> None:
        """Apply what was delivered; return when everything up to the highest of these records has been committed."""
        below: list[int] = []
        delivered_from = dict(self._incarnations)  # before waiting: meanwhile it may turn out to be another log
        async with self._working:
            await self._insist(functools.partial(self._handle, records, delivered_from, below))
        self.stats.redelivered += below[0]
        self._failpoint("apply.after_commit")

    async def check_idle(self) -> int:
        """Ask the log about owned partitions that have stood still, and apply what was never delivered.

        Returns:
            How many records that was.
        """
        async with self._working:
            before = self.stats.reread
            await self._insist(self._check_count)
            for partition in sorted(self._owned):
                if self._is_due(partition):
                    await self._insist_alone(partition, functools.partial(self._catch_up, partition, None))
            return self.stats.reread - before

    def _is_due(self, partition: int) -> bool:
        if partition in self.stopped:
            return self._clock() - self._stopped_at[partition] >= STOPPED_S
        return self._clock() - self._sound_at.get(partition, -IDLE_S) >= IDLE_S

    def take_restarts(self) -> dict[int, int]:
        """Return the partitions whose delivery should go on from another offset than the deliverer thinks, and forget.

        Those are partitions that were created again, and those whose records never came.
        """
        taken, self._restarts = self._restarts, {}
        return taken

    async def _insist(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do `work` again until store and broker let it pass: all of it may be done twice."""
        pause_s = RETRY_FIRST_S
        while True:
            try:
                await work()
            except positions.PositionGap as gap:  # someone else moved the position; what is true now is asked again
                found = gap.args[0]
            except errors.TransientError as error:
                if self._store.hurried:  # the process stops: the records come again after the next start
                    raise
                found = error.message
            else:
                self.waiting = None
                return
            self.waiting = found
            log.warning("write_worker_waits", topic=self._topic, reason=found, pause_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, RETRY_MAX_S)

    async def _insist_alone(self, partition: int, work: Callable[[], Awaitable[object]]) -> None:
        """Do the same for one partition, which stops alone when it cannot be read."""
        try:
            await self._insist(work)
        except Unreadable as error:
            self._stop(partition, error)
            return
        if self.stopped.pop(partition, None) is not None:
            log.info("partition_goes_on", topic=self._topic, partition=partition)

    def _stop(self, partition: int, error: Unreadable) -> None:
        self.waiting = None  # the store and the broker are there
        self.stopped[partition] = error.message
        self._stopped_at[partition] = self._clock()
        log.error(
            "partition_stopped", topic=self._topic, partition=partition, offset=error.offset, reason=error.message
        )

    def _is_new(self, partition: int) -> bool:
        """Say whether the topic did not have this partition when it was first used."""
        return self._partitions is not None and partition >= self._partitions

    async def _check_count(self, *, old_s: float = 0.0) -> None:
        """Make sure that the topic has as many partitions as it had; an answer younger than `old_s` will do.

        With another number a document's writes stand on two partitions, and the older ones may come last.

        Raises:
            PartitionsChanged: it has not; nothing of it may be applied.
            BrokerUnavailable: no broker answers.
        """
        if self._partitions is None or self._clock() - self._counted_at < old_s:
            return
        found = await self._log.partitions()
        if found not in {0, self._partitions}:  # 0: it is being made again, and is looked at when it is there
            self._counted_at = -math.inf
            raise PartitionsChanged(
                f"{self._topic} has {found} partitions and had {self._partitions} when it was first used: writes of one"
                " document may stand on two of them, so nothing of it is applied; write to a new topic_prefix, or"
                f" make the topic again with {self._partitions} partitions"
            )
        self._counted_at = self._clock()

    async def _handle(self, records: Sequence[LogRecord], delivered_from: Mapping[int, int], below: list[int]) -> None:
        """Apply what was delivered from these incarnations.

        `below` takes how many of these records had been applied when they came.
        """
        states = await self._look()
        if not below:
            below.append(sum(_is_below(states.get(record.partition), record) for record in records))
        in_order: list[Batch] = []
        for partition, group in itertools.groupby(sorted(records, key=_partition), key=_partition):
            if self._is_new(partition):  # nothing of it is ever applied, whatever the broker says
                await self._check_count()
                continue
            if partition in self.stopped:  # it goes on from the log, once that can be read
                continue
            delivered = list(group)
            state = states.get(partition)
            same_log = state is not None and delivered_from.get(partition) == state.incarnation
            if state is not None and same_log and self._is_sound(partition) and _continues(state, delivered):
                in_order.append(self._batch(partition, state, delivered, delivered[-1].offset + 1))
                continue
            try:
                await self._catch_up(partition, max(record.offset for record in delivered) + 1)
            except Unreadable as error:
                self._stop(partition, error)
        if in_order:
            await self._apply(in_order)

    async def _look(self) -> dict[int, PositionState]:
        """Read the positions, and the active definitions when they have changed."""
        generation, states = await self._store.read(_look, self._topic)
        if generation != self._generation:
            self._generation, self._definitions = await self._store.read(definitions.active)
        return states

    def _is_sound(self, partition: int) -> bool:
        return self._clock() - self._sound_at.get(partition, -QUIET_S) < QUIET_S

    async def _catch_up(self, partition: int, until: int | None) -> None:
        """Apply from the log itself what it has below `until` (None: all), after making sure that it is the same log.

        What was delivered is not looked at: it may be of a log that is no longer there.
        """
        state, end = await self._verify(partition)
        end = end if until is None else min(until, end)
        await self._look()
        while state.next_offset < end:
            found = await self._log.read(partition, state.next_offset, end, records_max=EVENTS_MAX)
            if found.end <= state.next_offset:
                raise errors.BrokerUnavailable(f"{self._topic}/{partition} gave nothing from {state.next_offset} on")
            self.stats.reread += len(found.records)
            batch = self._batch(partition, state, found.records, found.end)
            await self._apply([batch])
            state = positions.moved(state, found.end, batch.last_timestamp_ms, batch.last_hash)
            if until is None or partition in self._restarts:
                self._restarts[partition] = state.next_offset

    async def _verify(self, partition: int) -> tuple[PositionState, int]:
        """Make sure that the position is one in this log; return it with the log's end.

        1. A partition never seen begins at the log's start. 2. An end below the position, or another record just below
        it, is another log: it is applied from its start. 3. What the log no longer has is one dead letter.
        """
        # The position first: another worker may move it meanwhile, but never above an end that is asked for later.
        state = (await self._store.read(positions.get, self._topic)).get(partition)
        first, end = await self._log.bounds(partition)
        if state is None:
            state = await self._store.write(positions.first_seen, self._topic, partition, first)  # 1
        if await self._is_another_log(partition, state, first, end):  # 2
            state = await self._store.write(
                positions.new_incarnation, self._topic, partition, after=state.incarnation, start_offset=first
            )
            self.stats.incarnations += 1
            self._restarts[partition] = first
            log.warning(
                "topic_made_anew", topic=self._topic, partition=partition, incarnation=state.incarnation, start=first
            )
        if state.next_offset < first:  # 3
            await self._apply([self._truncated(partition, state, first)])
            state = positions.moved(state, first, None, None)
        self._sound_at[partition] = self._clock()
        self._incarnations[partition] = state.incarnation
        return state, end

    async def _is_another_log(self, partition: int, state: PositionState, first: int, end: int) -> bool:
        if end < state.next_offset:
            return True
        if state.next_offset <= first:  # nothing below it is there to compare with
            return False
        found = await self._last_below(partition, state, first)
        if not found:  # nothing but markers there: nothing could be lost
            return False
        if state.last_hash is None and found[0].offset != state.next_offset - 1:
            return False
        return _mark(found) != (state.last_timestamp_ms, state.last_hash)

    async def _last_below(self, partition: int, state: PositionState, first: int) -> Sequence[LogRecord]:
        """Return the last record below the position, none when the offsets near it hold none."""
        for width in LOOK_BACK:
            start = max(first, state.next_offset - width)
            found = await self._log.read(partition, start, state.next_offset, records_max=width)
            if found.end < state.next_offset:
                raise errors.BrokerUnavailable(f"{self._topic}/{partition} gave nothing at {found.end}")
            if found.records or start == first:
                return found.records[-1:]
        return ()

    def _batch(self, partition: int, state: PositionState, records: Sequence[LogRecord], end: int) -> Batch:
        judged = [
            codec.decode(
                record.raw, Position(self._topic, state.incarnation, partition, record.offset), self._definitions
            )
            for record in records
        ]
        # Markers identify no log: the mark stays that of the last record.
        stamp, mark = _mark(records[-1:]) if records else (state.last_timestamp_ms, state.last_hash)
        return Batch(
            topic=self._topic,
            incarnation=state.incarnation,
            partition=partition,
            start=state.next_offset,
            end=end,
            events=tuple(judged),
            offsets=tuple(record.offset for record in records),
            last_timestamp_ms=stamp,
            last_hash=mark,
        )

    def _truncated(self, partition: int, state: PositionState, first: int) -> Batch:
        """Say in one dead letter that records were gone before they could be applied."""
        at = Position(self._topic, state.incarnation, partition, state.next_offset)
        message = (
            f"the log begins at {first}: what stood at {at.offset} to {first - 1} was deleted before it was applied;"
            " set retention.ms=-1 on the topic, and write those documents again"
        )
        gone = Event(
            position=at,
            redriven=False,
            source=f"log:{self._topic}",
            id=f"{at.incarnation}/{partition}/{at.offset}-{first - 1}",
            digest=hashlib.sha256(message.encode()).hexdigest(),
            uri=None,
            collection=None,
            scope=None,
            key=None,
            content=None,
            reason=EventReason.LOG_TRUNCATED.value,
            message=message,
            stage="decode",
            raw=Raw(None, None, (), None),
            traceparent=None,
        )
        return Batch(self._topic, at.incarnation, partition, at.offset, first, (gone,), (at.offset,))

    async def _apply(self, batches: Sequence[Batch]) -> None:
        misplaced = await self._check_keys(batches)
        started = self._clock()
        applied = await self._store.write(_commit, batches, misplaced, self._failpoint)
        now = self._clock()
        self.stats.batch_events.observe(sum(len(batch.events) for batch in batches))
        self.stats.batch_seconds.observe(now - started)
        self._sound_at.update({batch.partition: now for batch in batches})
        self.stats.misplaced += misplaced
        self._count(applied, batches)
        self._on_applied(applied.outcomes)

    async def _check_keys(self, batches: Sequence[Batch]) -> int:
        """Count keys that belong to another partition: two producers that disagree break the order per document.

        Raises:
            PartitionsChanged: that is why.
        """
        if self._partitions is None:
            return 0
        count = 0
        for batch in batches:
            wrong = [
                event.raw.key
                for event in batch.events
                if event.raw.key is not None and partition_of(event.raw.key, self._partitions) != batch.partition
            ]
            if wrong:
                await self._check_count(old_s=COUNTED_S)
                log.warning(
                    "keys_on_wrong_partition",
                    topic=self._topic,
                    partition=batch.partition,
                    count=len(wrong),
                    key=wrong[0][:80].decode(errors="replace"),
                    fix="set the producer's partitioner to murmur2_random",
                )
            count += len(wrong)
        return count

    def _count(self, applied: Applied, batches: Sequence[Batch]) -> None:
        self.stats.redelivered += applied.redelivered
        for outcome, (partition, offset) in zip(applied.outcomes, _places(applied, batches), strict=True):
            if outcome.outcome == "applied":
                self.stats.applied += not outcome.duplicate
            elif outcome.outcome == "rejected":
                self.stats.rejected += 1
                self.stats.rejected_for[str(outcome.reason)] += 1
            self.stats.unchanged += outcome.outcome == "unchanged" or outcome.duplicate
            self.stats.duplicates += outcome.duplicate
            log.info(
                "event_settled",
                action="apply",
                topic=self._topic,
                partition=partition,
                offset=offset,
                id=outcome.id,
                uri=outcome.uri,
                outcome="duplicate" if outcome.duplicate else outcome.outcome,
                reason=outcome.reason,
                version=outcome.version,
                indexed_as=outcome.indexed_as,
            )


def _places(applied: Applied, batches: Sequence[Batch]) -> list[tuple[int, int]]:
    """Return partition and offset of each outcome's event.

    Events below the position have no outcome. Of equal ones those are the first, so places are given out from the end.
    """
    places = defaultdict(list)
    for batch in batches:
        for event, offset in zip(batch.events, batch.offsets, strict=True):
            places[event.source, event.id, event.digest].append((batch.partition, offset))
    return [places[each.source, each.id, each.digest].pop() for each in reversed(applied.outcomes)][::-1]


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that Java's producer and aiokafka put a key on."""
    return (int(murmur2(key)) & 0x7FFFFFFF) % partitions


def _partition(record: LogRecord) -> int:
    return record.partition


def _continues(state: PositionState, records: Sequence[LogRecord]) -> bool:
    """Say whether these are exactly the next records; a batch that was not decoded is read again by another client."""
    return all(
        record.offset == state.next_offset + index and not isinstance(record.raw.value, Undecodable)
        for index, record in enumerate(records)
    )


def _is_below(state: PositionState | None, record: LogRecord) -> bool:
    return state is not None and record.offset < state.next_offset


def _mark(records: Sequence[LogRecord]) -> tuple[int | None, str | None]:
    """Return what identifies a log at an offset: time and hash of its record, None where there is none."""
    if not records:
        return None, None
    return records[0].raw.timestamp_ms, log_reader.record_hash(records[0].raw)


def _look(tx: Tx, topic: str) -> tuple[Generation, dict[int, PositionState]]:
    return definitions.generation(tx), positions.get(tx, topic)


def _commit(tx: Tx, batches: Sequence[Batch], misplaced: int, failpoint: Callable[[str], None]) -> Applied:
    """Apply in one transaction, only if these are still the newest incarnations."""
    newest = positions.get(tx, batches[0].topic)
    for batch in batches:
        state = newest.get(batch.partition)
        if state is None or state.incarnation != batch.incarnation:
            raise positions.PositionGap(batch.topic, batch.incarnation, batch.partition, None)
    applied = apply.apply(tx, batches)
    if misplaced:
        counters.add(tx, MISPLACED, misplaced)
    failpoint("apply.before_commit")
    return applied
