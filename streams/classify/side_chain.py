"""The side chain: claim what is due, ask its evaluator, store the answer if it is still about the current body.

One loop, one exchange with the store at a time. The steps of a round, and what a crash after each of them means:

1. Results of ended calls are stored and free call slots are filled with claims, in one transaction; with slow calls
   in two, the claims first, and the results of several rounds together. After it the claims are ours until their leases
   end; the process that finds one expired records a crash and calls again.
2. Each claim becomes one task that makes one call. No transaction is open meanwhile. After a call its answer is lost
   and asked for again, as above.
3. Back to 1, as soon as a result is there or the queue is worth a look.

No event in memory is ever the reason for a call: the queue is the store's pending rows. What an evaluator does fails,
delays or answers its one document and nothing else.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from facetline.facets import errors
from facetline.facets.definitions import Definitions
from facetline.facets.documents import DocumentReason
from facetline.storage import definitions, generations, usage_ledger
from facetline.storage.db import engine
from facetline.storage.queue import queue
from facetline.streams import failpoints, tasks
from facetline.streams.classify import call as calls
from facetline.streams.classify import exchange
from facetline.streams.classify.call import Answer, Assignment, Call, Cancelled, Failure, NotStarted, Verdict
from facetline.streams.classify.evaluator_lane import POLL_S, EvaluatorLane, Retry, lanes_of
from facetline.streams.classify.outage_reports import OutageReports
from facetline.streams.classify.stats import Stats

LINGER_PER_EXCHANGE = 3.0
LINGER_MAX_S = 0.1
"""Results wait for others for three times as long as the last exchange took, at most a tenth of a second, and only
while at least half of the call slots are at work: so the store takes a quarter of the time at most, whatever it costs.
"""

SLOW_PER_EXCHANGE = 2.0
"""Calls that take longer than so many exchanges are begun before the last ones' answers are stored: slots that wait
for the store would stand idle for a part of their time that shows. Faster ones share a commit with the answers.
"""

IDLE_PER_CALL = 0.01
"""A slot that a slow call left free waits for others for such a part of the call's time: a claim each would cost more.
"""

STORE_AWAY_S = 1.0
"""Pause after the store did not answer; the store's own retries came before it."""

UNWIND_S = 2.0
"""How long a call that was cancelled may take to end. It is given up then, whatever it still does."""

LEAVE_S = 5.0
"""How long the last words to the store may take at a stop; without them leases end by themselves."""

REST_MIN_S = 0.001
"""Keeps a rest that ends at once (rounding, a clock's grain) from becoming a busy loop."""

log = structlog.get_logger(__name__)


class SideChain:
    """Runs the calls of one process. Any number of processes may share a store.

    Args:
        store: The open store.
        assignments: By collection: what to ask, and whom. Only collections whose own fingerprint is the active one are
            asked about.
        owner: This process's name in claims; no other running process may have it.
        on_settled: Called after each round in which documents were settled.
        grace_s: How long running calls get after a stop.
        failpoint: Kill switches for tests.
        clock: Seconds of a monotonic clock; the event loop's own, in a simulation.
    """

    def __init__(
        self,
        store: engine.Store,
        assignments: Mapping[str, Assignment],
        *,
        owner: str,
        on_settled: Callable[[], None] | None = None,
        grace_s: float = 10.0,
        failpoint: Callable[[str], None] = failpoints.failpoint,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stats = Stats()
        self._store = store
        self._owner = owner
        self._on_settled = on_settled
        self._grace_s = grace_s
        self._failpoint = failpoint
        self._clock = clock
        self._lanes = lanes_of(assignments, self._clock())
        self._running: dict[asyncio.Task[Verdict], tuple[EvaluatorLane, Call]] = {}
        self._ended: list[exchange.CallResult] = []
        self._kept_since_s = 0.0  # when the first of those ended
        self._free_since_s: float | None = None  # when the first slot became free that was not asked for since
        self._endings = 0
        self._payer = uuid.uuid4().hex  # an owner's name may come back with the next process; charges must not
        self._reports = OutageReports()
        self._woken = asyncio.Event()
        self._working: asyncio.Task[None] | None = None
        self._leaving = False
        self._generation: generations.Generation | None = None
        self._check_at_s = 0.0
        self._exchange_s = 0.0
        self.stats.breakers = {lane.name: lane.breaker.state for lane in self._lanes}

    @property
    def slots(self) -> int:
        """Calls at once, over all evaluators."""
        return sum(lane.limits.concurrency for lane in self._lanes)

    @property
    def lanes(self) -> Sequence[EvaluatorLane]:
        """The evaluators and what they are allowed, to be looked at."""
        return tuple(self._lanes)

    def wanted(self, collection: str) -> int | None:
        """Return how many documents it makes sense to clear for a job; None: as many as the job likes.

        None at all for an evaluator whose money is spent. One that is away gets one: what it is tried with next.
        """
        lane = next(each for each in self._lanes if collection in each.assignments)
        if lane.is_spent:
            return 0
        return 1 if lane.probing else None

    def wake(self) -> None:
        """Look at the queue now: something was written."""
        now_s = self._clock()
        for lane in self._lanes:
            lane.look_at_s = now_s
        self._woken.set()

    def halt(self) -> None:
        """Do not wait for running calls any longer: cut them off and release their claims."""
        self._leaving = True
        if self._working is not None:
            self._working.cancel()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; then let running calls end within the grace period, and release the rest.

        Ends by itself only with an error. Cancelling it does the same as a stop without a grace period. It runs once.
        """
        self._working = asyncio.create_task(self._work(stop), name="side chain: work")
        watching = asyncio.create_task(self._watch(stop), name="side chain: watch for stop")
        try:
            await asyncio.wait({self._working})
            if not (self._leaving and self._working.cancelled()):
                await self._working  # raises what ended it
        finally:
            self.halt()
            watching.cancel()
            await tasks.run_uncancelled(self._leave(), "side chain: leave")

    async def _watch(self, stop: asyncio.Event) -> None:
        """Wake the loop at a stop, and end the grace period whatever the loop is waiting for by then."""
        await stop.wait()
        self._woken.set()
        await asyncio.sleep(self._grace_s)
        self.halt()

    async def _work(self, stop: asyncio.Event) -> None:
        while not (stop.is_set() or self._leaving):
            await self._round()
        while self._running or (self._ended and not self._store.silent):  # drain
            self._woken.clear()
            if self._ended:
                await self._gather()
                await tasks.run_uncancelled(self._exchange([]), "side chain: exchange")
            else:
                await self._woken.wait()

    async def _round(self) -> None:
        await self._gather()
        self._woken.clear()  # before looking: what comes in from here on wakes the rest below
        now_s = self._clock()
        if now_s >= self._check_at_s:
            await self._check_definitions(now_s)
        asking = [lane for lane in self._lanes if _worth_a_look(lane, now_s)]
        store_at_s = self._store_at_s()
        if asking or (store_at_s is not None and store_at_s <= now_s):
            await tasks.run_uncancelled(self._exchange(asking), "side chain: exchange")
            return
        looks = [store_at_s, *(lane.next_look_s(now_s) for lane in self._lanes)]
        until_s = min([self._check_at_s, *(each for each in looks if each is not None)])
        await self._wait(max(until_s - now_s, REST_MIN_S))

    async def _gather(self) -> None:
        """Let results that come together be stored together, but let no call slots stand idle for it."""
        if not self._ended:
            return
        await asyncio.sleep(0)  # what ends in the same pass of the event loop
        until_s = self._clock() + self._linger_s
        if self._are_slow(self._ended):
            idle_s = IDLE_PER_CALL * min(each.seconds for each in self._ended)
            until_s = min(until_s, (self._free_since_s or 0.0) + idle_s)
        while 2 * len(self._running) >= self.slots > len(self._ended):
            left_s = until_s - self._clock()
            if left_s <= 0:
                return
            self._woken.clear()
            await self._wait(left_s)

    @property
    def _linger_s(self) -> float:
        return min(LINGER_PER_EXCHANGE * self._exchange_s, LINGER_MAX_S)

    def _are_slow(self, ended: Sequence[exchange.CallResult]) -> bool:
        """Say whether these are answers of calls beside which an exchange is short: claims come before them."""
        slow_s = SLOW_PER_EXCHANGE * self._exchange_s
        return all(isinstance(each.settlement, Answer) and each.seconds > slow_s for each in ended)

    def _store_at_s(self) -> float | None:
        """Return when results are stored: answers of slow calls wait for others while others are running."""
        if not self._ended:
            return None
        if 2 * len(self._running) < self.slots or not self._are_slow(self._ended):
            return self._kept_since_s
        return self._kept_since_s + self._linger_s

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    async def _exchange(self, asking: list[EvaluatorLane]) -> None:
        """Store the results of calls and take new claims; with the store away nothing is lost and nothing claimed."""
        try:
            await self._store_results("fail", queue.fail, Failure)
            await self._store_results("retry", queue.retry, Retry)
            await self._store_results("release", queue.release, NotStarted, Cancelled)
            await self._answer_and_claim(asking)
        except errors.StoreUnavailable as error:
            self.stats.store_problem = error.message
            log.warning("store_away", error=error.message)
            if not self._store.silent:
                await asyncio.sleep(STORE_AWAY_S)
        else:
            self.stats.store_problem = None

    async def _store_results(
        self,
        kind: exchange.ResultKind,
        function: Callable[[engine.Tx, list[Any], usage_ledger.UsageBatch], queue.Settled],
        *settlements: type,
    ) -> None:
        those = [ended for ended in self._ended if isinstance(ended.settlement, settlements)]
        if those:
            used = exchange.usage_of(self._payer, kind, those)
            self._record(those, await self._store.write(function, [exchange.entry(each) for each in those], used))

    async def _answer_and_claim(self, asking: list[EvaluatorLane]) -> None:
        answered = [ending for ending in self._ended if isinstance(ending.settlement, Answer)]
        if asking and answered and self._are_slow(answered):
            await self._exchange_once([], asking, unstored=answered)
            store_at_s = self._store_at_s()
            if store_at_s is None or store_at_s > self._clock():
                return
            asking, answered = [], [ending for ending in self._ended if isinstance(ending.settlement, Answer)]
        if answered or asking or self._reports:
            await self._exchange_once(answered, asking)
        if answered and not asking:
            for lane in {each.lane for each in answered}:  # for documents that the memo has an answer for now
                lane.look_at_s = self._clock()

    async def _exchange_once(
        self,
        answered: list[exchange.CallResult],
        asking: list[EvaluatorLane],
        *,
        unstored: Sequence[exchange.CallResult] = (),
    ) -> None:
        """Store answers and claim, in one transaction; nothing is claimed that an answer in `unstored` is about."""
        if answered:
            self._failpoint("chain.before_store")
        claimed_s = self._clock()  # before the store's clock starts the leases
        if asking:
            self._free_since_s = None
        asks = [self._ask(lane, claimed_s, unstored) for lane in asking]
        used, reports = exchange.usage_of(self._payer, "answer", answered), self._reports.taken(claimed_s)
        exchanged = await self._store.write(exchange.exchange, self._owner, answered, asks, used, reports)
        self._reports.acknowledge(reports)
        self._exchange_s = self._clock() - claimed_s
        if answered:
            self._failpoint("chain.after_store")
            self._record(answered, exchanged.answers)
        if any(result.claims for result in exchanged.claims):
            self._failpoint("chain.after_claim")
        for lane, ask, result, left in zip(asking, asks, exchanged.claims, exchanged.allowances, strict=True):
            self.stats.note_allowance(lane, left)
            self._take(lane, result, claimed_s)
            lane.look_again(result, slots=ask.slots, now_s=self._clock(), store_ms=exchanged.now_ms)

    def _record(self, those: list[exchange.CallResult], settled: queue.Settled) -> None:
        reported = {id(ending) for ending in those}
        self._ended = [ending for ending in self._ended if id(ending) not in reported]
        self.stats.record(those, settled)
        self._call_on_settled()

    def _call_on_settled(self) -> None:
        if self._on_settled is not None:
            self._on_settled()

    def _ask(self, lane: EvaluatorLane, now_s: float, unstored: Sequence[exchange.CallResult] = ()) -> exchange.Ask:
        slots = lane.slots(now_s)
        busy = {call.key for other, call in self._running.values() if other is lane}
        busy.update(each.call.key for each in unstored if each.lane is lane)
        unbilled = [each.usage for each in self._ended if each.lane is lane] if lane.limits.max_usd_per_day else []
        return exchange.Ask(
            evaluator=lane.name,
            fingerprints=lane.fingerprints,
            slots=slots,
            reindex_slots_min=lane.reindex_slots_min(slots),
            lease_ms=int(lane.lease_s * 1000),
            busy_keys=frozenset(busy.union(lane.probed())),
            turns=lane.turns,
            wait_max_ms=int(lane.wait_max_s * 1000) + 1,
            max_usd=lane.limits.max_usd_per_day,
            unbilled_usd=sum(each.cost_usd or 0.0 for each in unbilled if each is not None),
        )

    def _take(self, lane: EvaluatorLane, result: queue.ClaimResult, claimed_s: float) -> None:
        if result.turns:
            lane.turns = result.turns
        if result.clock_corrections:
            log.warning("clock_went_back", evaluator=lane.name, documents=result.clock_corrections)
        if result.remembered:
            self.stats.remember(lane, result)
            self._call_on_settled()
        for claim in result.claims:
            if self._leaving or lane.slots(self._clock()) < 1:  # it was refused, or fell silent, meanwhile
                self._ended.append(exchange.CallResult(lane, lane.decline(claim), NotStarted(), 0.0))
                continue
            call = lane.begin(claim, claimed_s + lane.lease_s)
            task = asyncio.create_task(calls.ask(call, self._clock), name=f"call {claim.uri} as {claim.indexed_as}")
            self._running[task] = (lane, call)
            task.add_done_callback(self._call_ended)
            self.stats.calls += 1
        self.stats.in_flight = len(self._running)
        self.stats.note_breaker(lane, None)

    def _call_ended(self, task: asyncio.Task[Verdict]) -> None:
        running = self._running.pop(task, None)
        if running is None:
            return  # given up at a stop
        if task.cancelled():
            verdict: Verdict = Cancelled()
        # `ask` itself failed: recorded with the document, and the worker lives
        elif (error := task.exception()) is not None:
            log.error("call_broke", uri=running[1].claim.uri, exc_info=error)
            verdict = Failure(DocumentReason.EVALUATOR_ERROR, type(error).__name__, type(error).__name__)
        else:
            verdict = task.result()
        self._end(*running, verdict)

    def _end(self, lane: EvaluatorLane, call: Call, verdict: Verdict) -> None:
        now_s = self._clock()
        if not self._ended:
            self._kept_since_s = now_s
        if self._free_since_s is None:
            self._free_since_s = now_s
        settlement = lane.end(call, verdict, now_s)
        seconds = 0.0 if call.started_s is None else now_s - call.started_s
        self._endings += 1
        spent = calls.spent_on(call, verdict)
        self._ended.append(exchange.CallResult(lane, call, settlement, seconds, self._endings, spent))
        self._reports.note(lane, settlement)
        if call.started_s is not None:
            self.stats.called(self._ended[-1])
        lane.look_at_s = now_s
        self._woken.set()
        self.stats.in_flight = len(self._running)
        self.stats.note_breaker(lane, settlement)

    async def _check_definitions(self, now_s: float) -> None:
        """Find out which of our collections are active under another fingerprint; they are left alone until then."""
        self._check_at_s = now_s + POLL_S
        with contextlib.suppress(errors.StoreUnavailable):  # the exchange says so
            if await self._store.read(definitions.generation) == self._generation:
                return
            self._generation, active = await self._store.read(definitions.active)
            own = {name: each for lane in self._lanes for name, each in lane.fingerprints.items()}
            foreign = {name for name, each in own.items() if _active_fingerprint(active, name) != each}
            for name in sorted(foreign ^ self.stats.not_active):
                event = "definition_not_active" if name in foreign else "definition_active"
                log.warning(event, collection=name, own=own[name], active=_active_fingerprint(active, name))
            self.stats.not_active = frozenset(foreign)
            self.wake()

    async def _leave(self) -> None:
        """Cut off what still runs and release it; bounded, whatever an evaluator or the store does."""
        if self._working is not None:
            await asyncio.wait({self._working}, timeout=LEAVE_S)
        for task in list(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(set(self._running), timeout=UNWIND_S)
            await asyncio.sleep(0)  # their callbacks
        for task, (lane, call) in list(self._running.items()):
            del self._running[task]
            log.error("call_would_not_end", uri=call.claim.uri, evaluator=lane.name)
            self._end(lane, call, Cancelled())
        if self._ended:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await self._exchange([])


def _worth_a_look(lane: EvaluatorLane, now_s: float) -> bool:
    at_s = lane.next_look_s(now_s)
    return at_s is not None and at_s <= now_s and lane.slots(now_s) > 0


def _active_fingerprint(active: Definitions, name: str) -> str | None:
    definition = active.by_name.get(name)
    return definition.fingerprint if definition else None
