"""The Kafka that other tests stand on: a real node, which makes topics only when told and survives a kill.

Method: plain aiokafka against the fixtures, nothing of the product.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiokafka
import kafka_broker
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from polling import eventually

pytestmark = pytest.mark.kafka


@asynccontextmanager
async def admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """A connected admin client."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def produce(bootstrap: str, topic: str, value: bytes) -> int:
    """Send one record and return its offset."""
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, request_timeout_ms=5000)
    await producer.start()
    try:
        return int((await producer.send_and_wait(topic, value)).offset)
    finally:
        await producer.stop()


async def consume(bootstrap: str, topic: str) -> bytes:
    """Return the value of a topic's first record."""
    consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        return bytes((await asyncio.wait_for(consumer.getone(), 20)).value)
    finally:
        await consumer.stop()


async def test_topic_is_made_written_and_read(kafka_bootstrap: str, topic_prefix: str) -> None:
    """A topic made with 3 partitions has them, and gives back what was produced to it."""
    async with admin(kafka_bootstrap) as client:
        await client.create_topics([NewTopic(topic_prefix, num_partitions=3, replication_factor=1)])
        described = await client.describe_topics([topic_prefix])
    offset = await produce(kafka_bootstrap, topic_prefix, b"hello")
    value = await consume(kafka_bootstrap, topic_prefix)

    assert len(described[0]["partitions"]) == 3
    assert offset == 0
    assert value == b"hello"


async def test_group_commits_are_kept(kafka_bootstrap: str, topic_prefix: str) -> None:
    """A consumer group's committed offset is there for its next member: the offsets topic works on a single node."""
    async with admin(kafka_bootstrap) as client:
        await client.create_topics([NewTopic(topic_prefix, num_partitions=1, replication_factor=1)])
    await produce(kafka_bootstrap, topic_prefix, b"one")
    partition = aiokafka.TopicPartition(topic_prefix, 0)
    consumer = aiokafka.AIOKafkaConsumer(
        topic_prefix, bootstrap_servers=kafka_bootstrap, group_id=topic_prefix, enable_auto_commit=False
    )
    await consumer.start()
    await consumer.commit({partition: 1})
    await consumer.stop()

    async with admin(kafka_bootstrap) as client:
        offsets = await client.list_consumer_group_offsets(topic_prefix)

    assert offsets[partition].offset == 1


async def test_topics_are_not_made_by_accident(kafka_bootstrap: str, topic_prefix: str) -> None:
    """Producing to a topic that nobody made fails and makes none."""
    with pytest.raises(KafkaError):
        await produce(kafka_bootstrap, topic_prefix, b"lost")
    async with admin(kafka_bootstrap) as client:
        topics = await client.list_topics()

    assert topic_prefix not in topics


async def test_transactions_work_on_the_single_node(kafka_bootstrap: str, topic_prefix: str) -> None:
    """A transactional producer can commit: the transaction log needs no more than the one node."""
    async with admin(kafka_bootstrap) as client:
        await client.create_topics([NewTopic(topic_prefix, num_partitions=1, replication_factor=1)])
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=kafka_bootstrap, transactional_id=topic_prefix)
    await producer.start()
    async with producer.transaction():
        await producer.send_and_wait(topic_prefix, b"together")
    await producer.stop()

    assert await consume(kafka_bootstrap, topic_prefix) == b"together"


@pytest.mark.slow
async def test_killed_node_comes_back_with_its_records(broker: kafka_broker.Broker, topic_prefix: str) -> None:
    """A node that was killed and started again has the same address and the acknowledged records."""
    before, pid = broker.bootstrap, broker.pid
    async with admin(before) as client:
        await client.create_topics([NewTopic(topic_prefix, num_partitions=1, replication_factor=1)])
    await produce(before, topic_prefix, b"kept")

    await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.start)

    assert broker.bootstrap == before
    assert broker.pid != pid
    assert await consume(before, topic_prefix) == b"kept"


@pytest.mark.slow
async def test_paused_node_answers_again_when_resumed(broker: kafka_broker.Broker, topic_prefix: str) -> None:
    """While the node is paused no write is acknowledged; after `resume` writes are."""
    async with admin(broker.bootstrap) as client:
        await client.create_topics([NewTopic(topic_prefix, num_partitions=1, replication_factor=1)])
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, request_timeout_ms=20_000)
    await producer.start()
    await producer.send_and_wait(topic_prefix, b"before")

    broker.pause()
    sent = await producer.send(topic_prefix, b"meanwhile")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(sent), 1)
    broker.resume()

    assert await eventually(sent.done, deadline_s=20)
    assert sent.result().offset == 1
    await producer.stop()


@pytest.mark.slow
async def test_stop_ends_the_node(broker: kafka_broker.Broker) -> None:
    """After `stop` nobody listens any more, though the node was paused; stopping again is no error."""
    host, _, port = broker.bootstrap.rpartition(":")
    broker.pause()

    await asyncio.to_thread(broker.stop)
    await asyncio.to_thread(broker.stop)

    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, int(port))
