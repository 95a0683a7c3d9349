"""What the side chain of one process has done: its counters, and one log line for each claim that is over."""

from dataclasses import dataclass, field
from typing import Any

import structlog

from storage import queue
from streams.calls import Answer, CutOff, Failure, Unasked
from streams.endings import Ending
from streams.lanes import Lane, Retry, Settlement

log = structlog.get_logger(__name__)


@dataclass
class Stats:
    """Counts since the start of this process.

    `failed`, `retried` and `released` count what the store was told and took; `discarded` counts all results that were
    about something past. `remembered` documents were answered by the memo, without a call. `breakers` holds each
    evaluator's breaker state, `not_active` the collections whose active definition is not ours.
    """

    calls: int = 0
    in_flight: int = 0
    stored: int = 0
    remembered: int = 0
    failed: int = 0
    retried: int = 0
    released: int = 0
    discarded: int = 0
    breakers: dict[str, str] = field(default_factory=dict)
    not_active: frozenset[str] = frozenset()

    def heard(self, endings: list[Ending], settled: queue.Settled) -> None:
        """Count and report endings that the store was told of, by what became of them there."""
        held = set(settled.stored)
        for ending in endings:
            claim = ending.call.claim
            if (claim.uri, claim.indexed_as) in held:
                _report(ending, self._count(ending.settlement))
            else:
                self.discarded += 1
                _report(ending, "discarded")

    def _count(self, settlement: Settlement) -> str:
        match settlement:
            case Answer():
                self.stored += 1
                return "stored"
            case Failure():
                self.failed += 1
                return "failed"
            case Retry():
                self.retried += 1
                return "retried"
            case Unasked() | CutOff():
                self.released += 1
                return "released"

    def note_breaker(self, lane: Lane, settlement: Settlement | None) -> None:
        """Say loudly when a breaker has changed; `settlement` is what changed it, None for a probe's start."""
        before, now = self.breakers.get(lane.name), lane.breaker.state
        self.breakers[lane.name] = now
        if now == before or before is None:
            return
        if now == "open":
            why = {"reason": settlement.reason, "error": settlement.message} if isinstance(settlement, Retry) else {}
            log.error("breaker_opened", evaluator=lane.name, **why)
        else:
            log.warning("breaker_closed" if now == "closed" else "breaker_probing", evaluator=lane.name)


def _report(ending: Ending, outcome: str) -> None:
    """Write the one line about a claim that is over; a retry is not the end of the story and stays below it."""
    claim, settlement = ending.call.claim, ending.settlement
    fields: dict[str, Any] = {
        "action": "evaluate",
        "uri": claim.uri,
        "indexed_as": claim.indexed_as,
        "outcome": outcome,
        "attempts": 1 + claim.retries + claim.crashes,
        "seconds": round(ending.seconds, 4),
    }
    match settlement:
        case Answer(evaluated=evaluated):
            fields |= {"tokens": evaluated.usage, "cost_usd": evaluated.cost_usd}
        case Failure(reason=reason, error=error):
            fields |= {"reason": reason, "error": error}
        case Retry(reason=reason, delay_s=delay_s):
            log.debug("call_retried", **fields, reason=reason, delay_s=round(delay_s, 3))
            return
    log.info("call_ended", **fields)
