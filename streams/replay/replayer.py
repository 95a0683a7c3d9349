"""Recorded events sent again, as they were: same id, key, value and original position, without their deadlines.

Each is judged as a worker judged it when it was recorded, so what was too late then is too late now. A store that has
taken the events before takes none of them again; a fresh one takes them in the same order per document. That is why an
interrupted replay may be run again from its beginning.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from facetline.facets import errors
from facetline.facets.definitions import Definitions
from facetline.facets.documents import EventReason
from facetline.storage.log import documents, events, positions
from facetline.streams.files.kcat import Idle, Line, Recorded, Refusal
from facetline.streams.pipeline import Pipeline
from facetline.streams.replay.pacing import Pace
from facetline.streams.wire import codec as wire
from facetline.streams.wire.outgoing import Sent

CHUNK = 500
"""Events of one transaction, or of one round to Kafka."""
CHUNK_BYTES_MAX = 16 * 1024 * 1024
PATIENCE_S = 0.005
"""Events that are due within this time of each other are sent together."""
REFUSED_KEPT_MAX = 100_000
"""Refusals listed in the result; beyond that the file as a whole is not what was meant, and only counted."""

Chunk = list[Line | Refusal]
Lines = Iterator[Line | Refusal] | Iterator[Line | Refusal | Idle]


@dataclass(slots=True)
class Tally:
    """What became of a file's lines.

    `sent` are those in the log. Of them, where it is known at once (in the local runtime): `applied`, `unchanged`,
    `known` (this store had settled them before) and `rejected` by reason. `refused` has the lines that were not sent,
    `refused_count` their number; `last` is the last line that was dealt with.
    """

    sent: int = 0
    applied: int = 0
    unchanged: int = 0
    known: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    refused: list[tuple[int, str]] = field(default_factory=list)
    refused_count: int = 0
    last: int = 0
    collections: set[str] = field(default_factory=set)

    def refuse(self, number: int, reason: str) -> None:
        """Count a line that is not sent."""
        self.refused_count += 1
        if len(self.refused) < REFUSED_KEPT_MAX:
            self.refused.append((number, reason))

    def hear(self, outcome: events.Outcome) -> None:
        """Count what became of an event."""
        if outcome.duplicate:
            self.known += 1
        elif outcome.outcome == "rejected":
            self.rejected[outcome.reason or ""] += 1
        elif outcome.outcome == "applied":
            self.applied += 1
        else:
            self.unchanged += 1


def judge(recorded: Recorded, incarnation: int, active: Definitions) -> Sent:
    """Return the event as it is to be sent.

    Raises:
        InvalidEvent: a worker rejected it, or would by these definitions.
    """
    if any(name.startswith(wire.ERROR_HEADER) for name, _ in recorded.raw.headers):
        raise errors.InvalidEvent(EventReason.UNKNOWN_TYPE, "a dead letter; send it with 'facetline dlq redrive'")
    at = events.Position(recorded.topic, incarnation, recorded.partition, recorded.offset)
    event = wire.decode(recorded.raw, at, active)
    if event.content is None:
        raise errors.InvalidEvent(event.reason or "", event.message or "")
    message = _message(recorded.raw, event.position, known=event.redriven)
    raw = events.Raw(message.key, message.value, message.headers, None)
    return Sent(message, replace(event, redriven=True, raw=raw))


def _message(raw: events.Raw, at: events.Position, *, known: bool) -> wire.Message:
    """Return the bytes to send; an event that was sent again before says already where it stood first (`known`)."""
    kept = tuple(header for header in raw.headers if header[0] != wire.DEADLINE_HEADER)
    if not known:
        origin = f"{at.topic}/{at.incarnation}/{at.partition}/{at.offset}".encode()
        kept = (*kept, (wire.ORIGIN_HEADER, origin))
    return wire.Message(raw.key, raw.value, kept)


class Incarnations:
    """Which life of a topic a record is of, where its line does not say: the newest that the store knows, or the first.

    `store` is None where there is none.
    """

    def __init__(self, pipeline: Pipeline | None) -> None:
        self._pipeline = pipeline
        self._found: dict[str, dict[int, int]] = {}

    async def of(self, recorded: Recorded) -> int:
        """Return the record's incarnation."""
        if recorded.incarnation is not None:
            return recorded.incarnation
        if recorded.topic not in self._found:
            states = {}
            if self._pipeline is not None:
                states = await self._pipeline.store.read(positions.get, recorded.topic)
            self._found[recorded.topic] = {partition: state.incarnation for partition, state in states.items()}
        return self._found[recorded.topic].get(recorded.partition, events.LOCAL_INCARNATION)


class Replay:
    """Sends the lines of one file, in order; `tally` says at any time what became of them.

    Without a `pipeline` nothing is sent: lines are only judged. `on_progress` gets the number of lines processed.
    """

    def __init__(
        self,
        pipeline: Pipeline | None,
        active: Definitions,
        *,
        pace: Pace | None = None,
        on_progress: Callable[[int], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.tally = Tally()
        self._pipeline = pipeline
        self._active = active
        self._pace = pace
        self._incarnations = Incarnations(pipeline)
        self._on_progress = on_progress
        self._clock = clock
        self._sleep = sleep
        self._started_s: float | None = None
        self._waiting: list[tuple[int, Sent]] = []

    async def run(self, lines: Lines) -> Tally:
        """Send all lines; return what became of them.

        Raises:
            BrokerUnavailable, StoreUnavailable, WriteInDoubt: run the same again, what has arrived is left as it is.
        """
        async for chunk in _chunks(lines):
            for each in chunk:
                await self._take(each)
            await self._flush()
            self.tally.last = chunk[-1].number
        return self.tally

    async def _take(self, each: Line | Refusal) -> None:
        if isinstance(each, Refusal):
            self.tally.refuse(each.number, each.reason)
            return
        recorded = each.recorded
        try:
            sent = judge(recorded, await self._incarnations.of(recorded), self._active)
        except errors.InvalidEvent as refused:
            self.tally.refuse(each.number, f"{refused.reason}: {refused.message}")
            return
        await self._wait_for(recorded.raw.timestamp_ms)
        self._waiting.append((each.number, sent))

    async def _wait_for(self, timestamp_ms: int | None) -> None:
        """Wait until the next event is due; what is due before it is sent first."""
        if self._pace is None or self._pipeline is None:
            return
        now_s = self._clock()
        if self._started_s is None:
            self._started_s = now_s
        wait_s = self._pace.due_s(timestamp_ms) - (now_s - self._started_s)
        if wait_s > PATIENCE_S:
            await self._flush()
            await self._sleep(wait_s)

    async def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        try:
            await self._send(waiting)
        except errors.InvalidEvent:  # one of them is more than a topic takes; what was sent beside it is sent twice
            for one in waiting:
                await self._send_alone(one)
        self.tally.last = waiting[-1][0]
        self._on_progress(self.tally.last)

    async def _send_alone(self, one: tuple[int, Sent]) -> None:
        try:
            await self._send([one])
        except errors.InvalidEvent as refused:
            self.tally.refuse(one[0], f"{refused.reason}: {refused.message}")

    async def _send(self, those: list[tuple[int, Sent]]) -> None:
        outcomes = None
        if self._pipeline is not None:
            outcomes = await self._pipeline.append([sent for _, sent in those])
        self.tally.sent += len(those)
        self.tally.collections.update(sent.event.collection or "" for _, sent in those)
        for outcome in outcomes or ():
            self.tally.hear(outcome)


async def pending(pipeline: Pipeline, collections: set[str]) -> int:
    """Count the documents of these collections that wait for an answer, from any writer."""
    counts = await pipeline.store.read(documents.counts)
    return sum(counts.get(name, {}).get("pending", 0) for name in collections)


async def log_ends(pipeline: Pipeline) -> dict[int, int]:
    """Return where each partition of the documents topic ends now; nothing in the local runtime.

    Raises:
        BrokerUnavailable: the broker does not answer.
    """
    if pipeline.settings.runtime == "local":
        return {}
    from facetline.streams.kafka import topics  # aiokafka is slow to import, and the local runtime has no use for it
    from facetline.streams.replay import recorder

    kafka = pipeline.settings.kafka
    spans = await recorder.spans(kafka, topics.topic_names(kafka.topic_prefix).documents)
    return {partition: span.end for partition, span in spans.items()}


async def behind(pipeline: Pipeline, ends: Mapping[int, int]) -> int:
    """Count the offsets below these ends of the documents topic that no worker has applied yet."""
    if not ends:
        return 0
    from facetline.streams.kafka import topics

    topic = topics.topic_names(pipeline.settings.kafka.topic_prefix).documents
    states = await pipeline.store.read(positions.get, topic)
    nexts = {partition: states[partition].next_offset if partition in states else 0 for partition in ends}
    return sum(max(0, end - nexts[partition]) for partition, end in ends.items())


async def _chunks(lines: Lines) -> AsyncIterator[Chunk]:
    """Read ahead one bounded chunk at a time, away from the event loop; no line waits for those that have not come."""

    def take() -> Chunk:
        chunk: Chunk = []
        size = 0
        for each in lines:
            if isinstance(each, Idle):
                if chunk:
                    break
                continue
            chunk.append(each)
            size += _size(each)
            if len(chunk) >= CHUNK or size >= CHUNK_BYTES_MAX:
                break
        return chunk

    while chunk := await asyncio.to_thread(take):
        yield chunk


def _size(each: Line | Refusal) -> int:
    raw = each.recorded.raw if isinstance(each, Line) else events.Raw(None, None)
    return len(raw.key or b"") + len(raw.value or b"") + sum(len(value) for _, value in raw.headers)
