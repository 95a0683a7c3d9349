"""Producing document events: acknowledged before their deadline, or never applied.

A write is sent once. The client below sends it again by itself while the broker is away, and it may land long after
its caller has given up: the deadline that it carries, in the broker's time, then makes the write worker reject it. So
"in doubt" is reported only when the broker's clock has passed the deadline; before that, the write could still count.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiokafka
import structlog
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)

from facetline.facets import errors
from facetline.facets.documents import EventReason
from facetline.streams.kafka import clients, connection_check
from facetline.streams.settings import KafkaSettings
from facetline.streams.wire.codec import Message

DEADLINE_S = 5.0
MARGIN_MS = 250
"""Added to the wait for an acknowledgement: our idea of the broker's clock is off by about a round trip."""
CLOCK_OFF_MS = 1_000
"""A clock that is further off than this is named in the error."""
STOP_S = 5.0
LOG_APPEND_TIME = 1

_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
_REFUSED = (ClusterAuthorizationFailedError, TopicAuthorizationFailedError, InvalidTopicError)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Where the broker put a record; `timestamp_ms` is its clock when the topic is stamped by it."""

    partition: int
    offset: int
    timestamp_ms: int


class Producer:
    """Sends document events and waits for their acknowledgement. Connects when first needed, and again after a failure.

    Records of one key go to one partition (murmur2, as Java's producer does), in the order of the calls.
    """

    def __init__(
        self, settings: KafkaSettings, *, deadline_s: float = DEADLINE_S, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._deadline_s = deadline_s
        self._clock = clock
        self._connecting = asyncio.Lock()
        self._client: aiokafka.AIOKafkaProducer | None = None
        self._closing: set[asyncio.Task[bool]] = set()
        self._stopped = False
        self.clock_offset_ms = 0
        """The broker's clock minus ours, as the acknowledgements showed it; 0 before the first."""

    def deadline_ms(self) -> int:
        """Return the deadline, in broker time, of a write that starts now."""
        return self._broker_ms() + round(self._deadline_s * 1000)

    async def start(self) -> None:
        """Connect.

        Raises:
            BrokerUnavailable: no broker answered within the deadline; sending tries again.
        """
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._connected()
        except (KafkaError, OSError, TimeoutError) as error:
            # Distinguished here, once: of hundreds of sends that fail together none needs to look again.
            raise self._unavailable(error, found=await connection_check.why_unreachable(self._settings)) from error

    async def stop(self) -> None:
        """Close the connection, after what was sent is acknowledged or a few seconds have passed."""
        self._stopped = True
        async with self._connecting:
            self._replace()
        await asyncio.gather(*self._closing)

    async def send(self, message: Message, topic: str, *, deadline_ms: int | None = None) -> Acknowledged:
        """Send one record and wait for its acknowledgement.

        Args:
            message: what to send; with a deadline in its headers, the same as `deadline_ms`.
            topic: where to.
            deadline_ms: in broker time, from `deadline_ms()`; by default that of a write which starts now.

        Raises:
            BrokerUnavailable: it was not sent: no broker or no such topic answered before the deadline.
            WriteInDoubt: it was not acknowledged, and the deadline has passed in the broker's time. A message without a
                deadline in its headers (`deadline_ms` None) may be applied later all the same.
            InvalidEvent: `too_large`, it was not sent; or `expired`, it will be rejected.
        """
        deadline = self.deadline_ms() if deadline_ms is None else deadline_ms
        dated = deadline_ms is not None
        sent_ms, future = await self._hand_over(message, topic, deadline)
        future.add_done_callback(_looked_at)
        while not future.done() and (left_s := self._left_s(deadline)) > 0:
            await asyncio.wait({future}, timeout=left_s)
        if not future.done():
            raise self._in_doubt(topic, dated=dated)
        failure = future.exception()
        if failure is not None:
            await self._judge(failure, deadline)
            raise self._in_doubt(topic, dated=dated) from failure
        acknowledged = self._acknowledged(future.result(), sent_ms)
        if dated and acknowledged.timestamp_ms > deadline:
            raise self._expired(acknowledged.timestamp_ms - deadline)
        return acknowledged

    async def _hand_over(self, message: Message, topic: str, deadline: int) -> tuple[int, asyncio.Future[Any]]:
        """Give the record to the client; until this returns, nothing has been sent."""
        try:
            async with asyncio.timeout(max(self._left_s(deadline), 0)):
                client = await self._connected()
                sent_ms = self._now_ms()
                future = await client.send(topic, key=message.key, value=message.value, headers=list(message.headers))
                return sent_ms, future
        except MessageSizeTooLargeError as error:
            raise _too_large() from error
        except UnicodeEncodeError as error:  # of a dead letter that another client wrote
            raise errors.InvalidEvent(
                EventReason.INVALID_TEXT, "a header's name is not UTF-8, so it cannot be sent"
            ) from error
        except (KafkaError, OSError, TimeoutError) as error:
            if isinstance(error, KafkaError) and not error.retriable:
                self._replace()
            raise self._unavailable(error, topic) from error

    async def _judge(self, failure: BaseException, deadline: int) -> None:
        """Raise when the broker refused the record permanently; else wait until it can no longer count."""
        if isinstance(failure, _TOO_LARGE):
            raise _too_large() from failure
        if isinstance(failure, _REFUSED):
            raise self._unavailable(failure) from failure
        self._replace()
        await asyncio.sleep(max(self._left_s(deadline), 0))

    def _acknowledged(self, metadata: Any, sent_ms: int) -> Acknowledged:
        if metadata.timestamp_type == LOG_APPEND_TIME:
            self._learn(metadata.timestamp, sent_ms, self._now_ms())
        return Acknowledged(metadata.partition, metadata.offset, metadata.timestamp)

    def _learn(self, stamped_ms: int, sent_ms: int, acknowledged_ms: int) -> None:
        """Take over what an acknowledgement shows: the broker stamped it somewhere between sending and hearing of it.

        An estimate that fits stays, so a slow acknowledgement does not spoil it; another one moves to the nearest that
        does.
        """
        lowest, highest = stamped_ms - acknowledged_ms, stamped_ms - sent_ms
        self.clock_offset_ms = min(max(self.clock_offset_ms, lowest), highest)

    async def _connected(self) -> aiokafka.AIOKafkaProducer:
        async with self._connecting:
            if self._stopped:
                raise errors.BrokerUnavailable("the producer has been stopped")
            if self._client is None:
                client = aiokafka.AIOKafkaProducer(**clients.producer_arguments(self._settings))
                try:
                    await client.start()
                except BaseException:
                    await clients.stop_within(client, STOP_S)
                    raise
                self._client = client
            return self._client

    def _replace(self) -> None:
        """Make the next send reconnect: after some errors aiokafka's client refuses everything."""
        client, self._client = self._client, None
        if client is None:
            return
        closing = asyncio.create_task(clients.stop_within(client, STOP_S), name="close-kafka-producer")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _left_s(self, deadline: int) -> float:
        return (deadline + MARGIN_MS - self._broker_ms()) / 1000

    def _broker_ms(self) -> int:
        return self._now_ms() + self.clock_offset_ms

    def _now_ms(self) -> int:
        return round(self._clock() * 1000)

    def _unavailable(self, error: BaseException, topic: str | None = None, found: str = "") -> errors.BrokerUnavailable:
        message = found or str(error) or f"no answer within {self._deadline_s:g} s"
        about = f" about topic {topic}" if topic else ""
        return errors.BrokerUnavailable(
            f"Kafka at {self._settings.bootstrap_servers} does not answer{about}, nothing was written: {message}"
        )

    def _in_doubt(self, topic: str, *, dated: bool) -> errors.WriteInDoubt:
        later = (
            "the write will not be applied later: try again with the same id"
            if dated
            else "what was sent may still be applied: run the same again, what has arrived is left as it is"
        )
        return errors.WriteInDoubt(f"no acknowledgement from {topic} within {self._deadline_s:g} s; {later}")

    def _expired(self, late_ms: int) -> errors.InvalidEvent:
        """Say what a worker will say, and why: a clock that is far behind makes every first write too late."""
        clock = ""
        if self.clock_offset_ms > CLOCK_OFF_MS:
            clock = f"; this machine's clock is {self.clock_offset_ms / 1000:.1f} s behind the broker's, set it"
        return errors.InvalidEvent(
            EventReason.EXPIRED, f"appended to the log {late_ms} ms after its deadline; write it again{clock}"
        )


def _too_large() -> errors.InvalidEvent:
    return errors.InvalidEvent(
        EventReason.TOO_LARGE, f"the record is larger than the {clients.RECORD_BYTES_MAX} bytes that topics take"
    )


def _looked_at(future: asyncio.Future[Any]) -> None:
    """Keep asyncio from complaining about a failure that came after its caller had gone."""
    if not future.cancelled():
        future.exception()
