"""What tests do to Kafka topics: fill, truncate, make anew, and see what stands in them and what a group committed."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import KafkaError
from aiokafka.record import default_records
from polling import eventually

from facetline.facets import collections
from facetline.facets.collections import definition_of
from facetline.facets.questions import choice
from facetline.storage import definitions
from facetline.storage.db.engine import Tx
from facetline.storage.log.events import Raw
from facetline.streams.kafka import clients, topics
from facetline.streams.settings import KafkaSettings
from facetline.streams.wire import codec


def activate(tx: Tx) -> None:
    """Make the collection `tickets/*` active, with a title as its state."""
    collection = collections.define_collection(
        name="tickets",
        pattern="tickets/*",
        evaluator="fake",
        state={"title": "string"},
        questions={"topic": choice(ask="What is it about?", options={"billing": "Money", "other": "Anything else"})},
    )
    identity = {"kind": "fake", "model": "fake", "parameters": {}, "version": "1", "validator": "1"}
    made = definition_of(collection, evaluator_name="fake", kind="fake", model="fake", identity=identity)
    definitions.activate(tx, [made])


def write(uri: str, body: str, event_id: str | None = None) -> codec.Message:
    """A valid write; its id is the uri and the body unless told otherwise."""
    return codec.encode_write(uri, body=body, state=None, source="test", event_id=event_id or f"{uri}:{body}")


async def make(bootstrap: str, prefix: str, *, partitions: int = 1, **given: object) -> KafkaSettings:
    """Make the three topics under a prefix; return the settings for them."""
    settings = KafkaSettings(
        bootstrap_servers=bootstrap, topic_prefix=prefix, group_id=prefix, partitions=partitions, **given
    )
    await topics.create_topics(settings)
    return settings


@asynccontextmanager
async def admin(settings: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    """A started admin client."""
    client = AIOKafkaAdminClient(**clients.admin_arguments(settings))
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def names(bootstrap: str) -> set[str]:
    """Every topic of the broker."""
    async with admin(KafkaSettings(bootstrap_servers=bootstrap)) as client:
        return set(await client.list_topics())


@asynccontextmanager
async def producing(settings: KafkaSettings, **own: object) -> AsyncIterator[aiokafka.AIOKafkaProducer]:
    """A started producer."""
    producer = aiokafka.AIOKafkaProducer(**clients.producer_arguments(settings, **own))
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def fill(
    settings: KafkaSettings,
    messages: Sequence[codec.Message],
    *,
    topic: str | None = None,
    partition: int | None = None,
) -> None:
    """Produce to the documents topic (or another), all acknowledged when this returns."""
    into = topic or topics.topic_names(settings.topic_prefix).documents
    async with producing(settings) as producer:
        sent = [
            await producer.send(into, one.value, one.key, partition=partition, headers=list(one.headers))
            for one in messages
        ]
        await asyncio.gather(*sent)


ODD_NAME = b"\xff\xfe\xfd\xfcODD"
"""A header name that is not UTF-8; aiokafka sends no such, so it is put into a finished batch."""


async def odd_header(settings: KafkaSettings, compression: str | None = None) -> None:
    """Produce three records in one batch to partition 0 of the documents topic, the second with `ODD_NAME`."""
    into = topics.topic_names(settings.topic_prefix).documents
    async with producing(settings, enable_idempotence=False) as producer:
        builder = default_records._DefaultRecordBatchBuilderPy(
            magic=2,
            compression_type=1 if compression else 0,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=10_000,
        )
        for offset, name in enumerate(("plain", _Odd("stands in"), "plain")):
            value = str(offset + 1).encode()
            builder.append(offset, 1_000, b"tickets/odd", value, [(name, b"v")])
        batch = producer.create_batch()
        batch._builder = builder
        batch._relative_offset = 3
        await (await producer.send_batch(batch, into, partition=0))


class _Odd(str):
    __slots__ = ()

    def encode(self, *_given: object) -> bytes:
        return ODD_NAME


async def transaction(settings: KafkaSettings, messages: Sequence[codec.Message], *, commit: bool) -> None:
    """Produce to the documents topic in one transaction, commit or abort it, and wait for its markers: a broker writes
    them after it has said that the transaction has ended.
    """
    into = topics.topic_names(settings.topic_prefix).documents
    last: dict[aiokafka.TopicPartition, int] = {}
    async with producing(settings, transactional_id=f"{into}.test") as producer:
        await producer.begin_transaction()
        for one in messages:
            sent = await producer.send_and_wait(into, one.value, one.key, headers=list(one.headers))
            last[aiokafka.TopicPartition(into, sent.partition)] = sent.offset
        await (producer.commit_transaction() if commit else producer.abort_transaction())
    consumer = aiokafka.AIOKafkaConsumer(**clients.consumer_arguments(settings, group_id=None))
    await consumer.start()

    async def marked() -> bool:
        stable = await consumer.end_offsets(list(last))
        return all(stable[place] > offset + 1 for place, offset in last.items())

    try:
        await eventually(marked, what="the transaction's markers are there")
    finally:
        await consumer.stop()


async def truncate(settings: KafkaSettings, before: int, *, partition: int = 0) -> None:
    """Delete what the documents topic has below an offset."""
    place = aiokafka.TopicPartition(topics.topic_names(settings.topic_prefix).documents, partition)
    async with admin(settings) as client:
        await client.delete_records({place: RecordsToDelete(before)})


async def make_anew(settings: KafkaSettings) -> None:
    """Delete the documents topic and make it again, empty."""
    name = topics.topic_names(settings.topic_prefix).documents
    async with admin(settings) as client:
        await client.delete_topics([name])
        deadline = time.monotonic() + 20
        while not any(report.created for report in await topics.create_topics(settings)):
            if time.monotonic() > deadline:
                raise AssertionError(f"{name} was not deleted in time")


async def committed(settings: KafkaSettings) -> dict[int, int]:
    """What the group has committed of the documents topic, by partition."""
    async with admin(settings) as client:
        try:
            found = await client.list_consumer_group_offsets(settings.group_id)
        except KafkaError:
            return {}
    return {place.partition: said.offset for place, said in found.items() if said.offset >= 0}


async def contents(
    settings: KafkaSettings, topic: str, count: int, *, deadline_s: float = 20.0
) -> list[aiokafka.ConsumerRecord]:
    """Read committed records of a topic from its start until there are `count`; fewer when the time is up."""
    arguments = clients.consumer_arguments(settings, group_id=None, auto_offset_reset="earliest")
    consumer = aiokafka.AIOKafkaConsumer(topic, **arguments)
    await consumer.start()
    found: list[aiokafka.ConsumerRecord] = []
    deadline = time.monotonic() + deadline_s
    try:
        while len(found) < count and time.monotonic() < deadline:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += records
    finally:
        await consumer.stop()
    return found


def raw(message: codec.Message, timestamp_ms: int = 1_000) -> Raw:
    """A message as a log would have it."""
    return Raw(message.key, message.value, message.headers, timestamp_ms)
