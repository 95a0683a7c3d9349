"""The publisher on a real Kafka: at least once, in version order per key, one sender at a time, nothing in the way."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kafka_broker
import kafka_topics
import pytest
import sqlalchemy as sa
import stored
from polling import eventually

from facetline.storage import definitions, publications
from facetline.storage.db.engine import Store
from facetline.storage.log import apply, dead_letters, positions
from facetline.storage.log.events import Batch, Position, Raw
from facetline.storage.queue import queue
from facetline.streams import failpoints
from facetline.streams.kafka import clients, topics, transactions
from facetline.streams.kafka.publisher import LEASE_MS, Publisher
from facetline.streams.settings import KafkaSettings
from facetline.streams.wire import codec

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


@pytest.fixture
async def settings(kafka_bootstrap: str, topic_prefix: str) -> KafkaSettings:
    """Topics of the test's own, with two partitions."""
    return await kafka_topics.make(kafka_bootstrap, topic_prefix, partitions=2)


@pytest.fixture
async def store(store: Store) -> Store:
    """A store with the collection `tickets`."""
    await store.write(kafka_topics.activate)
    return store


@asynccontextmanager
async def publishing(
    settings: KafkaSettings, store: Store, owner: str = "one", **given: Any
) -> AsyncIterator[Publisher]:
    """A publisher that runs; it must end in order."""
    publisher = Publisher(settings, store, owner=owner, idle_s=0.05, **given)
    stop = asyncio.Event()
    running = asyncio.create_task(publisher.run(stop))
    try:
        yield publisher
    finally:
        stop.set()
        await asyncio.wait_for(running, 30)


def facets_of(settings: KafkaSettings) -> str:
    """The facets topic."""
    return topics.topic_names(settings.topic_prefix).facets


async def position(store: Store, settings: KafkaSettings) -> int:
    """How far the feed has been sent."""
    return await store.read(publications.position, facets_of(settings))


async def sent_versions(settings: KafkaSettings, count: int) -> list[tuple[str, int]]:
    """Key and version of the first committed records of the facets topic, in order of their partitions."""
    found = await kafka_topics.contents(settings, facets_of(settings), count)
    return [(record.key.decode(), int(dict(record.headers)["ce_version"])) for record in found]


async def test_documents_answers_and_deletions_are_published(settings: KafkaSettings, store: Store):
    """Every state that a reader of the feed sees is there: pending, answered, and a tombstone with its version."""
    await store.write(stored.write, {"tickets/a": "one", "tickets/b": "two"})
    async with publishing(settings, store):
        await eventually(lambda: _reaches(store, settings, 2))
        claims = (await store.write(stored.claimed)).claims
        await store.write(queue.answer, [stored.answer_to(claim) for claim in claims])
        await eventually(lambda: _reaches(store, settings, 4))
        await store.write(stored.delete, "tickets/b")
        await eventually(lambda: _reaches(store, settings, 5))
    found = await kafka_topics.contents(settings, facets_of(settings), 5)
    last = {record.key: record for record in found}
    answered = json.loads(last[b"tickets/a"].value)

    assert [len(found), last[b"tickets/b"].value] == [5, None]
    assert (answered["status"], answered["version"], answered["indexed_as"]) == ("indexed", 2, 1)
    assert answered["facets"]["topic"]["choice"] == "billing"
    assert dict(last[b"tickets/b"].headers)["ce_version"] == b"3"


async def _reaches(store: Store, settings: KafkaSettings, end: int) -> bool:
    return await position(store, settings) >= end


async def test_versions_of_a_key_are_in_order_and_the_newest_is_last(settings: KafkaSettings, store: Store):
    """Documents rewritten again and again while publishing: per key versions only rise, and end at the store's."""
    async with publishing(settings, store):
        for number in range(40):
            await store.write(stored.write, {f"tickets/d{key}": f"{number}" for key in range(5)})
        await eventually(lambda: _is_all_sent(store, settings), deadline_s=30)
        total = await position(store, settings)
    found = await sent_versions(settings, total)
    by_key: dict[str, list[int]] = {}
    for key, version in found:
        by_key.setdefault(key, []).append(version)

    assert {key: versions[-1] for key, versions in by_key.items()} == {f"tickets/d{key}": 40 for key in range(5)}
    assert all(versions == sorted(set(versions)) for versions in by_key.values())


async def _is_all_sent(store: Store, settings: KafkaSettings) -> bool:
    numbers = await store.read(lambda tx: list(tx.execute(sa.select(stored.DOCUMENTS.c.feed_seq)).scalars()))
    return None not in numbers and await position(store, settings) == max(numbers)


def _raising(name: str, times: int) -> Callable[[str], None]:
    left = [name] * times

    def act(reached: str) -> None:
        if reached in left:
            left.remove(reached)
            raise failpoints.FailpointReached(reached)

    return act


async def test_killed_between_sending_and_marking_it_is_sent_again(settings: KafkaSettings, store: Store):
    """The end of a process after Kafka's commit and before the mark: the same versions again, nothing lost."""
    await store.write(stored.write, {f"tickets/d{number}": "x" for number in range(3)})
    publisher = Publisher(settings, store, owner="one", failpoint=_raising("publish.after_send", 1))
    with pytest.raises(failpoints.FailpointReached):
        await publisher.run(asyncio.Event())
    marked = await position(store, settings)
    await store.write(publications.resign, facets_of(settings), "one")
    async with publishing(settings, store, "two"):
        await eventually(lambda: _reaches(store, settings, 3))
    found = await sent_versions(settings, 6)

    assert marked == 0
    assert sorted(found) == sorted([(f"tickets/d{number}", 1) for number in range(3)] * 2)


async def test_killed_before_sending_it_is_sent_once(settings: KafkaSettings, store: Store):
    """The end of a process before its transaction leaves nothing on the topic."""
    await store.write(stored.write, {"tickets/a": "x"})
    publisher = Publisher(settings, store, owner="one", failpoint=_raising("publish.before_send", 1))
    with pytest.raises(failpoints.FailpointReached):
        await publisher.run(asyncio.Event())
    await store.write(publications.resign, facets_of(settings), "one")
    async with publishing(settings, store, "two"):
        await eventually(lambda: _reaches(store, settings, 1))

    assert await sent_versions(settings, 1) == [("tickets/a", 1)]


async def test_a_sender_that_was_asleep_is_fenced_by_its_successor(settings: KafkaSettings):
    """Two senders of one id: the older one can send nothing more, and what it had begun is not there."""
    topic = facets_of(settings)
    old = transactions.TransactionalSender(settings, f"{topic}.fence")
    new = transactions.TransactionalSender(settings, f"{topic}.fence")
    await old.connect()
    await old.send(topic, [codec.Message(b"k", b"1")])
    await new.connect()
    with pytest.raises(transactions.Fenced):
        await old.send(topic, [codec.Message(b"k", b"stale")])
    await new.send(topic, [codec.Message(b"k", b"2")])
    await new.close()
    found = await kafka_topics.contents(settings, topic, 3, deadline_s=3)

    assert [record.value for record in found] == [b"1", b"2"]
    assert not old.connected


async def test_one_of_two_publishers_sends_and_the_other_takes_over(settings: KafkaSettings, store: Store):
    """Only one is elected; when it ends in order the other goes on where it stood, sending nothing twice."""
    await store.write(stored.write, {"tickets/a": "x"})
    async with publishing(settings, store, "two") as second:
        async with publishing(settings, store, "one") as first:
            await eventually(lambda: _reaches(store, settings, 1))
            elected = [one for one in (first, second) if one.position is not None]
        await store.write(stored.write, {"tickets/b": "x"})
        await eventually(lambda: _reaches(store, settings, 2), deadline_s=20)

    assert len(elected) == 1
    assert sorted(await sent_versions(settings, 2)) == [("tickets/a", 1), ("tickets/b", 1)]


async def test_a_publisher_that_lost_its_lease_marks_nothing(settings: KafkaSettings, store: Store):
    """Its lease taken in mid-transaction: the old one sends on, if at all, before its successor, and never marks."""
    await store.write(stored.write, {"tickets/a": "x"})
    loop = asyncio.get_running_loop()
    taken: list[Any] = []

    def take_over(name: str) -> None:
        if name == "publish.after_send" and not taken:
            taken.append(loop.create_task(store.write(_take_lease, facets_of(settings))))

    async with publishing(settings, store, "one", failpoint=take_over) as publisher:
        await eventually(lambda: taken and taken[0].done())
        await eventually(lambda: publisher.position is None)
        marked = await position(store, settings)

    assert marked in {0, 1}
    assert await store.write(publications.elect, facets_of(settings), "thief", LEASE_MS) == marked


async def test_a_position_that_went_back_in_the_store_is_gone_by(settings: KafkaSettings, store: Store):
    """A store restored to an earlier position under a running publisher: what follows that position is sent again."""
    await store.write(stored.write, {"tickets/a": "x", "tickets/b": "x"})
    async with publishing(settings, store, "one"):
        await eventually(lambda: _reaches(store, settings, 2))
        await store.write(_put_back, facets_of(settings), 0)
        await store.write(stored.write, {"tickets/c": "x"})
        await eventually(lambda: _reaches(store, settings, 3), what="the position comes back by sending")
    sent = await sent_versions(settings, 5)

    assert sorted(sent) == [("tickets/a", 1)] * 2 + [("tickets/b", 1)] * 2 + [("tickets/c", 1)]


async def test_a_position_that_moved_while_sending_is_not_overwritten(settings: KafkaSettings, store: Store):
    """Put back between sending and marking: the mark does not jump over what was not sent from there."""
    await store.write(stored.write, {"tickets/a": "x", "tickets/b": "x"})
    loop = asyncio.get_running_loop()
    put: list[Any] = []
    async with publishing(settings, store, "one") as first:
        await eventually(lambda: _reaches(store, settings, 2))
        del first

    def put_back(name: str) -> None:
        if name == "publish.after_send" and not put:
            put.append(loop.create_task(store.write(_put_back, facets_of(settings), 0)))

    await store.write(stored.write, {"tickets/c": "x"})
    async with publishing(settings, store, "two", failpoint=put_back):
        await eventually(lambda: put and put[0].done())
        await eventually(lambda: _reaches(store, settings, 3), deadline_s=20)
    sent = [uri for uri, _ in await sent_versions(settings, 6)]

    assert set(sent) == {"tickets/a", "tickets/b", "tickets/c"}
    assert sent.count("tickets/a") >= 2


def _put_back(tx: Any, topic: str, position: int) -> None:
    tx.execute(
        sa.text("UPDATE publications SET feed_position = :position WHERE topic = :topic"),
        {"position": position, "topic": topic},
    )


def _take_lease(tx: Any, topic: str) -> None:
    publications.resign(tx, topic, "one")
    publications.elect(tx, topic, "thief", LEASE_MS)


async def test_a_row_that_cannot_be_sent_is_set_aside_and_the_rest_goes_on(settings: KafkaSettings, store: Store):
    """A facets topic that takes only small records: the large one is set aside and shown, its neighbours are sent."""
    await _limit(settings, 2_000)
    await store.write(stored.write, {"tickets/a": "x", "tickets/m": "x", "tickets/z": "x"})
    await store.write(_inflate, "tickets/m", 10_000)
    async with publishing(settings, store) as publisher:
        await eventually(lambda: _reaches(store, settings, 3), deadline_s=30)
    aside = await store.read(stored.aside, facets_of(settings))

    assert [(one.uri, one.attempts) for one in aside] == [("tickets/m", 1)]
    assert sorted(key for key, _ in await sent_versions(settings, 2)) == ["tickets/a", "tickets/z"]
    assert publisher.set_aside == 1


async def test_what_was_set_aside_is_sent_when_it_fits_again(kafka_bootstrap: str, topic_prefix: str, sqlite_url: str):
    """Tried again alone when due, as the document now is; then it is no longer shown."""
    settings = await kafka_topics.make(kafka_bootstrap, topic_prefix)
    clock = stored.Clock()
    async with stored.opened(sqlite_url, clock) as store:
        await store.write(kafka_topics.activate)
        await _limit(settings, 2_000)
        await store.write(stored.write, {"tickets/m": "x"})
        await store.write(_inflate, "tickets/m", 10_000)
        async with publishing(settings, store):
            await eventually(lambda: _reaches(store, settings, 1), deadline_s=30)
            await _limit(settings, 100_000)
            clock.shift_ms = 60_000
            await eventually(lambda: _none_aside(store, settings), deadline_s=30)

    assert await sent_versions(settings, 1) == [("tickets/m", 1)]


async def _none_aside(store: Store, settings: KafkaSettings) -> bool:
    return not await store.read(stored.aside, facets_of(settings))


def _inflate(tx: Any, uri: str, size: int) -> None:
    table = stored.DOCUMENTS
    state = json.dumps({"title": "y" * size})
    tx.execute(table.update().where(table.c.uri == uri).values(state=state))


async def _limit(settings: KafkaSettings, size: int) -> None:
    """Let the facets topic take records up to a size, compacted as before."""
    resource = kafka_topics.topics.ConfigResource(
        kafka_topics.topics.ConfigResourceType.TOPIC,
        facets_of(settings),
        {"max.message.bytes": str(size), "cleanup.policy": "compact"},
    )
    async with kafka_topics.admin(settings) as admin:
        await admin.alter_configs([resource])


async def test_dead_letters_are_published_byte_for_byte(settings: KafkaSettings, store: Store):
    """Key, value and headers as they came, also none of them; what was wrong is said in added headers."""
    raws = [
        Raw(b"tickets/a", b"{", (("odd", b"\xff\x00"),), 5),
        Raw(None, b"x", (), 5),
        Raw(b"\xff", None, (), 5),
        Raw(None, None, (("only", b"header"),), 5),
    ]
    unsendable = Raw(b"tickets/a", b"{", (("\udcff", b"aiokafka cannot send this name"),), 5)
    documents_topic = topics.topic_names(settings.topic_prefix).documents
    await store.write(_reject, documents_topic, [*raws, unsendable])
    async with publishing(settings, store):
        await eventually(lambda: _no_letters(store))
    found = await kafka_topics.contents(settings, topics.topic_names(settings.topic_prefix).dead_letters, 4)
    kept = await store.read(dead_letters.find)
    by_offset = {dict(record.headers)["__facetline.errors.offset"]: record for record in found}

    assert [letter.raw for letter in kept] == [*raws, unsendable]
    for offset, raw in enumerate(raws):
        record = by_offset[str(offset).encode()]
        assert (record.key, record.value, record.headers[: len(raw.headers)]) == (raw.key, raw.value, raw.headers)
        assert dict(record.headers)["__facetline.errors.topic"] == documents_topic.encode()
        assert dict(record.headers)["__facetline.errors.attempts"] == b"1"


def _reject(tx: Any, topic: str, raws: list[Raw]) -> None:
    """Put records that cannot be applied into the store, as the write worker does."""
    positions.first_seen(tx, topic, 0, 0)
    _, active = definitions.active(tx)
    judged = tuple(codec.decode(raw, Position(topic, 1, 0, offset), active) for offset, raw in enumerate(raws))
    apply.apply(tx, [Batch(topic, 1, 0, 0, len(raws), judged, tuple(range(len(raws))))])


async def _no_letters(store: Store) -> bool:
    return not await store.read(dead_letters.unsent)


@pytest.mark.slow
async def test_a_broker_that_was_away_gets_everything(broker: kafka_broker.Broker, topic_prefix: str, sqlite_url: str):
    """Killed and started again while documents change: the publisher says that it waits, and then all is there."""
    settings = await kafka_topics.make(broker.bootstrap, topic_prefix)
    async with stored.opened(sqlite_url) as store:
        await store.write(kafka_topics.activate)
        await store.write(stored.write, {"tickets/a": "1"})
        async with publishing(settings, store) as publisher:
            await eventually(lambda: _reaches(store, settings, 1), deadline_s=30)
            await asyncio.to_thread(broker.kill)
            await store.write(stored.write, {"tickets/a": "2", "tickets/b": "1"})
            await eventually(lambda: publisher.waiting, deadline_s=40)
            await asyncio.to_thread(broker.start)
            await eventually(lambda: _is_all_sent(store, settings), deadline_s=60)
    found = await sent_versions(settings, 3)

    assert found[0] == ("tickets/a", 1)
    assert set(found[1:]) == {("tickets/a", 2), ("tickets/b", 1)}


async def test_readers_that_do_not_wait_for_commits_are_the_only_ones_that_see_aborted_records(settings: KafkaSettings):
    """A transaction whose last record is refused leaves nothing for a read-committed reader."""
    topic = facets_of(settings)
    sender = transactions.TransactionalSender(settings, f"{topic}.abort")
    await sender.connect()
    large = codec.Message(b"k", b"x" * (clients.DEAD_LETTER_BYTES_MAX + 1))
    with pytest.raises(transactions.Unsendable) as refused:
        await sender.send(topic, [codec.Message(b"k", b"first"), large])
    if not sender.connected:
        await sender.connect()
    await sender.send(topic, [codec.Message(b"k", b"second")])
    await sender.close()
    found = await kafka_topics.contents(settings, topic, 2, deadline_s=3)

    assert refused.value.index == 1
    assert [record.value for record in found] == [b"second"]
