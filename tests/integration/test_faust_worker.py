"""The Kafka runtime's consumer on a real broker: kills, rebalances, outages, and a topic that is made anew."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import aiokafka
import kafka_broker
import kafka_topics
import kafka_worker
import pytest
import sqlalchemy as sa
import stored
from consuming import consuming
from polling import eventually

from facetline.facets import errors
from facetline.storage.db.engine import Store
from facetline.storage.log import dead_letters, documents, outcomes, positions
from facetline.streams.kafka import clients, consumer, log_reader, topics
from facetline.streams.kafka.consumer import FaustWorker
from facetline.streams.kafka.producer import Producer
from facetline.streams.kafka.write_worker import WriteWorker
from facetline.streams.settings import KafkaSettings
from facetline.streams.wire import codec

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

CYTHON = pytest.mark.parametrize("cython", [True, False], ids=["cython", "python"])
NEVER_S = 3600.0
"""A commit interval that no test lives to see."""


@pytest.fixture
async def settings(kafka_bootstrap: str, topic_prefix: str) -> KafkaSettings:
    """Topics of the test's own, with three partitions."""
    return await kafka_topics.make(kafka_bootstrap, topic_prefix, partitions=3)


@pytest.fixture
def store_url(sqlite_url: str) -> str:
    """SQLite alone: nothing here depends on the database."""
    return sqlite_url


@pytest.fixture
async def store(store: Store) -> Store:
    """A store with the collection `tickets`."""
    await store.write(kafka_topics.activate)
    return store


def writes(count: int, body: str = "body") -> list[codec.Message]:
    """Writes of as many documents."""
    return [kafka_topics.write(f"tickets/d{number}", body) for number in range(count)]


async def versions(store: Store) -> list[int]:
    """The version of every document."""
    table = stored.DOCUMENTS
    return await store.read(lambda tx: list(tx.execute(sa.select(table.c.version).order_by(table.c.uri)).scalars()))


async def test_records_are_applied_and_acknowledged(
    settings: KafkaSettings, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Writes, tombstones and aborted records: all as the log has them; offsets follow, and nothing else is made."""
    folder = tmp_path / "empty"
    await asyncio.to_thread(folder.mkdir)
    monkeypatch.chdir(folder)
    await kafka_topics.transaction(settings, [kafka_topics.write("tickets/no", "no")], commit=False)
    await kafka_topics.odd_header(settings)
    await kafka_topics.fill(settings, [*writes(20), codec.encode_delete("tickets/d7", source="test", event_id="x")])
    async with consuming(settings, store, commit_interval_s=0.2) as (worker, _):
        await eventually(lambda: worker.partitions == {0, 1, 2}, deadline_s=30)
        await eventually(lambda: _total(store, 26), deadline_s=30)
        await eventually(lambda: _committed_total(settings, 24), deadline_s=30)
    counts = await store.read(documents.counts)
    letters = await store.read(dead_letters.find)
    async with kafka_topics.admin(settings) as admin:
        made = [name for name in await admin.list_topics() if settings.topic_prefix in name]

    assert counts == {"tickets": {"pending": 19, "deleted": 1}}
    assert [letter.raw.headers[0][0].encode(errors="surrogateescape") for letter in letters] == [
        *(b"plain", kafka_topics.ODD_NAME, b"plain")
    ]
    assert len(made) == 3
    assert await asyncio.to_thread(os.listdir, folder) == []


async def _total(store: Store, end: int) -> bool:
    """Whether the positions of all partitions, added up, have come to `end` (markers count)."""
    found = await store.read(lambda tx: tx.execute(sa.text("SELECT sum(next_offset) FROM positions")).scalar_one())
    return (found or 0) >= end - 1


async def _committed_total(settings: KafkaSettings, records: int) -> bool:
    return sum((await kafka_topics.committed(settings)).values()) >= records


async def test_a_group_that_is_reset_to_the_start_changes_nothing(settings: KafkaSettings, store: Store):
    """All records are delivered again to a new worker: no version moves and nothing is cleared."""
    await kafka_topics.fill(settings, writes(30))
    async with consuming(settings, store, commit_interval_s=0.2):
        await eventually(lambda: _total(store, 30), deadline_s=30)
        await eventually(lambda: _committed_total(settings, 30), deadline_s=30)
    other = settings.model_copy(update={"group_id": f"{settings.group_id}.again"})  # a group without offsets
    async with consuming(other, store, commit_interval_s=0.2) as (worker, _):
        await eventually(lambda: _committed_total(other, 30), deadline_s=30)
        again = worker._worker.stats

    assert await versions(store) == [1] * 30
    assert (again.applied, again.rejected) == (0, 0)


@pytest.mark.slow
@CYTHON
async def test_killed_between_commit_and_acknowledgement(
    settings: KafkaSettings, store: Store, sqlite_url: str, cython: bool
):
    """SIGKILL after the store's commit, before Kafka hears: all is delivered again and applied once."""
    await kafka_topics.fill(settings, writes(40))
    killed = "apply.after_commit=kill"
    with kafka_worker.running(
        settings, sqlite_url, failpoint=killed, cython=cython, commit_interval_s=NEVER_S
    ) as process:
        ended = await asyncio.to_thread(process.wait, 60)
    applied_before = len(await versions(store))
    with kafka_worker.running(settings, sqlite_url, cython=cython, commit_interval_s=NEVER_S) as process:
        await asyncio.to_thread(kafka_worker.wait_assigned, process)  # by then it knows what SIGTERM means
        await eventually(lambda: _documents(store, 40), deadline_s=40)
        process.send_signal(signal.SIGTERM)
        stopped = await asyncio.to_thread(process.wait, 30)

    assert ended == -signal.SIGKILL
    assert applied_before > 0
    assert await versions(store) == [1] * 40
    assert stopped == 0


@pytest.mark.slow
async def test_killed_before_the_commit(settings: KafkaSettings, store: Store, sqlite_url: str):
    """SIGKILL with the transaction open: nothing of it stays, and the next process applies it."""
    await kafka_topics.fill(settings, writes(40))
    with kafka_worker.running(settings, sqlite_url, failpoint="apply.before_commit=kill") as process:
        await asyncio.to_thread(process.wait, 60)
    left = await versions(store)
    with kafka_worker.running(settings, sqlite_url):
        await eventually(lambda: _documents(store, 40), deadline_s=40)

    assert left == []
    assert await versions(store) == [1] * 40


async def _documents(store: Store, count: int) -> bool:
    return len(await versions(store)) == count


@pytest.mark.slow
@CYTHON
async def test_members_that_come_and_go_apply_every_record_once(
    settings: KafkaSettings, store: Store, sqlite_url: str, cython: bool
):
    """Rebalances in full flow, one of them by SIGKILL: every version counts once, whoever had the partition."""
    rounds = 6
    with (
        kafka_worker.running(settings, sqlite_url, cython=cython) as first,
        kafka_worker.running(settings, sqlite_url, cython=cython) as second,
    ):
        await asyncio.to_thread(kafka_worker.wait_assigned, first)
        await asyncio.to_thread(kafka_worker.wait_assigned, second)
        for number in range(rounds // 2):
            await kafka_topics.fill(settings, writes(200, f"b{number}"))
        first.kill()
        with kafka_worker.running(settings, sqlite_url, cython=cython) as third:
            for number in range(rounds // 2, rounds):
                await kafka_topics.fill(settings, writes(200, f"b{number}"))
            await asyncio.to_thread(kafka_worker.wait_assigned, third)
            await eventually(lambda: _all_at(store, 200, rounds), deadline_s=60)
            second.send_signal(signal.SIGTERM)
            stopped = await asyncio.to_thread(second.wait, 30)
    letters = await store.read(dead_letters.find)

    assert await versions(store) == [rounds] * 200
    assert stopped == 0
    assert letters == []


async def _all_at(store: Store, count: int, version: int) -> bool:
    return await versions(store) == [version] * count


@pytest.mark.slow
async def test_a_topic_made_anew_while_consuming_goes_on(settings: KafkaSettings, store: Store):
    """Deleted and made again under a running worker: its records are applied, and Kafka delivers again afterwards."""
    await kafka_topics.fill(settings, writes(300, "old"))
    async with consuming(settings, store, commit_interval_s=0.2, check_s=2.0) as (worker, _):
        await eventually(lambda: _total(store, 300), deadline_s=30)
        await eventually(lambda: _committed_total(settings, 300), deadline_s=30)
        await kafka_topics.make_anew(settings)
        await kafka_topics.fill(settings, writes(5, "new"))
        await eventually(lambda: _all_bodies(store, 5, "new"), deadline_s=60)
        await eventually(lambda: _incarnations(store, settings, 2), deadline_s=60)
        await eventually(lambda: _is_delivered(settings, store, worker), deadline_s=60)
        await eventually(lambda: _committed_below(settings, 300), deadline_s=30)


@pytest.mark.slow
async def test_a_group_whose_offsets_lie_above_the_log_is_put_right(settings: KafkaSettings, store: Store):
    """Faust drops what lies below the group's offset: all is applied nevertheless, and delivered after a while."""
    topic = topics.topic_names(settings.topic_prefix).documents
    arguments = clients.consumer_arguments(settings, group_id=settings.group_id)
    member = aiokafka.AIOKafkaConsumer(**arguments)
    await member.start()
    places = [aiokafka.TopicPartition(topic, partition) for partition in range(3)]
    member.assign(places)
    await member.commit(dict.fromkeys(places, 100_000))
    await member.stop()
    await kafka_topics.fill(settings, writes(30, "first"))
    async with consuming(settings, store, commit_interval_s=0.2, check_s=1.0) as (worker, _):
        await eventually(lambda: _all_bodies(store, 30, "first"), deadline_s=60)
        await eventually(lambda: _is_delivered(settings, store, worker), deadline_s=60)
        await eventually(lambda: _committed_below(settings, 300), deadline_s=30)


async def _is_delivered(settings: KafkaSettings, store: Store, worker: FaustWorker) -> bool:
    """Whether Kafka delivers what is written now, so that the log need not be asked."""
    before = worker._worker.stats.reread
    body = f"newer than {before}"
    await kafka_topics.fill(settings, writes(12, body))
    await eventually(lambda: _all_bodies(store, 12, body), deadline_s=30)
    return worker._worker.stats.reread == before


async def _committed_below(settings: KafkaSettings, records: int) -> bool:
    return sum((await kafka_topics.committed(settings)).values()) < records


async def _all_bodies(store: Store, count: int, body: str) -> bool:
    found = [await store.read(documents.get, f"tickets/d{number}") for number in range(count)]
    return all(one is not None and one.body == body for one in found)


async def _incarnations(store: Store, settings: KafkaSettings, incarnation: int) -> bool:
    topic = topics.topic_names(settings.topic_prefix).documents
    return all(one.incarnation == incarnation for one in (await store.read(positions.get, topic)).values())


@pytest.mark.slow
async def test_a_broker_that_is_killed_and_comes_back_is_waited_for(
    broker: kafka_broker.Broker, topic_prefix: str, store: Store
):
    """No broker at the start, then one, then it is killed and comes back: the worker goes on each time."""
    settings = await kafka_topics.make(broker.bootstrap, topic_prefix, partitions=2)
    await kafka_topics.fill(settings, writes(10))
    await asyncio.to_thread(broker.stop)
    async with consuming(settings, store, commit_interval_s=0.2) as (worker, _):
        await eventually(lambda: worker.waiting, deadline_s=20)
        await asyncio.to_thread(broker.start)
        await eventually(lambda: _total(store, 10), deadline_s=60)
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        await kafka_topics.fill(settings, writes(10, "again"))
        await eventually(lambda: _total(store, 20), deadline_s=60)

    assert await versions(store) == [2] * 10


@pytest.mark.slow
async def test_a_write_in_doubt_is_never_applied_however_late_it_lands(
    broker: kafka_broker.Broker, topic_prefix: str, store: Store
):
    """Broker hanging longer than a session: the write in doubt lands late and is rejected, later writes are applied."""
    settings = await kafka_topics.make(broker.bootstrap, topic_prefix, partitions=1)
    topic = topics.topic_names(topic_prefix).documents
    producer = Producer(settings, deadline_s=8.0)
    async with consuming(settings, store, commit_interval_s=0.2):
        await producer.send(kafka_topics.write("tickets/d0", "first"), topic)
        await eventually(lambda: _all_bodies(store, 1, "first"), deadline_s=40)
        deadline = producer.deadline_ms()
        doubtful = codec.encode_write(
            "tickets/d0", body="doubtful", state=None, source="test", event_id="doubt", deadline_ms=deadline
        )
        broker.pause()
        try:
            with pytest.raises(errors.WriteInDoubt):
                await producer.send(doubtful, topic, deadline_ms=deadline)
        finally:
            broker.resume()
        await eventually(lambda: _is_sent(producer, topic), deadline_s=40)
        await eventually(lambda: _all_bodies(store, 1, "later"), deadline_s=60)
    await producer.stop()
    letters = await store.read(dead_letters.find)
    seen = await store.read(outcomes.find, "test", "doubt")

    assert [letter.reason for letter in letters] in ([], ["expired"])
    assert seen is None or seen.outcome == "rejected"


async def _is_sent(producer: Producer, topic: str) -> bool:
    try:
        await producer.send(kafka_topics.write("tickets/d0", "later"), topic)
    except errors.TransientError:
        return False
    return True


async def test_a_worker_without_a_broker_stops_when_told(topic_prefix: str, store: Store):
    """Waiting for a broker that is not there does not hold up the end of the process."""
    settings = KafkaSettings(bootstrap_servers="127.0.0.1:1", topic_prefix=topic_prefix, group_id=topic_prefix)
    async with consuming(settings, store) as (worker, _):
        said = await eventually(lambda: worker.waiting, deadline_s=20)
        started = time.monotonic()

    assert "127.0.0.1" in said
    assert time.monotonic() - started < 30


@pytest.mark.slow
async def test_a_store_that_is_away_holds_records_back_and_loses_none(
    settings: KafkaSettings, store: Store, sqlite_url: str
):
    """The store locked by somebody: nothing is acknowledged, the membership stays; afterwards all is applied once."""
    async with consuming(settings, store, commit_interval_s=0.2) as (worker, _):
        await eventually(lambda: worker.partitions == {0, 1, 2}, deadline_s=30)
        lock = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        await kafka_topics.fill(settings, writes(300))
        with pytest.raises(AssertionError):
            await eventually(lambda: _committed_total(settings, 1), deadline_s=4, every_s=0.5)
        lock.execute("ROLLBACK")
        lock.close()
        await eventually(lambda: _documents(store, 300), deadline_s=60)
        await eventually(lambda: _committed_total(settings, 300), deadline_s=30)
        still = worker.partitions

    assert still == {0, 1, 2}
    assert await versions(store) == [1] * 300


@pytest.mark.slow
async def test_faust_that_delivers_nothing_any_more_is_noticed(settings: KafkaSettings, store: Store):
    """A fetcher that ended in silence: writes are applied all the same, and the process ends with an error."""
    topic = topics.topic_names(settings.topic_prefix).documents
    log = log_reader.KafkaLog(settings, topic)
    inner = WriteWorker(store, log, topic, clock=lambda: time.monotonic() * 100)  # stands still at once
    worker = FaustWorker(settings, topic, inner, check_s=0.5)
    stop = asyncio.Event()
    running = asyncio.create_task(worker.run(stop))
    await eventually(lambda: worker.partitions == {0, 1, 2}, deadline_s=30)
    assert worker._app is not None
    await worker._app._fetcher.stop()
    writing = asyncio.create_task(_keep_writing(settings, running))
    with pytest.raises(errors.FatalError, match="delivers nothing"):
        await asyncio.wait_for(running, 60)
    await writing
    await log.stop()

    assert inner.stats.reread == inner.stats.applied > 0


async def _keep_writing(settings: KafkaSettings, until: "asyncio.Task[None]") -> None:
    number = 0
    while not until.done():
        await kafka_topics.fill(settings, [kafka_topics.write(f"tickets/w{number}", "x")])
        number += 1


async def test_the_inbox_is_bounded_by_number_and_by_bytes():
    """A put waits while the inbox is full, and one event always fits, however large."""
    record = log_reader.LogRecord(0, 0, kafka_topics.raw(codec.Message(b"k", b"v")))
    inbox = consumer.Inbox()
    large = consumer.Delivered(None, record, consumer.INBOX_BYTES_MAX * 2)
    await inbox.put(large)
    blocked = asyncio.create_task(inbox.put(consumer.Delivered(None, record, 1)))
    none_through = await asyncio.wait({blocked}, timeout=0.1)
    taken = await inbox.take(1.0)
    await asyncio.wait_for(blocked, 1.0)
    rest = await inbox.take(1.0)

    assert not none_through[0]
    assert taken == [large]
    assert len(rest) == 1
    assert await inbox.take(0.01) == []


async def test_batches_end_at_their_size():
    """A batch stops at its byte limit before its number limit."""
    record = log_reader.LogRecord(0, 0, kafka_topics.raw(codec.Message(b"k", b"v")))
    inbox = consumer.Inbox()
    for _ in range(4):
        await inbox.put(consumer.Delivered(None, record, consumer.BATCH_BYTES_MAX // 2))

    assert [len(await inbox.take(1.0)) for _ in range(2)] == [2, 2]


def test_no_port_is_opened_and_help_stays_light():
    """The module does not load Faust until it runs."""
    code = "import sys, facetline.streams.kafka.consumer; print(any(name == 'faust' for name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(consumer.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "False\n"
