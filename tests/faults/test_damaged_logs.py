"""Batches that no client can decode, in a real broker's log: dead letters, or one partition that stands still alone.

Method: a batch in the file of a real broker is changed in place, with and without a checksum that fits; a worker in
this process consumes two partitions, one of which holds it. The same is read from the log and by `record`.
"""

import asyncio
from collections.abc import Callable

import damaged_log
import kafka_topics
import pytest
import sqlalchemy as sa
from consuming import consuming
from kafka_broker import Broker
from polling import eventually

from facetline.storage.db.engine import Store
from facetline.storage.log import dead_letters
from facetline.streams.kafka import log_reader, topics
from facetline.streams.monitor import health
from facetline.streams.monitor.worker_state import Members
from facetline.streams.project import Project
from facetline.streams.replay import recorder
from facetline.streams.settings import KafkaSettings, Settings
from facetline.streams.wire.undecodable import Undecodable

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

Edit = Callable[[bytearray], None]


@pytest.fixture
async def settings(broker: Broker, topic_prefix: str) -> KafkaSettings:
    """Topics on a broker of the test's own, with two partitions."""
    return await kafka_topics.make(broker.bootstrap, topic_prefix, partitions=2)


@pytest.fixture
def store_url(sqlite_url: str) -> str:
    """SQLite alone: nothing here depends on the database."""
    return sqlite_url


@pytest.fixture
async def store(store: Store) -> Store:
    """A store with the collection `tickets`."""
    await store.write(kafka_topics.activate)
    return store


async def fill(settings: KafkaSettings, name: str, partition: int) -> None:
    """One document in a batch of its own."""
    message = kafka_topics.write(f"tickets/{name}", "body " * 50)
    await kafka_topics.fill(settings, [message], partition=partition)


async def _has(store: Store, *names: str) -> bool:
    rows = await store.read(lambda tx: tx.execute(sa.text("SELECT uri FROM documents")).scalars().all())
    return {f"tickets/{name}" for name in names} == set(rows)


async def recorded(settings: KafkaSettings, partition: int) -> list[bytes | None]:
    """What `record` prints of a partition."""
    topic = topics.topic_names(settings.topic_prefix).documents
    spans = await recorder.spans(settings, topic, partitions=[partition])
    return [each.raw.value async for chunk in recorder.Recorder(settings, topic, spans).chunks() for each in chunk]


async def _damage(settings: KafkaSettings, broker: Broker, edit: Edit, *, fit: bool) -> None:
    """Three batches in partition 0, the second of them damaged, and one in partition 1."""
    for name in ("a", "b", "c"):
        await fill(settings, name, 0)
    await fill(settings, "other", 1)
    topic = topics.topic_names(settings.topic_prefix).documents
    await asyncio.to_thread(damaged_log.change, broker, topic, 0, 1, edit, fit=fit)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (damaged_log.codec(7), "codec 7"),
        (damaged_log.codec(1), "gzip"),
        (damaged_log.codec(2), "snappy"),
        (damaged_log.codec(3), "lz4"),
        (damaged_log.codec(4), "zstd"),
        (damaged_log.cut_payload, ""),
    ],
    ids=["unknown codec", "no gzip", "no snappy", "no lz4", "no zstd", "zeros"],
)
async def test_a_batch_that_was_sent_so_is_a_dead_letter(
    settings: KafkaSettings, broker: Broker, store: Store, edit: Edit, said: str
):
    """Its checksum fits, so no other read finds anything else: one dead letter at its offset with its bytes; what
    stands before and behind it is applied, and `record` gives it as the bytes that it is.
    """
    await _damage(settings, broker, edit, fit=True)
    async with consuming(settings, store, partitions=2, check_s=1.0) as (_, worker):
        await eventually(lambda: _has(store, "a", "c", "other"), deadline_s=60)
        letters = await store.read(dead_letters.find)
        assert worker.stopped == {}
    values = await recorded(settings, 0)

    assert [letter.reason for letter in letters] == ["undecodable"]
    assert [letter.position.offset for letter in letters] == [1]
    assert said in letters[0].message
    assert letters[0].raw.value
    assert sum(isinstance(value, Undecodable) for value in values) == 1


async def test_a_batch_with_too_high_a_count_gives_the_records_it_has(
    settings: KafkaSettings, broker: Broker, store: Store
):
    """Where every offset of a batch has come, a count that promises more costs no record behind it."""
    await _damage(settings, broker, damaged_log.record_count(3), fit=True)
    async with consuming(settings, store, partitions=2, check_s=1.0):
        await eventually(lambda: _has(store, "a", "b", "c", "other"), deadline_s=60)
    assert await store.read(dead_letters.find) == []


@pytest.mark.parametrize(
    ("edit", "fit"),
    [(damaged_log.flip_last_byte, False), (damaged_log.magic(9), True)],
    ids=["checksum", "unknown format"],
)
async def test_a_damaged_batch_stops_its_partition_alone(
    settings: KafkaSettings, broker: Broker, store: Store, edit: Edit, fit: bool
):
    """Another replica may have it whole: its partition stands still before it, readiness names topic, partition, offset
    and the way out, the other partition goes on; deleting it lets the partition go on, with a dead letter.
    """
    await _damage(settings, broker, edit, fit=fit)
    topic = topics.topic_names(settings.topic_prefix).documents
    async with consuming(settings, store, partitions=2, check_s=1.0) as (_, worker):
        await eventually(lambda: bool(worker.stopped), deadline_s=60)
        await fill(settings, "later", 1)
        await eventually(lambda: _has(store, "a", "other", "later"), deadline_s=30)
        members = Members(Settings(), Project(Settings(), (), {}, {}, ()), writer=worker)
        (check,) = health._unreadable(members)
        with pytest.raises(log_reader.Unreadable, match="offset 1"):
            await recorded(settings, 0)
        await kafka_topics.truncate(settings, 2)
        await eventually(lambda: _has(store, "a", "c", "other", "later"), deadline_s=90)
        await eventually(lambda: worker.stopped == {}, deadline_s=10)
    (letter,) = await store.read(dead_letters.find)

    assert check.level == "failed"
    for part in (topic, "partition 0", "offset 1", "kafka-delete-records"):
        assert part in check.detail
    assert (letter.reason, letter.position.offset) == ("log_truncated", 1)


async def test_a_repaired_batch_is_applied_in_its_order(settings: KafkaSettings, broker: Broker, store: Store):
    """Whole again (as from another replica), the batch and what follows it are applied, and nothing is lost."""
    await _damage(settings, broker, damaged_log.flip_last_byte, fit=False)
    topic = topics.topic_names(settings.topic_prefix).documents
    async with consuming(settings, store, partitions=2, check_s=1.0) as (_, worker):
        await eventually(lambda: bool(worker.stopped), deadline_s=60)
        await asyncio.to_thread(damaged_log.change, broker, topic, 0, 1, damaged_log.flip_last_byte, fit=False)
        await eventually(lambda: _has(store, "a", "b", "c", "other"), deadline_s=90)
    assert await store.read(dead_letters.find) == []
