"""Producing on a real broker: acknowledged before the deadline, or said to be in doubt after it and never applied."""

import asyncio
import time

import aiokafka
import kafka_broker
import pytest
from aiokafka.partitioner import murmur2

from facetline.facets import errors
from facetline.streams.kafka import clients, log_reader, topics
from facetline.streams.kafka.producer import Producer
from facetline.streams.settings import KafkaSettings
from facetline.streams.wire import codec

pytestmark = pytest.mark.kafka


async def _made(bootstrap: str, prefix: str, partitions: int = 1) -> tuple[KafkaSettings, str]:
    settings = KafkaSettings(bootstrap_servers=bootstrap, topic_prefix=prefix, partitions=partitions)
    await topics.create_topics(settings)
    return settings, topics.topic_names(prefix).documents


def _write(uri: str, event_id: str, deadline_ms: int | None = None) -> codec.Message:
    return codec.encode_write(uri, body="text", state=None, source="test", event_id=event_id, deadline_ms=deadline_ms)


async def test_a_record_is_acknowledged_with_its_place_and_the_brokers_time(kafka_bootstrap: str, topic_prefix: str):
    """The acknowledgement says where the record stands, and the log has it there, byte for byte."""
    settings, topic = await _made(kafka_bootstrap, topic_prefix)
    producer = Producer(settings)
    message = _write("tickets/t1", "e1")
    await producer.send(_write("tickets/t0", "e0"), topic)
    said = await producer.send(message, topic)
    await producer.stop()
    log = log_reader.KafkaLog(settings, topic)
    found = await log.read(0, said.offset, said.offset + 1, records_max=1)
    await log.stop()

    assert said.offset == 1
    assert found.records[0].raw.value == message.value
    assert found.records[0].raw.headers == message.headers
    assert found.records[0].raw.timestamp_ms == said.timestamp_ms


async def test_keys_are_spread_as_javas_producer_does(kafka_bootstrap: str, topic_prefix: str):
    """The partition is murmur2 of the key, so that every client of the topic agrees."""
    settings, topic = await _made(kafka_bootstrap, topic_prefix, partitions=5)
    producer = Producer(settings)
    keys = [f"tickets/t{number}" for number in range(20)]
    said = [await producer.send(_write(key, key), topic) for key in keys]
    await producer.stop()

    assert [one.partition for one in said] == [(murmur2(key.encode()) & 0x7FFFFFFF) % 5 for key in keys]


async def test_the_brokers_clock_is_learnt_from_acknowledgements(kafka_bootstrap: str, topic_prefix: str):
    """A node whose clock is 7 s slow gives its writes deadlines in the broker's time after one acknowledgement."""
    settings, topic = await _made(kafka_bootstrap, topic_prefix)
    producer = Producer(settings, clock=lambda: time.time() - 7)
    await producer.send(_write("tickets/t1", "e1"), topic)
    deadline = producer.deadline_ms()
    await producer.stop()

    assert abs(producer.clock_offset_ms - 7000) < 1000
    assert abs(deadline - (time.time() + 5) * 1000) < 1500


async def test_a_clock_that_is_behind_is_said_and_learned(kafka_bootstrap: str, topic_prefix: str):
    """A machine whose clock is far behind is told so at its first write, which is too late; the next one is not."""
    settings, topic = await _made(kafka_bootstrap, topic_prefix)
    producer = Producer(settings, clock=lambda: time.time() - 7)
    with pytest.raises(errors.InvalidEvent, match=r"clock is \S+ s behind") as refused:
        await producer.send(_write("tickets/t1", "e1"), topic, deadline_ms=producer.deadline_ms())
    after = await producer.send(_write("tickets/t1", "e1"), topic, deadline_ms=producer.deadline_ms())
    await producer.stop()

    assert refused.value.reason == "expired"
    assert after.offset > 0


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (codec.Message(b"k", b"x" * (clients.RECORD_BYTES_MAX + 1)), "too_large"),
        (codec.Message(b"k", b"x", (("\udcff", b"y"),)), "invalid_text"),
    ],
    ids=["too large", "header name"],
)
async def test_a_record_that_no_topic_takes_is_refused_before_it_is_sent(
    kafka_bootstrap: str, topic_prefix: str, message: codec.Message, reason: str
):
    """Too large, or a header's name that is not UTF-8: refused by name, and the producer goes on."""
    settings, topic = await _made(kafka_bootstrap, topic_prefix)
    producer = Producer(settings)
    with pytest.raises(errors.InvalidEvent) as refused:
        await producer.send(message, topic)
    after = await producer.send(_write("tickets/t1", "e1"), topic)
    await producer.stop()

    assert refused.value.reason == reason
    assert after.offset == 0


async def test_a_record_that_the_broker_refuses_is_refused_by_name(kafka_bootstrap: str, topic_prefix: str):
    """A topic with a smaller limit than ours refuses for good: no doubt is left, and the producer goes on."""
    settings, _ = await _made(kafka_bootstrap, topic_prefix)
    small = f"{topic_prefix}.small"
    admin = topics.AIOKafkaAdminClient(**clients.admin_arguments(settings))
    await admin.start()
    await admin.create_topics([topics.NewTopic(small, 1, 1, topic_configs={"max.message.bytes": "1000"})])
    await admin.close()
    producer = Producer(settings)
    with pytest.raises(errors.InvalidEvent) as refused:
        await producer.send(codec.Message(b"k", b"x" * 5000), small)
    after = await producer.send(_write("tickets/t1", "e1"), small)
    await producer.stop()

    assert refused.value.reason == "too_large"
    assert after.offset == 0


async def test_without_a_broker_nothing_is_written_and_that_is_said_in_time(topic_prefix: str):
    """A broker that is not there: unavailable within the deadline, at the start and at each send."""
    settings = KafkaSettings(bootstrap_servers="127.0.0.1:1", topic_prefix=topic_prefix)
    producer = Producer(settings, deadline_s=0.5)
    started = time.monotonic()
    with pytest.raises(errors.BrokerUnavailable):
        await producer.start()
    with pytest.raises(errors.BrokerUnavailable):
        await producer.send(_write("tickets/t1", "e1"), "topic")
    await producer.stop()

    assert time.monotonic() - started < 5


async def test_a_missing_topic_is_unavailable_within_the_deadline(kafka_bootstrap: str, topic_prefix: str):
    """A topic that nobody made is never waited for longer than a write may take."""
    producer = Producer(KafkaSettings(bootstrap_servers=kafka_bootstrap), deadline_s=1.0)
    started = time.monotonic()
    with pytest.raises(errors.BrokerUnavailable, match="nothing was written"):
        await producer.send(_write("tickets/t1", "e1"), f"{topic_prefix}.missing")
    await producer.stop()

    assert time.monotonic() - started < 8


@pytest.mark.slow
async def test_a_write_in_doubt_lands_after_its_deadline_or_never(broker: kafka_broker.Broker, topic_prefix: str):
    """Broker paused in mid-write: in doubt is said after the deadline, and what lands later is stamped later still."""
    settings, topic = await _made(broker.bootstrap, topic_prefix)
    producer = Producer(settings, deadline_s=1.5)
    await producer.send(_write("tickets/t1", "before"), topic)
    deadline = producer.deadline_ms()
    broker.pause()
    try:
        started = time.monotonic()
        with pytest.raises(errors.WriteInDoubt):
            await producer.send(_write("tickets/t1", "doubt", deadline), topic, deadline_ms=deadline)
        took = time.monotonic() - started
    finally:
        broker.resume()
    async with asyncio.timeout(30):
        while True:
            try:
                after = await producer.send(_write("tickets/t1", "after"), topic)
                break
            except errors.TransientError:
                continue
    await producer.stop()
    log = log_reader.KafkaLog(settings, topic)
    part = await log.read(0, 0, after.offset + 1, records_max=100)
    await log.stop()

    late = [record.raw.timestamp_ms for record in part.records if dict(record.raw.headers)["ce_id"] == b"doubt"]
    assert 1.4 < took < 4
    assert all(stamped is not None and stamped > deadline for stamped in late)
    assert [dict(record.raw.headers)["ce_id"] for record in part.records][-1] == b"after"


@pytest.mark.slow
async def test_writes_go_on_after_the_broker_was_killed(broker: kafka_broker.Broker, topic_prefix: str):
    """A broker killed and started again: refused meanwhile, acknowledged afterwards, by the same producer."""
    settings, topic = await _made(broker.bootstrap, topic_prefix)
    producer = Producer(settings, deadline_s=1.0)
    await producer.send(_write("tickets/t1", "e1"), topic)
    await asyncio.to_thread(broker.kill)
    with pytest.raises(errors.TransientError):
        await producer.send(_write("tickets/t1", "e2"), topic)
    await asyncio.to_thread(broker.start)
    async with asyncio.timeout(30):
        while True:
            try:
                await producer.send(_write("tickets/t1", "e3"), topic)
                break
            except errors.TransientError:
                continue
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(topic, **clients.consumer_arguments(settings, auto_offset_reset="earliest"))
    await consumer.start()
    found = [dict((await asyncio.wait_for(consumer.getone(), 10)).headers)["ce_id"] for _ in range(2)]
    await consumer.stop()

    assert found[0] == b"e1"
    assert found[-1] in {b"e2", b"e3"}
