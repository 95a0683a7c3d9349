"""The Faust app that listens to the documents topic: raw bytes, nothing acknowledged by itself, nothing else started.

Where this differs from a plain Faust app: the consumer is made from our own settings and reads only what was committed;
a failed offset commit is tried again and never ends the worker; no producer, no web server, no leader topic, no
folders.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

import aiokafka
import faust
import structlog
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata
from faust.app.base import BootStrategy
from faust.transport import base
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, EventT

from facetline.streams.kafka import clients
from facetline.streams.settings import KafkaSettings

SESSION_S = 6.0
"""A worker that was killed holds its partitions for this long; Kafka's `group.min.session.timeout.ms` is 6 s."""
HEARTBEAT_S = SESSION_S / 3
REBALANCE_S = 30.0
"""How long a living member may take to join again; nothing in the way of it waits for a store."""
POLL_LIMIT_S = 24 * 3600.0
"""A store that is away stops the polling; that must not cost the partitions. Whether they move is our own watch."""
COMMIT_INTERVAL_S = 2.8
METADATA_S = 10.0
"""A topic that was created again is seen within this time; aiokafka's own default is five minutes."""
BUFFER_EVENTS = 64
"""Events that Faust holds before its agent; of the largest size they would be 256 MB."""
STOP_S = 5.0
RETRY_FIRST_S = 0.5
RETRY_MAX_S = 5.0

log = structlog.get_logger(__name__)

Listener = Callable[[EventT[bytes]], Awaitable[None]]
AssignmentListener = Callable[[frozenset[int]], None]


class _Boot(BootStrategy):
    """Start the consumer and what feeds the agent; leave out producer, leader election, replies and web."""

    enable_web = False

    def kafka_producer(self) -> Iterable[Any]:
        return ()

    def kafka_consumer(self) -> Iterable[Any]:
        return (self.app.consumer,)


class _NoProducer(base.Producer):
    """Faust asks its producer to flush before it commits; we never produce through Faust."""

    async def flush(self) -> None:
        return


class _ConsumerThread(driver.AIOKafkaConsumerThread):
    """The thread that polls and keeps the membership."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._to_commit: dict[TP, int] = {}

    async def on_start(self) -> None:
        """Connect, as long as it takes: an error here would end the thread with a traceback on the terminal."""
        app = cast("DocumentsApp", self.app)
        pause_s = RETRY_FIRST_S
        while not self.should_stop:
            consumer = self._create_consumer(loop=self.thread_loop)
            try:
                self.time_started = time.monotonic()
                await consumer.start()
            except KafkaError as error:
                await clients.stop_within(consumer, STOP_S)
                app.waiting = str(error) or type(error).__name__
                log.warning("kafka_away", group=app.kafka.group_id, reason=app.waiting, pause_s=pause_s)
                await self.sleep(pause_s)
                pause_s = min(pause_s * 2, RETRY_MAX_S)
            else:
                self._consumer = consumer
                app.waiting = None
                return

    def _create_worker_consumer(self, transport: Any) -> aiokafka.AIOKafkaConsumer:
        app = cast("DocumentsApp", transport.app)
        self._assignor = RoundRobinPartitionAssignor
        return clients.make_consumer(
            app.kafka,
            group_id=app.kafka.group_id,
            auto_offset_reset="earliest",
            partition_assignment_strategy=(RoundRobinPartitionAssignor,),
            session_timeout_ms=round(SESSION_S * 1000),
            heartbeat_interval_ms=round(HEARTBEAT_S * 1000),
            rebalance_timeout_ms=round(REBALANCE_S * 1000),
            request_timeout_ms=round(REBALANCE_S * 1000) + clients.REQUEST_MS,  # a join waits for the others
            max_poll_interval_ms=round(POLL_LIMIT_S * 1000),
            metadata_max_age_ms=round(METADATA_S * 1000),
        )

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """Commit for the lag tools' sake: Faust would crash when it fails, we say it again with the next commit."""
        self._to_commit.update(offsets)
        assigned = self.assignment()
        fields = {
            driver.ensure_aiokafka_TP(place): OffsetAndMetadata(offset, "")
            for place, offset in self._to_commit.items()
            if place in assigned
        }
        self._to_commit = {place: offset for place, offset in self._to_commit.items() if place in assigned}
        try:
            if fields:
                await self._ensure_consumer().commit(fields)
        except KafkaError as error:
            log.warning("offset_commit_failed", error=str(error) or type(error).__name__)
            return False
        self._to_commit.clear()
        return True

    async def on_thread_stop(self) -> None:
        """End polling and leave the group, within a bound: the broker may be away."""
        await super(driver.AIOKafkaConsumerThread, self).on_thread_stop()
        if self._consumer is not None:
            await clients.stop_within(self._consumer, STOP_S)


class _Consumer(driver.Consumer):
    def _new_consumer_thread(self) -> _ConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def start_over_at(self, place: TP, offset: int) -> None:
        """Deliver from `offset` on, also backwards, and forget what was acknowledged of this partition."""
        for kept in (self._gap, self._acked, self._acked_index, self._committed_offset):
            kept.pop(place, None)
        await self.seek_wait({place: offset})


class _Transport(driver.Transport):
    Consumer = _Consumer
    Producer = _NoProducer


class DocumentsApp(faust.App):
    """One membership of the consumer group; replaced after it has ended."""

    BootStrategy = _Boot

    def __init__(self, kafka: KafkaSettings, topic: str, *, commit_interval_s: float = COMMIT_INTERVAL_S) -> None:
        self.kafka = kafka
        self.waiting: str | None = None
        """What the consumer waits for, such as the broker."""
        super().__init__(
            kafka.group_id,
            broker="kafka://",  # not used: the consumer is made from our own settings
            autodiscover=False,
            broker_commit_interval=commit_interval_s,
            broker_heartbeat_interval=HEARTBEAT_S,
            broker_max_poll_interval=POLL_LIMIT_S,
            broker_rebalance_timeout=REBALANCE_S,
            broker_request_timeout=REBALANCE_S + clients.REQUEST_MS / 1000,
            broker_session_timeout=SESSION_S,
            stream_buffer_maxsize=BUFFER_EVENTS,
            stream_wait_empty=False,
            table_standby_replicas=0,
            topic_allow_declare=False,
            topic_disable_leader=True,
            web_enabled=False,
        )
        self._documents = self.topic(
            topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw", acks=True
        )
        self._name = topic

    def listen(self, listener: Listener, on_assigned: AssignmentListener) -> None:
        """Hand every event to `listener`, one at a time, and every assignment to `on_assigned`.

        Neither may raise. Events are acknowledged by the function that got them.
        """

        async def documents(stream: Any) -> None:
            async for event in stream.noack().events():
                await listener(event)

        self.agent(self._documents, concurrency=1, name="documents")(documents)

        async def assigned(_app: Any, places: Iterable[TP], **_given: Any) -> None:
            on_assigned(frozenset(place.partition for place in places if place.topic == self._name))

        async def revoked(_app: Any, _places: Iterable[TP], **_given: Any) -> None:
            on_assigned(frozenset())

        # Signals hold their receivers weakly.
        self._receivers = (assigned, revoked)
        cast("Any", self.on_partitions_assigned).connect(assigned)
        cast("Any", self.on_partitions_revoked).connect(revoked)

    async def start_over_at(self, partition: int, offset: int) -> None:
        """Have a partition delivered from `offset` on."""
        await cast("_Consumer", self.consumer).start_over_at(TP(self._name, partition), offset)

    def is_current(self, event: EventT[bytes]) -> bool:
        """Say whether an event is of the present assignment; acknowledging others says nothing to Kafka."""
        return bool(event.message.generation_id == self.consumer_generation_id)

    def _new_transport(self) -> Any:
        return _Transport(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        """Make none: there are no tables."""
