"""One simulated worker process: the real parts, wired as a worker wires them, on a store and a log with faults.

A kill drops the process where it stands: its store refuses every later word, and its tasks are cancelled.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from simulation.evaluator import CALL_S, SimEvaluator
from simulation.log import PARTITIONS, TOPIC
from simulation.store import Killed, SimStore, away, database

from facetline.facets import errors
from facetline.streams.classify.call import Assignment, CallLimits
from facetline.streams.classify.side_chain import SideChain
from facetline.streams.kafka.log_reader import LogRecord, LogSlice
from facetline.streams.kafka.publisher import Publisher
from facetline.streams.kafka.transactions import Fenced
from facetline.streams.kafka.write_worker import WriteWorker
from facetline.streams.reindex.runner import Reindexer
from facetline.streams.settings import KafkaSettings
from facetline.streams.wire.codec import Message

if TYPE_CHECKING:
    from simulation.world import World

LIMITS = CallLimits(
    concurrency=2,
    call_s=CALL_S,
    lease_margin_s=1.0,
    tries_max=4,
    retry_wait_max_s=20.0,
    retry_first_s=0.2,
    retry_most_s=1.0,
    probe_first_s=0.5,
    probe_most_s=2.0,
)
JOB_LEASE_S = 2.5
GRACE_S = 0.5
WORKER_PACE = 4.0
"""How much faster than the others' the write worker's clock runs: a simulated world has no minutes to stand still."""
TOLD_WRONGLY = 0.03
REHEARSED = 0.03


class Process:
    """A worker in a slot; `number` counts the processes that the slot has had."""

    def __init__(self, world: "World", slot: int, number: int, definitions: int) -> None:
        self.world = world
        self.slot = slot
        self.name = f"p{slot}.{number}"
        self.definitions = definitions
        self.dead = False
        self.tasks: set[asyncio.Task[Any]] = set()
        self.stop = asyncio.Event()
        self.store = SimStore(database().engine, self)
        self.worker = WriteWorker(self.store, self, TOPIC, failpoint=self.failpoint, clock=self._fast_clock)
        self._cursors: dict[int, int] = {}

    def _fast_clock(self) -> float:
        return self.world.loop.time() * WORKER_PACE

    # What the parts ask.

    def now_ms(self) -> int:
        """Return the store's time."""
        return self.world.now_ms()

    def failpoint(self, name: str) -> None:
        """Die here when told to."""
        self.must_live()
        left = self.world.armed.get(name, 0)
        if left:
            self.world.armed[name] = left - 1
            if left == 1:
                self.world.note(self.name, f"dies at {name}")
                self.world.promises.seen[f"killed at {name}"] += 1
                self.world.kill(self)
                raise Killed

    def must_live(self) -> None:
        """Raise when dead."""
        if self.dead:
            raise Killed

    async def enter(self, name: str, *, writing: bool) -> bool:
        """Wait before a transaction, or refuse it."""
        self.must_live()
        chance = self.world.chance("store")
        await asyncio.sleep(self.world.delay_s(self))
        self.must_live()
        if self.world.store_away(self):
            raise away()
        return writing and chance.random() < REHEARSED

    async def leave(self, name: str, result: object, *, writing: bool) -> None:
        """Check what was committed, then wait, or claim that it was not."""
        if writing:
            self.world.committed(self.name, name)
        chance = self.world.chance("store")
        if writing and self.world.faulty and chance.random() < TOLD_WRONGLY:
            raise away()
        await asyncio.sleep(self.world.delay_s(self))
        self.must_live()

    # The log, as this process sees it.

    async def bounds(self, partition: int) -> tuple[int, int]:
        """Return the first offset and the end."""
        await self._ask_broker(partition)
        life = self.world.log.now(partition)
        return life.first, life.end

    async def partitions(self) -> int:
        """Always as many."""
        await self._ask_broker(0)
        return len(PARTITIONS)

    async def read(self, partition: int, start: int, end: int, *, records_max: int) -> LogSlice:
        """Return what stands in a range, or a beginning of it."""
        await self._ask_broker(partition)
        chance = self.world.chance("log")
        most = records_max if chance.random() < 0.7 else chance.randint(1, 3)
        return self.world.log.slice(partition, start, end, most)

    async def _ask_broker(self, partition: int) -> None:
        await asyncio.sleep(self.world.chance("log").uniform(0.001, 0.05))
        self.must_live()
        if self.world.broker_away(partition):
            raise errors.BrokerUnavailable("simulated: the broker is away")

    # Its life.

    def start(self) -> None:
        """Start all parts."""
        store, world = self.store, self.world
        assignments = {
            each.name: Assignment(each, SimEvaluator(self, each.fingerprint), world.limits)
            for each in world.sets[self.definitions]
        }
        given: dict[str, Any] = {"owner": self.name, "failpoint": self.failpoint, "clock": world.loop.time}
        chain = SideChain(store, assignments, grace_s=GRACE_S, **given)
        known: dict[str, Any] = {"wake": chain.wake, "wanted": chain.wanted}
        reindexer = Reindexer(store, assignments=assignments, lease_s=JOB_LEASE_S, **known, **given)
        parts = [chain.run(self.stop), reindexer.run(self.stop), self._deliver(), self._idle()]
        if world.publishes:
            parts.append(Publisher(KafkaSettings(), store, sender=Sender(self), idle_s=1.5, **given).run(self.stop))  # type: ignore[arg-type]
        for part in parts:
            world.run(self, self._part(part))

    async def _part(self, part: Coroutine[Any, Any, None]) -> None:
        try:
            await part
        except Killed:
            self.world.kill(self)
        except asyncio.CancelledError:
            if not self.dead:
                raise
        except Exception as error:  # noqa: BLE001 (no part may ever end so: the finding of the run)
            self.world.broke(f"{self.name}: {type(error).__name__}: {error}", error)

    async def _deliver(self) -> None:
        """Deliver records of the owned partitions, as a consumer would that forgets, repeats and skips."""
        owned: tuple[int, ...] | None = None
        while not self.stop.is_set():
            wanted = self.world.owned(self.slot)
            if wanted != owned:
                owned = wanted
                await self.worker.assigned(owned)
                self._cursors = {each: self.world.group.get(each, 0) for each in owned}
                self._restart()
            delivered = [record for each in owned for record in self._next(each)]
            if delivered:
                await self.worker.handle(delivered)
                self._ack(delivered)
            self._restart()
            await asyncio.sleep(self.world.chance("deliver").uniform(0.05, 0.5))

    def _next(self, partition: int) -> list[LogRecord]:
        chance = self.world.chance("deliver")
        if self.world.delivers_nothing(partition):
            return []
        life = self.world.log.now(partition)
        at = max(self.world.disturb(partition, self._cursors.get(partition, 0)), life.first)
        found = self.world.log.slice(partition, at, life.end, chance.randint(1, 6)).records
        self._cursors[partition] = found[-1].offset + 1 if found else at
        return list(found)

    def _ack(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            self.world.group[record.partition] = record.offset + 1

    def _restart(self) -> None:
        for partition, offset in self.worker.take_restarts().items():
            self._cursors[partition] = offset
            self.world.group[partition] = offset

    async def _idle(self) -> None:
        while not self.stop.is_set():
            await asyncio.sleep(1.1)
            await self.worker.check_idle()


class Sender:
    """A transactional sender of the simulated broker: the newest that connected fences the others."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._epoch = 0

    @property
    def connected(self) -> bool:
        """Whether it has connected, as far as it knows."""
        return self._epoch > 0

    async def connect(self) -> None:
        """Fence all others."""
        await self._wait()
        self._process.world.epoch += 1
        self._epoch = self._process.world.epoch

    async def send(self, topic: str, messages: Sequence[Message]) -> None:
        """Append all, unless somebody has connected since."""
        await self._wait()
        world = self._process.world
        if self._epoch != world.epoch:
            self._epoch = 0
            raise Fenced
        world.published(topic, messages)
        await self._wait()

    async def close(self) -> None:
        """Disconnect."""
        self._epoch = 0

    async def _wait(self) -> None:
        world = self._process.world
        await asyncio.sleep(world.chance("sender").uniform(0.001, 0.1))
        self._process.must_live()
        if world.broker_away(None):
            self._epoch = 0
            raise errors.BrokerUnavailable("simulated: the broker is away")
