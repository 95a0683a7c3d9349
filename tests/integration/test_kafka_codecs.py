"""Every codec that Kafka has, in a default install: read by the worker, from the log itself, and by `record`.

Method: real batches of each codec from a real producer, and packed again by a real broker; and a batch that unpacks to
more than any consumer should hold.
"""

import asyncio

import kafka_topics
import pytest
import sqlalchemy as sa
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.record import default_records
from consuming import consuming
from polling import eventually

from facetline.storage.db.engine import Store
from facetline.storage.log import dead_letters
from facetline.streams.kafka import batch_payloads, log_reader, topics
from facetline.streams.replay import recorder as recording
from facetline.streams.settings import KafkaSettings
from facetline.streams.wire.undecodable import Undecodable

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
BODY = "My card was charged again. " * 400


@pytest.fixture
async def settings(kafka_bootstrap: str, topic_prefix: str) -> KafkaSettings:
    """Topics of the test's own, with one partition."""
    return await kafka_topics.make(kafka_bootstrap, topic_prefix, partitions=1)


@pytest.fixture
def store_url(sqlite_url: str) -> str:
    """SQLite alone: nothing here depends on the database."""
    return sqlite_url


@pytest.fixture
async def store(store: Store) -> Store:
    """A store with the collection `tickets`."""
    await store.write(kafka_topics.activate)
    return store


async def send(settings: KafkaSettings, codec: str | None) -> None:
    """Write three documents in one batch of this codec."""
    topic = topics.topic_names(settings.topic_prefix).documents
    async with kafka_topics.producing(settings, compression_type=codec, linger_ms=100) as producer:
        made = [kafka_topics.write(f"tickets/{codec}-{number}", BODY, f"{codec}-{number}") for number in range(3)]
        sent = [await producer.send(topic, one.value, one.key, headers=list(one.headers)) for one in made]
        await asyncio.gather(*sent)


async def uris(store: Store) -> set[str]:
    """The documents with the whole body."""
    found = await store.read(
        lambda tx: tx.execute(
            sa.text("SELECT d.uri FROM documents d JOIN bodies b ON b.uri = d.uri WHERE b.body = :body"), {"body": BODY}
        ).all()
    )
    return {row.uri for row in found}


async def log_values(settings: KafkaSettings) -> list[bytes | None]:
    """What the plain reader finds."""
    log = log_reader.KafkaLog(settings, topics.topic_names(settings.topic_prefix).documents)
    try:
        first, end = await log.bounds(0)
        return [each.raw.value for each in (await log.read(0, first, end, records_max=500)).records]
    finally:
        await log.stop()


async def recorded_values(settings: KafkaSettings) -> list[bytes | None]:
    """What `record` finds."""
    topic = topics.topic_names(settings.topic_prefix).documents
    recorder = recording.Recorder(settings, topic, await recording.spans(settings, topic))
    return [each.raw.value async for chunk in recorder.chunks() for each in chunk]


async def test_every_codec_is_read_by_every_consumer(settings: KafkaSettings, store: Store):
    """Batches of all five codecs are applied like any other, and the log reader and `record` give the same values."""
    for codec in CODECS:
        await send(settings, codec)
    expected = {f"tickets/{codec}-{number}" for codec in CODECS for number in range(3)}
    async with consuming(settings, store, partitions=1) as (_, worker):

        async def applied() -> bool:
            return await uris(store) == expected

        await eventually(applied, deadline_s=40)
        assert (worker.stats.rejected, worker.stats.reread) == (0, 0), "all of them came through Faust"
    from_log = await log_values(settings)

    assert len(from_log) == 15
    assert all(BODY.encode() in (value or b"") for value in from_log)
    assert await recorded_values(settings) == from_log


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
async def test_a_codec_that_the_broker_packs_with_is_read(settings: KafkaSettings, store: Store, codec: str):
    """With the topic's own `compression.type` the broker packs batches again; they are read, and the check names it."""
    name = topics.topic_names(settings.topic_prefix).documents
    async with kafka_topics.admin(settings) as admin:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {**_wanted(settings), _TYPE: codec})])

    async def is_set() -> bool:
        return (await topics.compressions(settings))[name] == codec

    await eventually(is_set, deadline_s=10)
    await send(settings, "gzip")

    assert all(BODY.encode() in (value or b"") for value in await log_values(settings))
    assert len(await recorded_values(settings)) == 3
    assert (await topics.check_topics(settings, store))[name] == 1


_TYPE = "compression.type"


def _wanted(settings: KafkaSettings) -> dict[str, str]:
    names = topics.topic_names(settings.topic_prefix)
    return topics.configurations(names)[names.documents]


def test_a_codec_of_the_future_is_refused_by_the_check():
    """A `compression.type` that no consumer of ours knows is a difference, with the ones that are read."""
    names = topics.topic_names("x")
    wanted = topics.configurations(names)[names.documents]
    (said,) = topics.differences(wanted, {**wanted, _TYPE: "brotli"})

    assert "brotli" in said
    assert "zstd" in said


@pytest.mark.parametrize("codec", [1, 4], ids=["gzip", "zstd"])
async def test_a_batch_that_unpacks_to_too_much_is_a_dead_letter(settings: KafkaSettings, store: Store, codec: int):
    """A batch of some kilobytes that unpacks to more than the bound: one dead letter with its bytes, and what stands
    beside it is applied.
    """
    await send(settings, "lz4")
    await _bomb(settings, codec)
    await send(settings, None)
    expected = {f"tickets/{name}-{number}" for name in ("lz4", None) for number in range(3)}
    async with consuming(settings, store, partitions=1):

        async def applied() -> bool:
            return await uris(store) == expected

        await eventually(applied, deadline_s=60)
    (letter,) = await store.read(dead_letters.find)
    recorded = await recorded_values(settings)

    assert (letter.reason, letter.position.offset) == ("undecodable", 3)
    assert str(batch_payloads.UNPACKED_BYTES_MAX) in letter.message
    assert len(letter.raw.value or b"") < 1_000_000
    assert isinstance(recorded[3], Undecodable)
    assert len(recorded) == 7


async def _bomb(settings: KafkaSettings, codec: int) -> None:
    topic = topics.topic_names(settings.topic_prefix).documents
    async with kafka_topics.producing(settings, enable_idempotence=False) as producer:
        builder = default_records._DefaultRecordBatchBuilderPy(
            magic=2,
            compression_type=codec,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=2 * batch_payloads.UNPACKED_BYTES_MAX,
        )
        builder.append(0, 1_000, b"tickets/bomb", bytes(batch_payloads.UNPACKED_BYTES_MAX + 1), [])
        batch = producer.create_batch()
        batch._builder = builder
        batch._relative_offset = 1
        await (await producer.send_batch(batch, topic, partition=0))
