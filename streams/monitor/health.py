"""Whether a worker is alive, and whether it is ready: what is wrong is named, with the way out.

*Alive* makes no request: the event loop answers and every part still runs; a store or a broker that is away is no
reason to start a process again. *Ready* means that records flow from the broker into the store. An evaluator that its
breaker or its spend limit stopped, or a definition that is not the active one, only *degrades* a ready worker: it goes
on applying and publishing, nothing is gained by holding back a deployment, and in a rolling one new definitions are
activated when all are there.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from facetline.storage.db.engine import Store
from facetline.streams.classify import availability
from facetline.streams.classify.evaluator_lane import EvaluatorLane
from facetline.streams.classify.stats import FIX, Stats
from facetline.streams.monitor.observer import StatusSnapshot
from facetline.streams.monitor.worker_state import Members

Level = Literal["ok", "degraded", "failed"]

CLOCK_DIFFERENCE_S = 1.0
"""Deadlines of writes are a few seconds; a clock that is off by more than this eats them up."""

STALLED_S = 10.0
"""A transaction takes milliseconds, one of 500 large events a second or two; what takes longer waits for something."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    level: Level
    detail: str


def alive(members: Members) -> list[Check]:
    """Return a check for the event loop, which is fine when this runs at all, and one for the parts."""
    dead = members.dead
    if dead:
        parts = Check("parts", "failed", f"{', '.join(dead)} ended; start the worker again")
    else:
        parts = Check("parts", "ok", "all parts run")
    return [Check("event_loop", "ok", "answers"), parts]


def ready(members: Members, seen: StatusSnapshot) -> list[Check]:
    """Return all checks of readiness, in the order in which one rests on another."""
    return [
        *_stopping(members),
        _away("store", seen.store_problem, "answers"),
        *_working(members),
        _away("broker", seen.broker_problem, f"answers; {members.partitions} partitions"),
        *_starting(members),
        *_consuming(members),
        *_publishing(members),
        *_definitions(members, seen),
        *_evaluators(members),
        *_clock(members),
    ]


def level(checks: Iterable[Check]) -> Level:
    """Return the worst level."""
    found = {check.level for check in checks}
    return "failed" if "failed" in found else "degraded" if "degraded" in found else "ok"


def _stopping(members: Members) -> list[Check]:
    return [Check("stop", "failed", "stopping; running calls get their grace period")] if members.stopping else []


def _away(name: str, problem: str | None, fine: str) -> Check:
    return Check(name, "ok", fine) if problem is None else Check(name, "failed", problem)


def _working(members: Members) -> list[Check]:
    """Look at the connections that do the work: the store may answer this look and none of them."""
    if members.store is None:
        return []
    problem = stalled(members.store)
    if problem is None and members.work is not None:
        problem = members.work.side_chain.stats.store_problem
    return [_away("store_work", problem, "transactions end in time")]


def stalled(store: Store) -> str | None:
    """Say which transaction has been under way for longer than any should; None when there is none."""
    slowest = store.slowest
    if slowest is None or slowest.seconds < STALLED_S:
        return None
    return (
        f"no progress: '{slowest.name}' has been waiting for the store for {slowest.seconds:.0f} s; look at its"
        " locks, and at the network between"
    )


def _starting(members: Members) -> list[Check]:
    if members.consumer is not None:
        return []
    return [Check("start", "failed", f"not started yet; waits for: {members.waits_for or 'its turn'}")]


def _consuming(members: Members) -> list[Check]:
    if members.consumer is None:
        return []
    owned, waits_for = members.consumer.partitions, members.consumer.waiting
    if owned is None:
        assignment = Check("assignment", "failed", f"waits for its first partitions{_because(waits_for)}")
    elif owned:
        assignment = Check("assignment", "ok", f"partitions {', '.join(map(str, sorted(owned)))}")
    else:
        others = "no partition now: others have them, or they are being handed over"
        assignment = Check("assignment", "ok", f"{others}; calls evaluators, and stands by")
    consumer = Check("consumer", "failed", f"waits: {waits_for}") if waits_for else _fine("consumer")
    return [assignment, consumer, *_unreadable(members)]


def _unreadable(members: Members) -> list[Check]:
    """Return a failed check when partitions are stopped because their records cannot be read."""
    stopped = members.writer.stopped if members.writer is not None else {}
    return [Check("records", "failed", "; ".join(reason for _, reason in sorted(stopped.items())))] if stopped else []


def _publishing(members: Members) -> list[Check]:
    if members.publisher is None:
        return []
    if members.publisher.waiting:
        return [Check("publisher", "failed", f"waits: {members.publisher.waiting}")]
    elected = members.publisher.position is not None
    return [Check("publisher", "ok", "publishes" if elected else "another worker publishes; stands by")]


def _definitions(members: Members, seen: StatusSnapshot) -> list[Check]:
    if seen.glance is None:
        return []
    foreign = [
        each.name for each in members.project.definitions if seen.glance.fingerprints.get(each.name) != each.fingerprint
    ]
    if not foreign:
        return [_fine("definitions")]
    message = (
        f"{', '.join(foreign)}: {members.settings.config} differs from the active definition, so this worker makes no"
        " calls there; run 'facetline collections apply' to activate its own, or give it the active file"
    )
    return [Check("definitions", "degraded", message)]


def _evaluators(members: Members) -> list[Check]:
    if members.work is None:
        return []
    chain = members.work.side_chain
    lines = [each for lane in chain.lanes for each in _of_lane(lane, chain.stats)]
    return [Check("evaluators", "degraded", "; ".join(lines))] if lines else [_fine("evaluators")]


def _of_lane(lane: EvaluatorLane, stats: Stats) -> Iterator[str]:
    """Yield what keeps an evaluator from being called, or its limit from working."""
    if lane.breaker.state != "closed":
        why = _because(stats.breaker_reasons.get(lane.name))
        wait = FIX if lane.name in stats.misconfigured else "documents wait until it answers again"
        yield f"{lane.name}{why} is stopped: {wait}"
    if lane.allowance is not None and lane.allowance.reached:
        found = availability.spent(lane.name, lane.allowance)
        yield f"{found.cause}; documents wait"
    if lane.name in stats.unpriced:
        yield f"{lane.name} has a max_usd_per_day and reports no costs, so the limit cannot hold"


def _clock(members: Members) -> list[Check]:
    ahead_s = None if members.consumer is None else members.consumer.broker_clock.ahead_s
    if ahead_s is None or ahead_s < CLOCK_DIFFERENCE_S:
        return []
    message = f"the broker's clock is {ahead_s:.1f} s ahead of this machine's at least; set both by NTP"
    return [Check("clock", "degraded", message)]


def _fine(name: str) -> Check:
    return Check(name, "ok", "fine")


def _because(reason: str | None) -> str:
    return f" ({reason})" if reason else ""
