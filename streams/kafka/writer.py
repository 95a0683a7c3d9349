"""Writes through Kafka: a document's events go to the documents topic, and a worker applies them.

The producer is opened at the first write, so that reading needs no broker.
"""

import asyncio
from collections.abc import Iterator, Sequence

from facetline.streams.kafka import topics
from facetline.streams.kafka.producer import Producer
from facetline.streams.settings import Settings
from facetline.streams.wire.outgoing import Sent

IN_FLIGHT_MAX = 500
"""Events of an import that are sent before their acknowledgements are waited for."""


class KafkaWriter:
    """Sends events and waits until the broker has them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = topics.topic_names(settings.kafka.topic_prefix).documents
        self._producer: Producer | None = None
        self._starting = asyncio.Lock()

    async def append(self, sent: Sequence[Sent]) -> None:
        """Send the events, those of one document in order; their outcomes come from the workers.

        Raises:
            WriteInDoubt: an event was not acknowledged before its deadline.
            BrokerUnavailable: no broker answers.
        """
        producer = await self._started()
        for together in _rounds(sent):
            sending = [producer.send(each.message, self._topic, deadline_ms=each.deadline_ms) for each in together]
            await asyncio.gather(*sending)

    async def deadline_ms(self) -> int | None:
        """Return when a write that begins now is too late, in the broker's time as far as it is known."""
        return (await self._started()).deadline_ms()

    async def close(self) -> None:
        """Send what is unsent and close."""
        if self._producer is not None:
            await self._producer.stop()
            self._producer = None

    async def _started(self) -> Producer:
        async with self._starting:  # the first writes may come together; a second producer would never be closed
            if self._producer is None:
                producer = Producer(self._settings.kafka, deadline_s=self._settings.write_deadline_s)
                await producer.start()
                self._producer = producer
            return self._producer


def _rounds(sent: Sequence[Sent]) -> Iterator[list[Sent]]:
    """Return the events in bounded rounds that hold each key once: what is sent side by side has no order."""
    together: dict[bytes | None, Sent] = {}
    for each in sent:
        if each.message.key in together or len(together) >= IN_FLIGHT_MAX:
            yield list(together.values())
            together = {}
        together[each.message.key] = each
    if together:
        yield list(together.values())
