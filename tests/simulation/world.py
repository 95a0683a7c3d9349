"""The simulated world: processes, log, faults, and the model that looks at every commit.

`simulate(seed)` runs one seed; the same seed runs the same way, down to the hash of its trace.
"""

import asyncio
import contextvars
import hashlib
import random
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simulation import finish, ops
from simulation.definitions import definition_sets
from simulation.log import PARTITIONS, TOPIC, Partition, SimLog
from simulation.loop import Loop, Stuck
from simulation.plan import LAST_S, SLOTS, Op, plan, publishes
from simulation.process import LIMITS, Process
from simulation.promises import Broken, Promises
from simulation.store import SimStore, database

from facetline.storage import definitions
from facetline.storage.log import positions
from facetline.streams.reindex.runner import UNANSWERED_PER_SLOT
from facetline.streams.wire.codec import Message

START_MS = 1_800_000_000_000
HESITATES = 0.04
TRACE_SHOWN = 40
WALL_S = 400.0
"""Simulated time after which a run is called stuck."""

_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


@dataclass(frozen=True)
class Result:
    """What came of a run: the fault found, if any, and the trace's hash and end."""

    seed: int
    ops: int
    commits: int
    calls: int
    hash: str
    failure: str | None
    trace: tuple[str, ...]
    kills: int
    seen: Counter[str]


class World:
    """One run."""

    def __init__(self, seed: int, ops: Sequence[Op], loop: Loop) -> None:
        self.seed = seed
        self.ops = ops
        self.loop = loop
        self.log = SimLog()
        self.limits = replace(LIMITS, concurrency=1 + seed % 2)
        self.promises = Promises(UNANSWERED_PER_SLOT * self.limits.concurrency, round(LIMITS.call_s * 1000))
        self.sets = definition_sets(together=seed % 3 != 0)
        self.faulty = True
        self.slots = 2 if seed % 4 else len(SLOTS)
        self.publishes = publishes(seed)
        self.views = seed % 10 == 0
        self.silent = False
        self.shift_ms = 0
        self.trouble = random.Random(f"trouble {seed}").choice((0.0, 0.1, 0.3))  # noqa: S311 (as below)
        self.processes: dict[int, Process] = {}
        self.group: dict[int, int] = {}
        self.epoch = 0
        self.facets_topic: dict[str, int] = {}
        self.failure: str | None = None
        self.failed = asyncio.Event()
        self.trace: deque[str] = deque(maxlen=TRACE_SHOWN)
        self.commits = 0
        self.kills = 0
        self.assigned = {0: 0, 1: 1}
        self.also: dict[int, int] = {}
        self.armed: dict[str, int] = {}
        self.after_turn: Callable[[], Coroutine[Any, Any, None]] | None = None
        self.until: dict[Any, float] = {}
        self.slow: dict[int, float] = {}
        self.mode = "fine"
        self.disturbed: dict[int, int | None] = {}
        self.feed_view: dict[str, Any] = {}
        self.feed_at = 0
        self.active = 0
        self.sent_ids: list[Any] = []
        self._changes = -1
        self._hash = hashlib.sha256()
        self._chances: dict[str, random.Random] = {}
        self._positions: dict[tuple[int, int], int] = {}
        self._started = 0
        self._restarts: set[asyncio.Task[Any]] = set()

    # Time, chance and notes.

    def now_ms(self) -> int:
        """Return the store's time."""
        return START_MS + round(self.loop.time() * 1000) + self.shift_ms

    def chance(self, name: str) -> random.Random:
        """Return the source of chance for one kind of thing."""
        if name not in self._chances:
            self._chances[name] = random.Random(f"{name} {self.seed}")  # noqa: S311 (repeatable on purpose)
        return self._chances[name]

    def note(self, who: str, said: str) -> None:
        """Add a line to the trace."""
        line = f"{self.loop.time():9.3f} {who:6} {said}"
        self._hash.update(line.encode())
        self.trace.append(line)

    def broke(self, said: str, error: BaseException | None = None) -> None:
        """Note the first fault found; the run ends."""
        if self.failure is None:
            self.failure = f"at {self.loop.time():.3f} s: {said}"
            if error is not None and not isinstance(error, Broken):
                import traceback

                self.failure += "\n" + "".join(traceback.format_exception(error)[-8:])
            self.note("world", "BROKEN")
        self.failed.set()

    def check(self, work: Callable[[], object]) -> None:
        """Run a check; what it finds ends the run."""
        try:
            work()
        except Broken as broken:
            self.broke(str(broken))

    def left(self, name: Any) -> bool:
        """Say whether a fault of limited time is still on."""
        return self.faulty and self.loop.time() < self.until.get(name, 0.0)

    def last(self, name: Any, seconds: float) -> None:
        """Start a fault of limited time."""
        self.until[name] = self.loop.time() + seconds

    # Faults that processes ask about.

    def delay_s(self, process: Process) -> float:
        """Return how long a word to or from the store takes."""
        chance = self.chance("store")
        if self.left(("slow", process.slot)) and chance.random() < 0.3:
            return chance.uniform(0.0, self.slow[process.slot])
        return chance.uniform(0.0, 0.5) if chance.random() < HESITATES else chance.expovariate(200)

    def store_away(self, process: Process) -> bool:
        """Say whether the store does not answer a process."""
        return self.left(("away", process.slot))

    def broker_away(self, partition: int | None) -> bool:
        """Say whether the broker does not answer."""
        down = partition is not None and self.loop.time() < self.log.down_until_s[partition]
        return down or self.left("broker")

    def evaluator_mode(self) -> str:
        """Return what evaluators do just now."""
        return "never" if self.silent else self.mode if self.left("evaluator") else "fine"

    def delivers_nothing(self, partition: int) -> bool:
        """Say whether deliveries stand still."""
        return self.broker_away(partition) or self.left("stuck")

    def disturb(self, partition: int, cursor: int) -> int:
        """Return where delivery goes on: elsewhere, when it was rewound or jumps."""
        moved = self.disturbed.pop(partition, None)
        end = self.log.now(partition).end
        if moved is None:
            return min(cursor, end)
        return min(max(cursor + moved, 0), end)

    def owned(self, slot: int) -> tuple[int, ...]:
        """Return the partitions of a slot."""
        shared = {each for each, other in self.also.items() if other == slot and self.left(("shared", each))}
        return tuple(sorted(shared | {each for each, owner in self.assigned.items() if owner == slot}))

    # Processes.

    def run(self, process: Process, work: Coroutine[Any, Any, Any]) -> None:
        """Run work as a process's: the tasks that it starts are the process's, too."""
        context = contextvars.copy_context()
        context.run(_process.set, process)
        self.loop.create_task(work, context=context)

    def make_task(self, loop: Any, work: Any, **options: Any) -> "asyncio.Task[Any]":
        """Make a task, and remember whose it is."""
        context = options.get("context")
        process = context.get(_process) if context is not None else _process.get()
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
        if process is not None:
            process.tasks.add(task)
            task.add_done_callback(process.tasks.discard)
            if process.dead:
                task.cancel()
        return task

    def start(self, slot: int, definition_set: int) -> None:
        """Start a process in a slot."""
        self._started += 1
        self.processes[slot] = Process(self, slot, self._started, definition_set)
        self.note(self.processes[slot].name, f"starts with definitions {definition_set}")
        self.processes[slot].start()

    def kill(self, process: Process) -> None:
        """Kill a process, and start another in its place soon."""
        if process.dead:
            return
        process.dead = True
        self.kills += 1
        for task in sorted(process.tasks, key=lambda each: each.get_name()):
            task.cancel()
        if self.failure is None:
            delay_s = self.chance("restart").uniform(0.1, 2.0)
            self.loop.call_later(delay_s, self._restart, process)

    def _restart(self, process: Process) -> None:
        for task in list(process.tasks):
            task.cancel()
        if self.processes.get(process.slot) is process and self.failure is None:
            newest = self.active if not self.faulty or self.chance("restart").random() < 0.6 else process.definitions
            self.start(process.slot, newest)

    async def stop(self, process: Process) -> None:
        """Stop a process in peace; another starts when it has ended."""
        process.stop.set()
        deadline = self.loop.time() + 30.0
        while process.tasks and self.loop.time() < deadline and not process.dead:  # noqa: ASYNC110 (simulated)
            await asyncio.sleep(0.2)
        if not process.dead:
            self.kill(process)

    # What was committed.

    def committed(self, who: str, function: str) -> None:
        """Look at the store after a commit."""
        self.commits += 1
        if function == "turn" and self.after_turn is not None:
            self.loop.create_task(self.after_turn(), context=contextvars.Context())
            self.after_turn = None
        changes = database().sqlite.total_changes
        if changes != self._changes:  # else no row is another
            self._changes = changes
            self.check(lambda: self._look(who, function))

    def _look(self, who: str, function: str) -> None:
        data = database()
        for row in data.rows("SELECT partition, incarnation, next_offset FROM positions ORDER BY 1, 2"):
            self._consume(row["partition"], row["incarnation"], row["next_offset"])
        found = data.rows("SELECT d.*, b.body FROM documents d LEFT JOIN bodies b ON b.uri = d.uri ORDER BY d.uri")
        said = self.promises.committed(function, who, {row["uri"]: row for row in found}, self.now_ms())
        jobs = data.rows("SELECT * FROM jobs")
        if jobs:
            items = data.rows("SELECT * FROM job_items ORDER BY job_id, uri")
            self.promises.jobs({row["id"]: row for row in jobs}, items)
        if said:
            self.note(who, f"{function}: {', '.join(said)}")

    def _consume(self, partition: int, incarnation: int, to: int) -> None:
        at = self._positions.get((partition, incarnation), 0)
        life = self.log.lives[partition][incarnation - 1]
        if to < at:
            raise Broken(f"the position of {partition} went back from {at} to {to}")
        for offset in range(at, to):
            if offset in life.intents and not self._is_truncated(life, partition, offset):
                self.promises.model.take(life.intents[offset], (incarnation, partition, offset))
        self._positions[partition, incarnation] = to

    def is_known(self, partition: int) -> bool:
        """Say whether the store has a position in the log's present life."""
        return (partition, self.log.now(partition).incarnation) in self._positions

    def applied_to(self, partition: int) -> int:
        """Return how far the log's present life has been applied."""
        return self._positions.get((partition, self.log.now(partition).incarnation), 0)

    def _is_truncated(self, life: Partition, partition: int, offset: int) -> bool:
        """Say whether the store has said that this record was gone, and rightly so."""
        if offset >= life.first:
            return False
        said = database().rows("SELECT event_id FROM outcomes WHERE reason = 'log_truncated'")
        for row in said:
            incarnation, number, offsets = row["event_id"].split("/")
            start, _, last = offsets.partition("-")
            if (int(incarnation), int(number)) == (life.incarnation, partition) and int(start) <= offset <= int(last):
                return True
        return False

    def published(self, topic: str, messages: Sequence[Message]) -> None:
        """Take what was sent to the facets topic: versions of a document never go back."""
        if not topic.endswith("facets.v1"):
            return
        for message in messages:
            uri = (message.key or b"").decode()
            version = int(dict(message.headers)["ce_version"])
            if version < self.facets_topic.get(uri, 0):
                self.broke(f"{uri} was published as {version} after {self.facets_topic[uri]}")
            self.facets_topic[uri] = version

    # The run.

    async def live(self) -> None:
        """Set up, do what the plan says, heal everything, and wait for the end."""
        keeper = SimStore(database().engine, _Keeper(self))
        await keeper.write(definitions.activate, self.sets[0])
        for partition in PARTITIONS:
            await keeper.write(positions.first_seen, TOPIC, partition, 0)
        for slot in range(self.slots):
            self.start(slot, 1 if slot == self.slots - 1 else 0)
        helpers = [asyncio.ensure_future(finish.follow(self, keeper))]
        try:
            for op in self.ops:
                await self._until(op.at_s)
                if self.failure:
                    return
                self.note("plan", f"{op.kind} {op.what}")
                await ops.do(self, keeper, op)
            await self._until(LAST_S)
            await finish.finish(self, keeper)
        finally:
            for helper in helpers:
                helper.cancel()

    async def _until(self, at_s: float) -> None:
        while self.loop.time() < at_s and not self.failure:
            try:
                async with asyncio.timeout(at_s - self.loop.time()):
                    await self.failed.wait()
            except TimeoutError:
                return


class _Keeper:
    """The host of the world's own store: never away, never slow."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now_ms(self) -> int:
        """Return the store's time."""
        return self._world.now_ms()

    async def enter(self, name: str, *, writing: bool) -> bool:
        """Let it pass."""
        return False

    async def leave(self, name: str, result: object, *, writing: bool) -> None:
        """Look at what was committed."""
        if writing:
            self._world.committed("world", name)


def simulate(seed: int, ops: Sequence[Op] | None = None) -> Result:
    """Run one seed, with other operations than its own if they are given."""
    database().reset()
    random.seed(seed)
    loop = Loop()
    ops = plan(seed) if ops is None else ops
    try:
        asyncio.set_event_loop(loop)
        world = World(seed, ops, loop)
        loop.set_task_factory(world.make_task)  # type: ignore[arg-type]
        try:
            loop.run_until_complete(asyncio.wait_for(world.live(), WALL_S))
        except (TimeoutError, Broken, Stuck) as error:
            world.broke(f"{type(error).__name__} {error}")
        _end(loop)
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    return Result(
        seed,
        len(ops),
        world.commits,
        len(world.promises.calls),
        world._hash.hexdigest(),
        world.failure,
        tuple(world.trace),
        world.kills,
        world.promises.seen,
    )


def _end(loop: Loop) -> None:
    for _ in range(20):
        left = asyncio.all_tasks(loop)
        if not left:
            return
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left, timeout=0.5))
