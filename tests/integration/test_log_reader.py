"""The log as it can be asked, on a real broker: ranges, markers, aborted records, truncation."""

import socket
import time
from collections.abc import AsyncIterator

import aiokafka
import kafka_topics
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from polling import eventually

from facetline.facets import errors
from facetline.storage.log.events import Raw
from facetline.streams.kafka import clients, log_reader, topics
from facetline.streams.settings import KafkaSettings

pytestmark = pytest.mark.kafka


@pytest.fixture
async def settings(kafka_bootstrap: str, topic_prefix: str) -> KafkaSettings:
    """Settings with topics of the test's own, made, with one partition."""
    given = KafkaSettings(bootstrap_servers=kafka_bootstrap, topic_prefix=topic_prefix, partitions=1)
    await topics.create_topics(given)
    return given


@pytest.fixture
async def log(settings: KafkaSettings) -> AsyncIterator[log_reader.KafkaLog]:
    """The documents topic's log."""
    reader = log_reader.KafkaLog(settings, topics.topic_names(settings.topic_prefix).documents)
    yield reader
    await reader.stop()


async def _produce(settings: KafkaSettings, topic: str, values: list[bytes]) -> None:
    producer = aiokafka.AIOKafkaProducer(**clients.producer_arguments(settings))
    await producer.start()
    for value in values:
        await producer.send_and_wait(topic, value, key=b"k", headers=[("h", value[:9])])
    await producer.stop()


async def _transaction(settings: KafkaSettings, topic: str, values: list[bytes], *, commit: bool) -> None:
    own = {"transactional_id": f"{topic}.test"}
    producer = aiokafka.AIOKafkaProducer(**clients.producer_arguments(settings, **own))
    await producer.start()
    await producer.begin_transaction()
    for value in values:
        await producer.send_and_wait(topic, value, key=b"k")
    await (producer.commit_transaction() if commit else producer.abort_transaction())
    await producer.stop()


def _values(part: log_reader.LogSlice) -> list[bytes | None]:
    return [record.raw.value for record in part.records]


async def test_an_empty_log_begins_and_ends_at_nought(log: log_reader.KafkaLog):
    """Nothing written: both bounds are 0."""
    assert await log.bounds(0) == (0, 0)


async def test_a_range_is_read_with_bytes_headers_and_broker_time(settings: KafkaSettings, log: log_reader.KafkaLog):
    """Exactly the offsets asked for come, as they were sent, stamped by the broker."""
    await _produce(settings, log.topic, [b"a", b"b", b"c", b"d"])
    part = await log.read(0, 1, 3, records_max=100)

    assert _values(part) == [b"b", b"c"]
    assert part.end == 3
    assert [(record.partition, record.offset) for record in part.records] == [(0, 1), (0, 2)]
    assert part.records[0].raw.key == b"k"
    assert part.records[0].raw.headers == (("h", b"b"),)
    assert abs((part.records[0].raw.timestamp_ms or 0) - time.time() * 1000) < 60_000


async def test_slices_are_bounded_and_join_up(settings: KafkaSettings, log: log_reader.KafkaLog):
    """A long range comes in slices of at most the records asked for, each beginning where the last one ended."""
    sent = [str(number).encode() for number in range(25)]
    await _produce(settings, log.topic, sent)
    _, end = await log.bounds(0)
    found, start, sizes = [], 0, []
    while start < end:
        part = await log.read(0, start, end, records_max=10)
        found += _values(part)
        sizes.append(len(part.records))
        start = part.end

    assert found == sent
    assert max(sizes) <= 10


async def test_going_back_reads_the_same_again(settings: KafkaSettings, log: log_reader.KafkaLog):
    """Reading is by offset, not by what was read before."""
    await _produce(settings, log.topic, [b"a", b"b", b"c"])
    first = await log.read(0, 0, 2, records_max=100)
    again = await log.read(0, 1, 3, records_max=100)
    back = await log.read(0, 0, 2, records_max=100)

    assert first == back
    assert _values(again) == [b"b", b"c"]


async def test_markers_and_aborted_records_are_passed(settings: KafkaSettings, log: log_reader.KafkaLog):
    """A read over aborted transactions and markers returns only what was committed and says that all was seen."""
    await _transaction(settings, log.topic, [b"no", b"no"], commit=False)
    await _transaction(settings, log.topic, [b"yes"], commit=True)
    await _transaction(settings, log.topic, [b"no"], commit=False)
    first, end = await log.bounds(0)
    part = await log.read(0, first, end, records_max=100)

    assert _values(part) == [b"yes"]
    assert part.end == end == 7
    assert (await log.read(0, 5, end, records_max=100)) == log_reader.LogSlice((), 7)


async def test_an_open_transaction_is_not_readable(settings: KafkaSettings, log: log_reader.KafkaLog):
    """The end is the read-committed one: it stands still before a transaction that is still open."""
    await _produce(settings, log.topic, [b"a"])
    own = {"transactional_id": f"{log.topic}.open"}
    producer = aiokafka.AIOKafkaProducer(**clients.producer_arguments(settings, **own))
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(log.topic, b"b", key=b"k")
    while_open = await log.bounds(0)
    await producer.commit_transaction()
    await producer.stop()

    async def readable() -> bool:
        """Say whether the commit's marker, which the broker writes after it has answered, is there."""
        return await log.bounds(0) == (0, 3)

    assert while_open == (0, 1)
    assert await eventually(readable)


async def test_what_the_log_no_longer_has_reads_as_nothing_seen(settings: KafkaSettings, log: log_reader.KafkaLog):
    """Below the log's start a slice ends where it began, and the bounds tell why."""
    await _produce(settings, log.topic, [b"a", b"b", b"c"])
    await log.read(0, 0, 1, records_max=1)
    admin = AIOKafkaAdminClient(**clients.admin_arguments(settings))
    await admin.start()
    await admin.delete_records({aiokafka.TopicPartition(log.topic, 0): RecordsToDelete(2)})
    await admin.close()
    bounds = await log.bounds(0)
    gone = await log.read(0, 0, 3, records_max=100)
    there = await log.read(0, 2, 3, records_max=100)

    assert bounds == (2, 3)
    assert gone == log_reader.LogSlice((), 0)
    assert _values(there) == [b"c"]


async def test_records_of_the_largest_size_come_in_bounded_slices(settings: KafkaSettings, log: log_reader.KafkaLog):
    """Large records are all readable, and a slice stops growing at its byte limit rather than at its record limit."""
    large = b"x" * (clients.RECORD_BYTES_MAX - 200)
    await _produce(settings, log.topic, [large] * 7)
    part = await log.read(0, 0, 7, records_max=100)
    rest = await log.read(0, part.end, 7, records_max=100)

    assert sum(len(record.raw.value or b"") for record in part.records) >= log_reader.SLICE_BYTES_MAX
    assert len(part.records) < 7
    assert _values(part) + _values(rest) == [large] * 7


@pytest.mark.parametrize("compression", [None, "gzip"])
async def test_a_header_name_that_is_not_text_stops_nothing(
    settings: KafkaSettings, log: log_reader.KafkaLog, compression: str | None
):
    """Any C client can send one: the record and its neighbours in the same batch are read, its bytes kept."""
    await kafka_topics.odd_header(settings, compression)
    await _produce(settings, log.topic, [b"after"])
    part = await log.read(0, 0, 4, records_max=100)

    assert _values(part) == [b"1", b"2", b"3", b"after"]
    names = [record.raw.headers[0][0].encode(errors="surrogateescape") for record in part.records[:3]]
    assert names == [b"plain", kafka_topics.ODD_NAME, b"plain"]
    assert len({log_reader.record_hash(record.raw) for record in part.records}) == 4


async def test_a_silent_broker_is_said_within_the_wait(topic_prefix: str):
    """A broker that accepts and never answers costs no more than the wait, and no error but ours leaves."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        reader = log_reader.KafkaLog(KafkaSettings(bootstrap_servers=address), topic_prefix, wait_s=0.5)
        started = time.monotonic()
        with pytest.raises(errors.BrokerUnavailable):
            await reader.bounds(0)
        await reader.stop()

    assert time.monotonic() - started < 8


def test_a_hash_tells_apart_what_only_looks_alike():
    """Lengths and absence are part of what is hashed: shifting a byte between key, value and headers shows."""
    alike = [
        Raw(b"ab", b"c", (), 1),
        Raw(b"a", b"bc", (), 1),
        Raw(b"a", None, (("b", b"c"),), 1),
        Raw(b"a", b"", (("b", b"c"),), 1),
        Raw(None, b"abc", (), 1),
        Raw(b"", b"abc", (), 1),
    ]

    assert len({log_reader.record_hash(raw) for raw in alike}) == len(alike)
    assert log_reader.record_hash(Raw(b"a", b"b", (), 1)) == log_reader.record_hash(Raw(b"a", b"b", (), 2))
