"""The write worker on a real Kafka and both stores: whatever was delivered, the store has what the log has, once."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import kafka_topics
import pytest
import stored
from aiokafka.admin import NewPartitions

from facetline.facets import errors
from facetline.storage import counters
from facetline.storage.db.engine import Store
from facetline.storage.log import dead_letters, documents, outcomes, positions
from facetline.streams import failpoints
from facetline.streams.kafka import log_reader, topics, write_worker
from facetline.streams.kafka.write_worker import WriteWorker
from facetline.streams.settings import KafkaSettings
from facetline.streams.wire import codec

pytestmark = pytest.mark.kafka


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


class Rig:
    """One worker over a store and a topic with one partition."""

    def __init__(self, settings: KafkaSettings, store: Store, log: log_reader.KafkaLog) -> None:
        self.settings = settings
        self.store = store
        self.log = log
        self.clock = Clock()
        self.worker = self.make_worker()

    def make_worker(self, **given: Any) -> WriteWorker:
        """A worker as a new process would make it."""
        return WriteWorker(self.store, self.log, self.log.topic, clock=self.clock, **given)

    async def fill(self, *bodies: str) -> None:
        """Write bodies to documents of the same name."""
        await kafka_topics.fill(self.settings, [kafka_topics.write(f"tickets/{body}", body) for body in bodies])

    async def delivered(self, *offsets: int) -> list[log_reader.LogRecord]:
        """Records as Kafka would deliver them: those at these offsets, in this order."""
        found = []
        for offset in offsets:
            found += (await self.log.read(0, offset, offset + 1, records_max=1)).records
        return found

    async def bodies(self, *names: str) -> list[str | None]:
        """Stored bodies, None for those that are not there."""
        got = [await self.store.read(documents.get, f"tickets/{name}") for name in names]
        return [one.body if one else None for one in got]

    async def version(self, name: str) -> int:
        """A document's version."""
        got = await self.store.read(documents.get, f"tickets/{name}")
        return got.version if got else 0

    async def position(self) -> positions.PositionState:
        """Where the partition stands."""
        return (await self.store.read(positions.get, self.log.topic))[0]


@pytest.fixture
async def rig(kafka_bootstrap: str, topic_prefix: str, store_url: str) -> AsyncIterator[Rig]:
    """A topic, a store with the collection `tickets`, and a worker that owns partition 0."""
    settings = await kafka_topics.make(kafka_bootstrap, topic_prefix)
    log = log_reader.KafkaLog(settings, topics.topic_names(topic_prefix).documents)
    async with stored.opened(store_url) as store:
        await store.write(kafka_topics.activate)
        made = Rig(settings, store, log)
        await made.worker.assigned([0])
        yield made
    await log.stop()


async def test_records_in_order_are_applied_without_asking_the_log(rig: Rig):
    """What continues at the position is applied as it came; the position stands above it afterwards."""
    await rig.fill("a", "b", "c")
    await rig.worker.handle(await rig.delivered(0, 1))
    await rig.worker.handle(await rig.delivered(2))

    assert await rig.bodies("a", "b", "c") == ["a", "b", "c"]
    assert (await rig.position()).next_offset == 3
    assert (rig.worker.stats.applied, rig.worker.stats.reread) == (3, 0)


async def test_a_jump_is_read_again_from_the_log_before_what_comes_later(rig: Rig):
    """Kafka delivers only the last of five records: all five are applied, in their order."""
    bodies = [kafka_topics.write("tickets/a", body) for body in ("1", "2", "3", "4", "5")]
    await kafka_topics.fill(rig.settings, bodies)
    await rig.worker.handle(await rig.delivered(4))

    assert await rig.bodies("a") == ["5"]
    assert await rig.version("a") == 5
    assert rig.worker.stats.reread == 5


async def test_a_long_gap_is_read_in_bounded_batches(rig: Rig):
    """A gap of more than two batches is applied whole, no transaction larger than the bound."""
    sizes: list[int] = []
    worker = rig.make_worker(on_applied=lambda found: sizes.append(len(found)))
    await worker.assigned([0])
    await rig.fill(*(f"d{number}" for number in range(1201)))
    await worker.handle(await rig.delivered(1200))

    assert sum(sizes) == 1201
    assert max(sizes) <= write_worker.EVENTS_MAX
    assert (await rig.position()).next_offset == 1201


async def test_redelivery_changes_nothing_at_any_age(rig: Rig):
    """Old records again, in any order: no version moves, no dead letter is made."""
    await rig.fill("a", "b", "c")
    await rig.worker.handle(await rig.delivered(0, 1, 2))
    await rig.worker.handle(await rig.delivered(1))
    await rig.worker.handle(await rig.delivered(0, 1, 2))
    await rig.worker.handle(await rig.delivered(2, 0))

    assert [await rig.version(name) for name in ("a", "b", "c")] == [1, 1, 1]
    assert (await rig.position()).next_offset == 3
    assert await rig.store.read(dead_letters.find) == []


async def test_a_new_process_goes_on_where_the_store_stands(rig: Rig):
    """The position survives the process, whatever is delivered to the next one."""
    await rig.fill("a", "b")
    await rig.worker.handle(await rig.delivered(0))
    successor = rig.make_worker()
    await successor.assigned([0])
    await successor.handle(await rig.delivered(0, 1))

    assert await rig.bodies("a", "b") == ["a", "b"]
    assert await rig.version("a") == 1
    assert successor.stats.applied == 1


@pytest.mark.parametrize("records", [2, 3, 5], ids=["fewer", "as many", "more"])
async def test_a_topic_made_anew_is_applied_from_its_start(rig: Rig, records: int):
    """Deleted and made again with fewer, as many or more records: a new incarnation, nothing of it skipped."""
    await rig.fill("a", "b", "c")
    await rig.worker.handle(await rig.delivered(0, 1, 2))
    await kafka_topics.make_anew(rig.settings)
    names = [f"new{number}" for number in range(records)]
    await rig.fill(*names)
    await rig.worker.assigned([0])
    await rig.worker.handle(await rig.delivered(records - 1))

    assert await rig.bodies(*names) == names
    assert await rig.bodies("a", "b", "c") == ["a", "b", "c"]
    assert (await rig.position()).incarnation == 2
    assert (await rig.position()).next_offset == records


async def test_records_of_the_topic_that_is_gone_are_not_taken_for_the_new_ones(rig: Rig):
    """What Kafka still held of the old topic says nothing about the new one: the log does."""
    await rig.fill("a", "b", "c")
    await rig.worker.handle(await rig.delivered(0))
    stale = await rig.delivered(1, 2)
    await kafka_topics.make_anew(rig.settings)
    await rig.fill("x", "y")
    rig.clock.now_s += write_worker.QUIET_S
    await rig.worker.handle(stale)

    assert await rig.bodies("b", "c", "x", "y") == [None, None, "x", "y"]


async def test_a_topic_made_anew_shows_at_the_next_record_after_a_pause(rig: Rig):
    """More records than before, and Kafka goes on at the old offset: the pause makes the worker look below it."""
    await rig.fill("a")
    await rig.worker.handle(await rig.delivered(0))
    await kafka_topics.make_anew(rig.settings)
    await rig.fill("x", "y")
    rig.clock.now_s += write_worker.QUIET_S
    await rig.worker.handle(await rig.delivered(1))

    assert await rig.bodies("x", "y") == ["x", "y"]
    assert rig.worker.stats.incarnations == 1


async def test_what_the_log_has_lost_is_one_dead_letter(rig: Rig):
    """Records deleted before they were applied: one letter says from where to where, the rest is applied."""
    await rig.fill("a", "b", "c", "d")
    await rig.worker.handle(await rig.delivered(0))
    await kafka_topics.truncate(rig.settings, 3)
    await rig.worker.handle(await rig.delivered(3))
    letters = await rig.store.read(dead_letters.find)

    assert [(letter.reason, letter.position.offset) for letter in letters] == [("log_truncated", 1)]
    assert "1 to 2" in letters[0].message
    assert await rig.bodies("a", "b", "c", "d") == ["a", None, None, "d"]


async def test_a_topic_first_seen_late_begins_at_its_start(rig: Rig):
    """What was deleted before the store ever saw the topic is nobody's loss."""
    settings = await kafka_topics.make(rig.settings.bootstrap_servers or "", f"{rig.settings.topic_prefix}b")
    log = log_reader.KafkaLog(settings, topics.topic_names(settings.topic_prefix).documents)
    await kafka_topics.fill(settings, [kafka_topics.write(f"tickets/{name}", name) for name in "abc"])
    await kafka_topics.truncate(settings, 2)
    worker = WriteWorker(rig.store, log, log.topic)
    await worker.assigned([0])
    await worker.handle((await log.read(0, 2, 3, records_max=1)).records)
    await log.stop()

    assert await rig.bodies("a", "b", "c") == [None, None, "c"]
    assert await rig.store.read(dead_letters.find) == []


async def test_markers_and_aborted_records_are_passed(rig: Rig):
    """Offsets without a record are no gap: the position moves over them, nothing aborted is applied."""
    await kafka_topics.transaction(rig.settings, [kafka_topics.write("tickets/no", "no")], commit=False)
    await kafka_topics.transaction(rig.settings, [kafka_topics.write("tickets/a", "a")], commit=True)
    await rig.fill("b")
    await rig.worker.handle(await rig.delivered(2))
    await rig.worker.handle(await rig.delivered(4))

    assert await rig.bodies("no", "a", "b") == [None, "a", "b"]
    assert (await rig.position()).next_offset == 5
    assert await rig.store.read(dead_letters.find) == []


async def test_a_position_on_a_marker_is_recognised_again(rig: Rig):
    """A partition that ends with a marker is the same log to the next process."""
    await kafka_topics.transaction(rig.settings, [kafka_topics.write("tickets/a", "a")], commit=True)
    rig.clock.now_s += write_worker.IDLE_S
    await rig.worker.check_idle()
    successor = rig.make_worker()
    await successor.assigned([0])

    assert (await rig.position()).next_offset == 2
    assert successor.stats.incarnations == 0


async def test_what_was_never_delivered_is_found_when_a_partition_stands_still(rig: Rig):
    """No delivery at all: after ten seconds the log is asked, before that it is not."""
    await rig.fill("a", "b")
    early = await rig.worker.check_idle()
    rig.clock.now_s += write_worker.IDLE_S
    found = await rig.worker.check_idle()
    again = await rig.worker.check_idle()

    assert (early, found, again) == (0, 2, 0)
    assert await rig.bodies("a", "b") == ["a", "b"]


async def test_partitions_of_others_are_left_alone(rig: Rig):
    """Only owned partitions are looked after."""
    await rig.fill("a")
    await rig.worker.assigned([])
    rig.clock.now_s += write_worker.IDLE_S

    assert await rig.worker.check_idle() == 0
    assert await rig.bodies("a") == [None]


async def test_bad_records_become_dead_letters_and_hold_nothing_up(rig: Rig):
    """Poison between good records: the good are applied, each bad one is kept byte for byte with its reason."""
    bad = [
        codec.Message(b"tickets/x1", b"{"),
        codec.Message(None, b'{"body":"x"}'),
        codec.Message(b"elsewhere/x2", b'{"body":"x"}'),
        codec.Message(b"tickets/x3", b'{"body":"a\\u0000b"}'),
        codec.Message(b"tickets/x4", b'{"body":7}', (("odd", b"\xff"),)),
        codec.Message(b"tickets/x5", b'{"state":{}}'),
        codec.Message(b"tickets/x6", b"", ()),
    ]
    mixed = [message for one in bad for message in (one, kafka_topics.write("tickets/good", str(id(one))))]
    await kafka_topics.fill(rig.settings, mixed, partition=0)
    await rig.worker.handle(await rig.delivered(*range(len(mixed))))
    letters = await rig.store.read(dead_letters.find)

    assert [letter.reason for letter in letters] == [
        *("not_json", "null_key", "unknown_collection", "invalid_text", "invalid_body", "no_document", "not_json")
    ]
    assert [(letter.raw.key, letter.raw.value, letter.raw.headers) for letter in letters] == [
        (one.key, one.value, one.headers) for one in bad
    ]
    assert await rig.version("good") == len(bad)


async def test_keys_on_another_partition_than_their_own_are_counted(rig: Rig):
    """A producer that hashes keys in another way is noticed; its records are applied all the same."""
    keys = [f"tickets/k{number}" for number in range(20)]
    strays = [key for key in keys if write_worker.partition_of(key.encode(), 4) != 0]
    async with kafka_topics.admin(rig.settings) as admin:
        await admin.create_partitions({rig.log.topic: NewPartitions(4)})
    worker = rig.make_worker(partitions=4)
    await worker.assigned([0])
    await kafka_topics.fill(rig.settings, [kafka_topics.write(key, "x") for key in keys], partition=0)
    await worker.handle(await rig.delivered(*range(20)))

    assert (await rig.store.read(counters.all))[write_worker.MISPLACED] == len(strays) > 0
    assert worker.stats.applied == 20


def _failing(times: int, error: Exception) -> Callable[[str], None]:
    """A failpoint that raises the first few times before a commit."""
    left = [error] * times

    def act(name: str) -> None:
        if name == "apply.before_commit" and left:
            raise left.pop()

    return act


async def test_a_store_that_is_away_is_waited_for(rig: Rig):
    """Transient errors never leave the worker; what they interrupted is applied once."""
    said: list[str | None] = []
    worker = rig.make_worker(
        failpoint=_failing(2, errors.StoreUnavailable("away")),
        on_applied=lambda _: said.append(worker.waiting),
    )
    await worker.assigned([0])
    await rig.fill("a")
    await worker.handle(await rig.delivered(0))

    assert said == ["away"]
    assert worker.waiting is None
    assert await rig.version("a") == 1


async def test_an_end_before_the_commit_leaves_nothing_behind(rig: Rig):
    """Cut off with the transaction open: no document, no outcome, no position; then all of it, once."""
    cut = rig.make_worker(failpoint=_failing(1, failpoints.FailpointReached("here")))
    await cut.assigned([0])
    await rig.fill("a")
    with pytest.raises(failpoints.FailpointReached):
        await cut.handle(await rig.delivered(0))
    left = (await rig.bodies("a"), await rig.store.read(outcomes.find, "test", "tickets/a:a"))
    position = await rig.position()
    await rig.worker.handle(await rig.delivered(0))

    assert left == ([None], None)
    assert position.next_offset == 0
    assert await rig.version("a") == 1


async def test_two_workers_that_both_think_they_own_a_partition_apply_each_record_once(rig: Rig):
    """A zombie of an old assignment and its successor: every version counts once."""
    other = rig.make_worker()
    await other.assigned([0])
    await kafka_topics.fill(rig.settings, [kafka_topics.write("tickets/a", str(number)) for number in range(30)])
    for offset in range(0, 30, 3):
        await rig.worker.handle(await rig.delivered(offset))
        await other.handle(await rig.delivered(offset, offset + 1))
        await rig.worker.handle(await rig.delivered(offset + 1, offset + 2))

    assert await rig.version("a") == 30
    assert (await rig.position()).next_offset == 30
