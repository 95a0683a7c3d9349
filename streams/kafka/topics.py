"""The three topics: their names, how they are made, and whether what the broker has is what we rely on."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from facetline.facets import errors
from facetline.storage.db.engine import Store
from facetline.storage.log import positions
from facetline.streams.kafka import clients, connection_check
from facetline.streams.settings import KafkaSettings

WAIT_S = 10.0
"""How long a broker that does not answer is waited for before the caller gets an error."""
TOMBSTONE_MS = 7 * 24 * 3600 * 1000
"""How long readers of the facets topic may be away and still see every deletion."""


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The names of the topics under one prefix."""

    documents: str
    facets: str
    dead_letters: str


@dataclass(frozen=True, slots=True)
class TopicReport:
    """What the broker has: `partitions` 0 means no such topic; `differs` says what is not as it must be."""

    name: str
    partitions: int
    differs: tuple[str, ...] = ()
    created: bool = False
    compression: str = "producer"
    """How the broker stores the topic's batches: by one codec, or (`producer`) as they were sent."""


def topic_names(prefix: str) -> TopicNames:
    """Return the names of the topics; they carry the version of their events."""
    return TopicNames(f"{prefix}.documents.v1", f"{prefix}.facets.v1", f"{prefix}.documents.v1.dlt")


def configurations(names: TopicNames) -> dict[str, dict[str, str]]:
    """Return the configuration that `create_topics` gives to each topic."""
    return {
        # Never compacted: a body must not vanish behind an event that carries only state. LogAppendTime: a write that
        # lands after its deadline is recognised by the broker's own clock.
        names.documents: {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": str(clients.RECORD_BYTES_MAX),
        },
        names.facets: {
            "cleanup.policy": "compact",
            "delete.retention.ms": str(TOMBSTONE_MS),
            "max.message.bytes": str(clients.RECORD_BYTES_MAX),
        },
        names.dead_letters: {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "max.message.bytes": str(clients.DEAD_LETTER_BYTES_MAX),
        },
    }


# What the pipeline's promises rest on; retention is the operator's own business.
_RELIED_ON = ("cleanup.policy", "message.timestamp.type")
_AT_LEAST = "max.message.bytes"
_COMPRESSION = "compression.type"
_COMPRESSIONS = ("producer", "uncompressed", "none", "gzip", "snappy", "lz4", "zstd")
"""What Kafka has, all of which our consumers read."""


async def create_topics(settings: KafkaSettings, *, wait_s: float = WAIT_S) -> list[TopicReport]:
    """Make the topics that are missing, and say of all three what they are like; existing ones are never changed.

    Raises:
        BrokerUnavailable: no broker answered within `wait_s`.
        InvalidTopics: the broker refused a topic.
    """
    wanted = configurations(topic_names(settings.topic_prefix))
    async with _admin(settings, wait_s) as admin:
        there = await _partitions(admin, tuple(wanted))
        missing = [name for name in wanted if name not in there]
        for name in missing:
            await _create(admin, settings, name, wanted[name])
        there = await _settled(admin, tuple(wanted))
        reports = await _reports(admin, wanted, there)
    return [
        TopicReport(report.name, report.partitions, report.differs, created=report.name in missing)
        for report in reports
    ]


async def check_topics(settings: KafkaSettings, store: Store, *, wait_s: float = WAIT_S) -> dict[str, int]:
    """Check the topics before anything is consumed; return the partition count of each.

    The counts of documents and facets are recorded in the store when first seen: with another one, keys would move to
    other partitions and the order per document would be lost.

    Raises:
        BrokerUnavailable: no broker answered within `wait_s`.
        InvalidTopics: naming every topic that is missing or not as it must be, and what to do.
    """
    names = topic_names(settings.topic_prefix)
    wanted = configurations(names)
    async with _admin(settings, wait_s) as admin:
        there = await _partitions(admin, tuple(wanted))
        reports = await _reports(admin, wanted, there)
    problems = [problem for report in reports for problem in _problems(report)]
    if not problems:
        for name in (names.documents, names.facets):
            recorded = await store.write(positions.record_topic, name, there[name])
            if recorded != there[name]:
                problems.append(
                    f"{name} has {there[name]} partitions and had {recorded} when it was first used: writes of one"
                    " document may stand on two of them; use a new topic_prefix, or make the topic again with"
                    f" {recorded}"
                )
    if problems:
        raise errors.InvalidTopics("\n".join(problems))
    return there


async def compressions(settings: KafkaSettings, *, wait_s: float = WAIT_S) -> dict[str, str]:
    """Return how the broker stores the batches of each topic that is there: by one codec, or as they were sent.

    Raises:
        BrokerUnavailable: no broker answered within `wait_s`.
    """
    wanted = configurations(topic_names(settings.topic_prefix))
    async with _admin(settings, wait_s) as admin:
        there = await _partitions(admin, tuple(wanted))
        return {report.name: report.compression for report in await _reports(admin, wanted, there)}


async def delete_topics(settings: KafkaSettings, *, wait_s: float = WAIT_S) -> None:
    """Delete the three topics with all that is in them: those of a test, or of a demonstration.

    Raises:
        BrokerUnavailable: no broker answered within `wait_s`.
    """
    names = topic_names(settings.topic_prefix)
    async with _admin(settings, wait_s) as admin:
        await admin.delete_topics([names.documents, names.facets, names.dead_letters])


async def partition_counts(settings: KafkaSettings, names: Sequence[str], *, wait_s: float = WAIT_S) -> dict[str, int]:
    """Return the partition count of each topic that is there.

    Raises:
        BrokerUnavailable: no broker answered within `wait_s`.
    """
    async with _admin(settings, wait_s) as admin:
        return await _partitions(admin, names)


def _problems(report: TopicReport) -> list[str]:
    if report.partitions == 0:
        return [f"topic {report.name} does not exist; run: facetline topics create"]
    return [f"topic {report.name}: {difference}" for difference in report.differs]


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> tuple[str, ...]:
    """Say which settings are not as the pipeline needs them, and how to change them."""
    lines = [
        f"{name} is {found.get(name)}, must be {wanted[name]}; change it with kafka-configs"
        for name in _RELIED_ON
        if name in wanted and found.get(name) != wanted[name]
    ]
    if found.get(_COMPRESSION, _COMPRESSIONS[0]) not in _COMPRESSIONS:
        lines.append(
            f"{_COMPRESSION} is {found[_COMPRESSION]}, which the workers cannot read; change it with kafka-configs to"
            f" one of {', '.join(_COMPRESSIONS)}"
        )
    if int(found.get(_AT_LEAST, 0)) < int(wanted[_AT_LEAST]):
        lines.append(
            f"{_AT_LEAST} is {found.get(_AT_LEAST)}, must be at least {wanted[_AT_LEAST]}; change it with kafka-configs"
        )
    return tuple(lines)


@asynccontextmanager
async def _admin(settings: KafkaSettings, wait_s: float) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**clients.admin_arguments(settings))
    try:
        async with asyncio.timeout(wait_s):
            await admin.start()
            yield admin
    except (KafkaError, OSError, TimeoutError) as error:
        found = await connection_check.why_unreachable(settings) or str(error)
        message = f": {found}" if found else f" within {wait_s:g} s"
        raise errors.BrokerUnavailable(f"Kafka at {settings.bootstrap_servers} does not answer{message}") from error
    finally:
        await admin.close()


async def _create(
    admin: AIOKafkaAdminClient, settings: KafkaSettings, name: str, configuration: dict[str, str]
) -> None:
    topic = NewTopic(name, settings.partitions, settings.replication_factor, topic_configs=configuration)
    answer = await admin.create_topics([topic])
    _, code, message = answer.topic_errors[0]
    if code not in {0, TopicAlreadyExistsError.errno}:  # someone else may make them at the same time
        raise errors.InvalidTopics(f"topic {name} could not be made: {message or for_code(code).__name__}")


async def _settled(admin: AIOKafkaAdminClient, names: Sequence[str]) -> dict[str, int]:
    """Wait until every topic is known with a leader: a broker says "created" a moment before; bounded by the caller."""
    while True:
        there = await _partitions(admin, names)
        if all(name in there for name in names):
            return there
        await asyncio.sleep(0.05)


async def _partitions(admin: AIOKafkaAdminClient, names: Sequence[str]) -> dict[str, int]:
    """Return the partition count of each topic that is there."""
    described = await admin.describe_topics(list(names))
    return {
        topic["topic"]: len(topic["partitions"])
        for topic in described
        if topic["error_code"] == 0 and all(partition["leader"] >= 0 for partition in topic["partitions"])
    }


async def _reports(
    admin: AIOKafkaAdminClient, wanted: dict[str, dict[str, str]], there: dict[str, int]
) -> list[TopicReport]:
    asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in there]
    answers = await admin.describe_configs(asked) if asked else []
    found = {
        resource[3]: {entry[0]: entry[1] for entry in resource[4]}
        for answer in answers
        for resource in answer.resources
    }
    return [
        TopicReport(
            name,
            there[name],
            differences(wanted[name], found[name]),
            compression=found[name].get(_COMPRESSION, _COMPRESSIONS[0]),
        )
        if name in there
        else TopicReport(name, 0)
        for name in wanted
    ]
