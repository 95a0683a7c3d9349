"""The Kafka runtime's consumer: Faust delivers, one committer applies in batches, offsets are committed afterwards.

The agent only puts events into a bounded inbox and never raises. The committer hands up to 500 of them to the write
worker, which returns when they are committed, and then acknowledges them in order. Nothing rests on what Faust
delivers or commits: what it skips, repeats or never delivers, the write worker finds in the log.

Faust itself is watched. A membership that ends (a broker that is away) is replaced, as often as it takes.
One that says that it lives while records come only through the write worker's own look at the log ends the process
with an error: a supervisor's restart beats a silent stop.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from aiokafka.errors import KafkaError

from facetline.facets import errors
from facetline.storage.log.events import Raw
from facetline.streams.kafka import write_worker
from facetline.streams.kafka.broker_clock import BrokerClock
from facetline.streams.kafka.log_reader import LogRecord
from facetline.streams.kafka.write_worker import WriteWorker
from facetline.streams.settings import KafkaSettings

if TYPE_CHECKING:
    from facetline.streams.kafka.faust_app import AssignmentListener, DocumentsApp

INBOX_EVENTS_MAX = 1_000
BATCH_BYTES_MAX = 16 * 1024 * 1024
"""A batch ends at about this size, and the inbox holds two of them: 500 records of 4 MB each would be 2 GB."""
INBOX_BYTES_MAX = 2 * BATCH_BYTES_MAX
CHECK_S = write_worker.IDLE_S
"""How often partitions without progress are checked."""
SILENT_CHECKS_MAX = 3
"""Looks in a row that found records while Faust delivered nothing at all: then it is dead, whatever it says."""
START_LIMIT_S = 120.0
"""A membership that has not been assigned anything, not even nothing, by then is replaced."""
STOP_LIMIT_S = 20.0
WAITING_STOP_S = 1.0
"""The same while a batch waits for a store, a broker or a person: it comes again, nothing is gained by waiting."""
RETRY_FIRST_S = 1.0
RETRY_MAX_S = 15.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Delivered:
    """An event with its record."""

    event: Any
    record: LogRecord
    size: int


class Inbox:
    """Events between agent and committer, bounded by number and by bytes; one may always be in it, however large."""

    def __init__(self) -> None:
        self._waiting: deque[Delivered] = deque()
        self._size = 0
        self._changed = asyncio.Condition()

    async def put(self, delivered: Delivered) -> None:
        """Add an event, after waiting for room."""
        async with self._changed:
            await self._changed.wait_for(self._has_room)
            self._waiting.append(delivered)
            self._size += delivered.size
            self._changed.notify_all()

    async def take(self, wait_s: float) -> list[Delivered]:
        """Return the next events, at most a batch; none when nothing came within `wait_s`."""
        taken: list[Delivered] = []
        try:
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait_for(lambda: bool(self._waiting))
                size = 0
                while self._waiting and len(taken) < write_worker.EVENTS_MAX and size < BATCH_BYTES_MAX:
                    taken.append(self._waiting.popleft())
                    size += taken[-1].size
                self._size -= size
                self._changed.notify_all()
        except TimeoutError:
            return taken
        return taken

    def _has_room(self) -> bool:
        return not self._waiting or (len(self._waiting) < INBOX_EVENTS_MAX and self._size < INBOX_BYTES_MAX)


class FaustWorker:
    """Runs the write worker on what Faust delivers, until it is stopped."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        worker: WriteWorker,
        *,
        commit_interval_s: float | None = None,
        check_s: float = CHECK_S,
        on_assigned: "AssignmentListener | None" = None,
    ) -> None:
        """Consume `topic`; `commit_interval_s` is Faust's own by default.

        `on_assigned` is called with every assignment that this worker may begin to work on.
        """
        self._settings = settings
        self._topic = topic
        self._worker = worker
        self._commit_interval_s = commit_interval_s
        self._check_s = check_s
        self._on_assigned = on_assigned or (lambda _partitions: None)
        self._app: DocumentsApp | None = None
        self.partitions: frozenset[int] | None = None
        """The partitions assigned to us; None while we are no member of the group."""
        self.broker_clock = BrokerClock()
        self._ended: str | None = None

    @property
    def waiting(self) -> str | None:
        """What is waited for, such as the broker or the store; None while records flow."""
        joining = self._app.waiting if self._app is not None else None
        return joining or self._ended or self._worker.waiting

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop` is set; then finish the batch in hand, within a bound.

        Raises:
            FatalError: going on would be wrong, or Faust has stopped delivering without an error.
        """
        pause_s = RETRY_FIRST_S
        while not stop.is_set():
            started = time.monotonic()
            try:
                await self._membership(stop)
            except (errors.TransientError, KafkaError) as error:
                self._ended = str(error) or type(error).__name__
                if time.monotonic() - started > RETRY_MAX_S:
                    pause_s = RETRY_FIRST_S
                log.warning("kafka_membership_ended", reason=self._ended, pause_s=pause_s)
                await _wait(stop, pause_s)
                pause_s = min(pause_s * 2, RETRY_MAX_S)

    async def _membership(self, stop: asyncio.Event) -> None:
        """Join the group, work until `stop` or until the membership ends by itself, and leave."""
        from facetline.streams.kafka import faust_app  # half a second that other commands need not spend

        given = {} if self._commit_interval_s is None else {"commit_interval_s": self._commit_interval_s}
        app = self._app = faust_app.DocumentsApp(self._settings, self._topic, **given)
        committer = _Committer(app, self._worker, self._check_s, self._is_assigned, self.broker_clock)
        app.listen(committer.deliver, committer.assign)
        parts: list[tuple[str, Awaitable[Any]]] = [
            ("stop", stop.wait()),
            ("committer", committer.run(stop)),
            ("faust", self._live(app)),
        ]
        tasks = [asyncio.ensure_future(part) for _, part in parts]
        for task, (name, _) in zip(tasks, parts, strict=True):
            if isinstance(task, asyncio.Task):
                task.set_name(f"kafka-{name}")
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():  # the committer ends by itself, after the batch in hand
                await asyncio.wait(tasks[1:2], timeout=STOP_LIMIT_S if self._worker.waiting is None else WAITING_STOP_S)
        finally:
            self.partitions = None
            await _end(tasks)
            await _leave(app)
        for task in tasks:
            if task.done() and not task.cancelled() and (failure := task.exception()) is not None:
                raise failure

    def _is_assigned(self, partitions: frozenset[int]) -> None:
        self.partitions = partitions
        self._ended = None
        log.info("partitions_assigned", topic=self._topic, partitions=sorted(partitions))
        self._on_assigned(partitions)

    async def _live(self, app: "DocumentsApp") -> None:
        """Start Faust, and return only by an error: when it has stopped or crashed."""
        try:
            async with asyncio.timeout(START_LIMIT_S):
                await app.start()
        except TimeoutError as error:
            raise errors.BrokerUnavailable(
                f"no membership in group {self._settings.group_id} within {START_LIMIT_S:g} s"
            ) from error
        await app.wait_until_stopped()
        reason = app.crash_reason
        raise errors.BrokerUnavailable(f"Faust stopped: {reason or 'without a reason'}") from reason


class _Committer:
    """Takes what is delivered and has it applied; the only one that talks to the write worker."""

    def __init__(
        self, app: "DocumentsApp", worker: WriteWorker, check_s: float, on_assigned: Any, clock: BrokerClock
    ) -> None:
        self._app = app
        self._worker = worker
        self._check_s = check_s
        self._on_assigned = on_assigned
        self._clock = clock
        self._inbox = Inbox()
        self._assigned: frozenset[int] | None = None
        self._delivered = 0

    async def deliver(self, event: Any) -> None:
        """Take an event from the agent; waits while the inbox is full."""
        message = event.message
        headers = tuple((name, value or b"") for name, value in message.headers or ())
        stamp = None if message.timestamp is None else round(message.timestamp * 1000)
        record = LogRecord(message.partition, message.offset, Raw(message.key, message.value, headers, stamp))
        size = len(message.key or b"") + len(message.value or b"") + sum(len(value) for _, value in headers)
        self._delivered += 1
        if stamp is not None:
            self._clock.note(stamp / 1000)
        await self._inbox.put(Delivered(event, record, size))

    def assign(self, partitions: frozenset[int]) -> None:
        """Take note of an assignment: it is acted on between two batches, never inside the rebalance."""
        self._assigned = partitions

    async def run(self, stop: asyncio.Event) -> None:
        """Apply until `stop` is set; the batch in hand is finished."""
        next_check = time.monotonic() + self._check_s
        silent, delivered = 0, 0
        while not stop.is_set():
            await self._take_assignment()
            batch = await self._inbox.take(min(0.5, self._check_s))
            if batch:
                await self._worker.handle([one.record for one in batch])
                self._acknowledge(batch)
            await self._start_over()
            if time.monotonic() >= next_check:
                found = await self._worker.check_idle()
                await self._start_over()
                silent = silent + 1 if found and self._delivered == delivered else 0
                if silent >= SILENT_CHECKS_MAX:
                    raise errors.FatalError(
                        f"Faust delivers nothing although there are records, {silent} looks in a row; start the"
                        " worker again"
                    )
                delivered = self._delivered
                next_check = time.monotonic() + self._check_s

    async def _take_assignment(self) -> None:
        partitions, self._assigned = self._assigned, None
        if partitions is not None:
            await self._worker.assigned(partitions)
            self._on_assigned(partitions)

    async def _start_over(self) -> None:
        """Have Faust deliver from where the store stands, where it could not know: it drops offsets below its own."""
        for partition, offset in self._worker.take_restarts().items():
            log.warning("delivery_started_over", partition=partition, offset=offset)
            try:
                async with asyncio.timeout(self._check_s):
                    await self._app.start_over_at(partition, offset)
            except (KafkaError, TimeoutError, AssertionError, ValueError) as error:
                # Not ours any more, or the broker is away: the next look finds what is still not delivered.
                log.warning("delivery_not_started_over", partition=partition, error=repr(error))

    def _acknowledge(self, batch: Sequence[Delivered]) -> None:
        for one in batch:
            # Stopped partitions are not acknowledged, so that lag tools show them too.
            if self._app.is_current(one.event) and one.record.partition not in self._worker.stopped:
                one.event.ack()


async def _leave(app: "DocumentsApp") -> None:
    try:
        async with asyncio.timeout(STOP_LIMIT_S):
            await app.stop()
    except TimeoutError as error:
        raise errors.ThreadsStuck(f"Faust did not stop within {STOP_LIMIT_S:g} s") from error


async def _end(tasks: Sequence["asyncio.Future[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=STOP_LIMIT_S)


async def _wait(stop: asyncio.Event, limit_s: float) -> None:
    try:
        async with asyncio.timeout(limit_s):
            await stop.wait()
    except TimeoutError:
        return
