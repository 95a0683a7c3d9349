"""Where the partitions of the documents topic begin and end: what lag is measured against.

A connection of its own, apart from the one that reads gaps: whoever watches never waits for the work, nor the work for
whoever watches.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

import aiokafka
from aiokafka.errors import KafkaError

from facets import errors
from streams import kafka_clients
from streams.settings import KafkaSettings

WAIT_S = 5.0
STOP_S = 2.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The first offset of a partition, and one above the last that readers of committed records can read."""

    first: int
    end: int


class LogEnds:
    """Asks the broker, one question at a time; connects when first asked, and again after a failure."""

    def __init__(self, settings: KafkaSettings, topic: str, *, wait_s: float = WAIT_S) -> None:
        self._settings = settings
        self._topic = topic
        self._wait_s = wait_s
        self._asking = asyncio.Lock()
        self._consumer: aiokafka.AIOKafkaConsumer | None = None

    async def ask(self, partitions: Iterable[int]) -> dict[int, Bounds]:
        """Return the bounds of these partitions.

        Raises:
            BrokerUnavailable: no answer in time.
        """
        places = [aiokafka.TopicPartition(self._topic, partition) for partition in partitions]
        async with self._asking:
            try:
                async with asyncio.timeout(self._wait_s):
                    consumer = await self._connected()
                    first = await consumer.beginning_offsets(places)
                    end = await consumer.end_offsets(places)
            except (KafkaError, OSError, TimeoutError) as error:
                await self._drop()
                said = str(error) or f"no answer within {self._wait_s:g} s"
                raise errors.BrokerUnavailable(
                    f"Kafka at {self._settings.bootstrap_servers} does not answer: {said}"
                ) from error
            except BaseException:
                await self._drop()
                raise
        return {place.partition: Bounds(int(first[place]), int(end[place])) for place in places}

    async def stop(self) -> None:
        """Close the connection."""
        async with self._asking:
            await self._drop()

    async def _connected(self) -> aiokafka.AIOKafkaConsumer:
        if self._consumer is None:
            consumer = kafka_clients.make_consumer(self._settings)
            try:
                await consumer.start()
            except BaseException:
                await kafka_clients.stop_within(consumer, STOP_S)
                raise
            self._consumer = consumer
        return self._consumer

    async def _drop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await kafka_clients.stop_within(consumer, STOP_S)
