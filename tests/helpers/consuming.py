"""A worker of the Kafka runtime in the test's own process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from facetline.storage.db.engine import Store
from facetline.streams.kafka import consumer, log_reader, topics
from facetline.streams.kafka.consumer import FaustWorker
from facetline.streams.kafka.write_worker import WriteWorker
from facetline.streams.settings import KafkaSettings


@asynccontextmanager
async def consuming(
    settings: KafkaSettings, store: Store, *, partitions: int | None = None, **given: float
) -> AsyncIterator[tuple[FaustWorker, WriteWorker]]:
    """Apply what is written to the documents topic; the worker must end in order within its bound."""
    topic = topics.topic_names(settings.topic_prefix).documents
    log = log_reader.KafkaLog(settings, topic)
    writing = WriteWorker(store, log, topic, partitions=partitions)
    worker = FaustWorker(settings, topic, writing, **given)
    stop = asyncio.Event()
    running = asyncio.create_task(worker.run(stop))
    try:
        yield worker, writing
    finally:
        stop.set()
        await asyncio.wait_for(running, consumer.STOP_LIMIT_S * 2)
        await log.stop()
