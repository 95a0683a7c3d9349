"""Partitions raised under a running worker: a document's writes stand on two partitions then, and none may be applied.

Method: a real broker, real producers with old and with new metadata, and a worker in this process.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import kafka_topics
import pytest
import sqlalchemy as sa
import structlog
from aiokafka.admin import NewPartitions
from consuming import consuming
from polling import eventually

from facetline.facets import errors
from facetline.storage.db.engine import Store
from facetline.storage.log import positions
from facetline.streams.kafka import log_reader, topics
from facetline.streams.kafka.consumer import FaustWorker
from facetline.streams.kafka.write_worker import WriteWorker, partition_of
from facetline.streams.settings import KafkaSettings

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

KEYS = 50
BEFORE, AFTER = 2, 6


@pytest.fixture
async def settings(kafka_bootstrap: str, topic_prefix: str) -> KafkaSettings:
    """Topics of the test's own."""
    return await kafka_topics.make(kafka_bootstrap, topic_prefix, partitions=BEFORE)


@pytest.fixture
def store_url(sqlite_url: str) -> str:
    """SQLite alone: nothing here depends on the database."""
    return sqlite_url


@pytest.fixture
async def store(store: Store) -> Store:
    """A store with the collection `tickets`."""
    await store.write(kafka_topics.activate)
    return store


@asynccontextmanager
async def checked_worker(settings: KafkaSettings, store: Store) -> AsyncIterator[FaustWorker]:
    """A worker as `facetline worker` makes it: the topics were checked, and their partitions are known."""
    counts = await topics.check_topics(settings, store)
    partitions = counts[topics.topic_names(settings.topic_prefix).documents]
    async with consuming(settings, store, partitions=partitions, check_s=2.0) as (worker, _):
        yield worker


async def write_all(settings: KafkaSettings, body: str) -> None:
    """Write every document, by a producer that knows the partitions of now."""
    await kafka_topics.fill(settings, [kafka_topics.write(f"tickets/d{number}", body) for number in range(KEYS)])


async def raise_partitions(settings: KafkaSettings) -> None:
    """Give the documents topic more partitions, as an operator does with kafka-topics."""
    name = topics.topic_names(settings.topic_prefix).documents
    async with kafka_topics.admin(settings) as admin:
        await admin.create_partitions({name: NewPartitions(AFTER)})

    async def raised() -> bool:
        return (await topics.partition_counts(settings, [name])).get(name) == AFTER

    await eventually(raised, deadline_s=20)


async def bodies(store: Store) -> set[str]:
    """What the documents say, each body once."""
    rows = await store.read(lambda tx: tx.execute(sa.text("SELECT body FROM bodies")).scalars().all())
    return set(rows)


async def all_applied(store: Store) -> bool:
    """Whether every document is there."""
    return await store.read(lambda tx: tx.execute(sa.text("SELECT count(*) FROM documents")).scalar_one()) == KEYS


async def test_no_record_of_a_new_partition_is_applied(settings: KafkaSettings, store: Store):
    """Older and newer writes of the same keys around a raise: the worker stops applying and says what to do, no record
    of a new partition is applied, no older write stands over a newer one, and no producer's partitioner is blamed.
    """
    topic = topics.topic_names(settings.topic_prefix).documents
    await write_all(settings, "old")
    with structlog.testing.capture_logs() as logs:
        async with checked_worker(settings, store) as worker:
            await eventually(lambda: all_applied(store), deadline_s=40)
            await raise_partitions(settings)
            await write_all(settings, "new")
            await eventually(lambda: "partitions" in (worker.waiting or ""), deadline_s=40)
            await write_all(settings, "newest")
            said = worker.waiting or ""
            states = await store.read(positions.get, topic)
            with pytest.raises(errors.InvalidTopics, match=f"{AFTER} partitions and had {BEFORE}"):
                await topics.check_topics(settings, store)

    assert set(states) == set(range(BEFORE))
    assert "newest" not in await bodies(store)
    for part in (topic, str(AFTER), str(BEFORE), "topic_prefix"):
        assert part in said
    assert [each for each in logs if each["event"] == "keys_on_wrong_partition"] == []


async def test_a_worker_that_lags_applies_nothing_after_a_raise(settings: KafkaSettings, store: Store):
    """Raised while older writes still wait in an old partition: those that come first afterwards do not win."""
    await topics.check_topics(settings, store)
    topic = topics.topic_names(settings.topic_prefix).documents
    log = log_reader.KafkaLog(settings, topic)
    worker = WriteWorker(store, log, topic, partitions=BEFORE)
    try:
        await worker.assigned(range(BEFORE))
        await write_all(settings, "old")
        await raise_partitions(settings)
        await write_all(settings, "new")
        moved = next(number for number in range(KEYS) if _home(number, AFTER) >= BEFORE)
        (record, *_) = (await log.read(_home(moved, AFTER), 0, 1, records_max=1)).records
        handling = asyncio.create_task(worker.handle([record]))
        await eventually(lambda: bool(worker.waiting), deadline_s=20)
        handling.cancel()
    finally:
        await log.stop()

    assert await bodies(store) == set()
    assert set(await store.read(positions.get, topic)) == set(range(BEFORE))


def _home(number: int, partitions: int) -> int:
    return partition_of(f"tickets/d{number}".encode(), partitions)


async def test_a_topic_made_again_with_as_many_partitions_goes_on(settings: KafkaSettings, store: Store):
    """The way out that the message names works without a restart."""
    await write_all(settings, "old")
    async with checked_worker(settings, store) as worker:
        await eventually(lambda: worker.partitions == frozenset(range(BEFORE)), deadline_s=40)
        await raise_partitions(settings)
        await eventually(lambda: "partitions" in (worker.waiting or ""), deadline_s=40)
        await kafka_topics.make_anew(settings)
        await write_all(settings, "again")

        async def applied() -> bool:
            return await bodies(store) == {"again"}

        await eventually(applied, deadline_s=90)
        assert worker.waiting is None
