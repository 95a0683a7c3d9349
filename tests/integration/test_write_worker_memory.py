"""The write worker over a log in memory, on SQLite: jumps, standstills, logs made anew or cut, two workers at once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import stored
from simulation.log import PARTITIONS, Intent, SimLog

from facetline.storage.db.engine import Store
from facetline.storage.log import dead_letters, documents, positions
from facetline.storage.log.events import Raw
from facetline.streams.kafka.log_reader import LogRecord, LogSlice
from facetline.streams.kafka.write_worker import IDLE_S, QUIET_S, WriteWorker
from facetline.streams.wire import codec


class WatchedLog:
    """A log in memory that lets a test do something after it was asked for its bounds."""

    def __init__(self, log: SimLog) -> None:
        self.log = log
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def bounds(self, partition: int) -> tuple[int, int]:
        """Return the first offset and the end, as they were when asked."""
        life = self.log.now(partition)
        said = (life.first, life.end)
        if self.meanwhile is not None:
            await self.meanwhile()
        return said

    async def partitions(self) -> int:
        """Always as many."""
        return len(PARTITIONS)

    async def read(self, partition: int, start: int, end: int, *, records_max: int) -> LogSlice:
        """Return what stands in a range."""
        return self.log.slice(partition, start, end, records_max)


class Rig:
    """A log and workers of one store, which share a clock that a test moves."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.log = SimLog()
        self.now_s = 1000.0
        self.worker = self.make_worker()

    def make_worker(self, log: WatchedLog | None = None) -> WriteWorker:
        """A worker as a new process would make it."""
        return WriteWorker(self.store, log or WatchedLog(self.log), "documents", clock=lambda: self.now_s)

    def append(self, *bodies: str) -> list[LogRecord]:
        """Write bodies to documents of the same name; return the records."""
        for body in bodies:
            uri = f"tickets/{body}"
            message = codec.encode_write(uri, body=body, state=None, source="test", event_id=body)
            self.log.append(0, Raw(message.key, message.value, message.headers, 1), Intent("write", uri, "test", body))
        return list(self.log.now(0).records.values())[-len(bodies) :]

    async def bodies(self, *names: str) -> list[str | None]:
        """Stored bodies, None for those that are not there."""
        got = [await self.store.read(documents.get, f"tickets/{name}") for name in names]
        return [one.body if one else None for one in got]

    async def position(self) -> positions.PositionState:
        """Where the partition stands."""
        return (await self.store.read(positions.get, "documents"))[0]


@pytest.fixture
async def rig(sqlite_url: str) -> AsyncIterator[Rig]:
    """A store with the collection `tickets`, and a worker that owns partition 0."""
    async with stored.opened(sqlite_url) as store:
        await store.write(stored.defined, "tickets")
        made = Rig(store)
        await made.worker.assigned([0])
        yield made


async def test_what_a_jump_leaves_out_is_read_before_what_comes_later(rig: Rig):
    """A record above the next one is a reason to read the log, not to pass what lies between."""
    *_, last = rig.append("a", "b", "c")

    await rig.worker.handle([last])

    assert await rig.bodies("a", "b", "c") == ["a", "b", "c"]
    assert (await rig.position()).next_offset == 3


async def test_what_was_never_delivered_is_found_at_a_standstill(rig: Rig):
    """A partition that stands still is asked about, and what it has is applied."""
    rig.append("a")
    rig.now_s += IDLE_S

    found = await rig.worker.check_idle()

    assert found == 1
    assert await rig.bodies("a") == ["a"]


async def test_a_log_made_anew_with_as_many_records_is_applied_from_its_start(rig: Rig):
    """The record below the position tells one log from another, when their ends do not."""
    await rig.worker.handle(rig.append("a", "b"))
    rig.log.remake(0)
    records = rig.append("c", "d", "e")
    rig.now_s += QUIET_S

    await rig.worker.handle(records[2:])

    assert await rig.bodies("c", "d", "e") == ["c", "d", "e"]
    assert (await rig.position()).incarnation == 2


async def test_what_a_log_delivered_before_it_was_made_anew_is_not_applied_to_the_new_one(rig: Rig):
    """A delivery that waits while another look finds a new log is not taken for the new log's first record."""
    log = WatchedLog(rig.log)
    worker = rig.make_worker(log)
    await worker.assigned([0])
    delivered = rig.append("a")
    await worker.handle(delivered)
    rig.log.remake(0)
    rig.now_s += IDLE_S
    waiting: list[asyncio.Task[None]] = []

    async def deliver() -> None:
        log.meanwhile = None
        waiting.append(asyncio.create_task(worker.handle(delivered)))
        await asyncio.sleep(0)  # it has begun, and waits for its turn

    log.meanwhile = deliver
    await worker.check_idle()
    await asyncio.gather(*waiting)

    assert (await rig.position()).incarnation == 2
    assert (await rig.position()).next_offset == 0
    await worker.handle(rig.append("b"))
    assert await rig.bodies("b") == ["b"]
    assert worker.stats.incarnations == 1


async def test_what_a_log_has_lost_is_one_dead_letter(rig: Rig):
    """Records that are deleted before they could be applied are said to be, and what follows them is applied."""
    rig.append("a", "b", "c")
    rig.log.cut(0, 2)
    rig.now_s += IDLE_S

    await rig.worker.check_idle()

    letters = await rig.store.read(dead_letters.find)
    assert [letter.reason for letter in letters] == ["log_truncated"]
    assert await rig.bodies("a", "b", "c") == [None, None, "c"]


async def test_a_position_that_another_worker_moves_meanwhile_is_no_sign_of_another_log(rig: Rig):
    """What was written and applied elsewhere after the log's end was asked for does not make the log a new one."""
    await rig.worker.handle(rig.append("a"))
    slow = WatchedLog(rig.log)
    late = rig.make_worker(slow)

    async def write_more() -> None:
        await rig.worker.handle(rig.append("b"))

    slow.meanwhile = write_more
    await late.assigned([0])

    assert late.stats.incarnations == 0
    assert (await rig.position()).next_offset == 2
    assert await rig.bodies("a", "b") == ["a", "b"]
