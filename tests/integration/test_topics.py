"""Topics on a real broker: made once as they must be, checked by name at every start."""

import functools
import socket
import time
from collections.abc import AsyncIterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from polling import eventually

from facetline.facets import errors
from facetline.storage.db import opening
from facetline.storage.db.engine import Store
from facetline.streams.kafka import clients, topics
from facetline.streams.settings import KafkaSettings

pytestmark = pytest.mark.kafka


@pytest.fixture
def settings(kafka_bootstrap: str, topic_prefix: str) -> KafkaSettings:
    """Settings with topics of the test's own."""
    return KafkaSettings(bootstrap_servers=kafka_bootstrap, topic_prefix=topic_prefix, partitions=3)


@pytest.fixture
async def store(sqlite_url: str) -> AsyncIterator[Store]:
    """An empty store."""
    opened = await opening.open_store(sqlite_url)
    yield opened
    await opened.close()


async def _make(settings: KafkaSettings, name: str, partitions: int, **configuration: str) -> None:
    admin = AIOKafkaAdminClient(**clients.admin_arguments(settings))
    await admin.start()
    given = {key.replace("_", "."): value for key, value in configuration.items()}
    await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=given)])
    await admin.close()


async def test_topics_are_made_once_and_reported_afterwards(settings: KafkaSettings):
    """The first call makes all three, the second changes nothing and says that they are there."""
    first = await topics.create_topics(settings)
    second = await topics.create_topics(settings)

    assert [(report.partitions, report.created, report.differs) for report in first] == [(3, True, ())] * 3
    assert [(report.partitions, report.created, report.differs) for report in second] == [(3, False, ())] * 3


async def test_made_topics_pass_the_check(settings: KafkaSettings, store: Store):
    """What create makes is what check wants, and check tells the partition counts."""
    await topics.create_topics(settings)
    counts = await topics.check_topics(settings, store)

    assert counts == dict.fromkeys(topics.configurations(topics.topic_names(settings.topic_prefix)), 3)


async def test_missing_topics_are_refused_with_the_command_to_run(settings: KafkaSettings, store: Store):
    """A worker without topics is told which are missing and how to make them."""
    with pytest.raises(errors.InvalidTopics) as refused:
        await topics.check_topics(settings, store)

    assert refused.value.message.count("facetline topics create") == 3
    assert f"{settings.topic_prefix}.documents.v1.dlt" in refused.value.message


async def test_a_topic_that_would_lose_bodies_or_times_is_named(settings: KafkaSettings, store: Store):
    """Compaction, producer timestamps and small records on the documents topic are each named, and never repaired."""
    names = topics.topic_names(settings.topic_prefix)
    await _make(settings, names.documents, 3, cleanup_policy="compact", max_message_bytes="1000000")
    reports = await topics.create_topics(settings)
    with pytest.raises(errors.InvalidTopics) as refused:
        await topics.check_topics(settings, store)

    for setting in (
        "cleanup.policy is compact",
        "message.timestamp.type is CreateTime",
        "max.message.bytes is 1000000",
    ):
        assert setting in refused.value.message
    assert next(report for report in reports if report.name == names.documents).created is False
    assert len(reports[0].differs) == 3


async def test_another_partition_count_than_recorded_is_refused(settings: KafkaSettings, store: Store):
    """Keys would move between partitions: the count of the first use is kept in the store and compared."""
    await topics.create_topics(settings)
    await topics.check_topics(settings, store)
    admin = AIOKafkaAdminClient(**clients.admin_arguments(settings))
    await admin.start()
    names = topics.topic_names(settings.topic_prefix)
    await admin.delete_topics([names.documents])
    await eventually(functools.partial(_gone, admin, names.documents), deadline_s=30)
    await admin.close()
    await topics.create_topics(settings.model_copy(update={"partitions": 5}))

    with pytest.raises(errors.InvalidTopics, match="has 5 partitions and had 3"):
        await topics.check_topics(settings, store)


async def _gone(admin: AIOKafkaAdminClient, topic: str) -> bool:
    """Whether the broker shows a deleted topic no longer: a busy one answers before it is so."""
    return topic not in await admin.list_topics()


async def test_a_broker_that_is_away_is_said_within_the_bound(topic_prefix: str, store: Store):
    """A broker that accepts and never answers costs no more than the wait that was given."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = KafkaSettings(bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}", topic_prefix=topic_prefix)
        started = time.monotonic()
        with pytest.raises(errors.BrokerUnavailable):
            await topics.check_topics(settings, store, wait_s=1.0)

    assert time.monotonic() - started < 5
