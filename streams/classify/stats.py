"""What the side chain of one process has done: its counters, and one log line for each claim that is over.

`document_settled` is the line of a document that has its answers or has failed, whether it was asked about or
remembered; `call_ended` that of a claim which settled nothing.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import structlog

from facetline.storage.db import json_rows
from facetline.storage.queue import daily_budget, queue
from facetline.streams.classify.call import Answer, Cancelled, Failure, NotStarted
from facetline.streams.classify.evaluator_lane import EvaluatorLane, Retry, Settlement
from facetline.streams.classify.exchange import CallResult
from facetline.streams.histogram import CALL_SECONDS, Histogram

FIX = "fix its key, its quota or its table in facetline.toml; documents wait, and calls resume on their own"

log = structlog.get_logger(__name__)


@dataclass
class Stats:
    """Counts since the start of this process.

    `failed`, `retried` and `released` count what the store accepted; `discarded` counts all results that were
    about something past. `remembered` documents were answered by the memo, without a call. `breakers` holds each
    evaluator's breaker state, `breaker_reasons` what opened those that are not closed, `misconfigured`
    those of them that someone must fix, `not_active` the collections whose active definition is not ours.

    For metrics: `ended` claims by (evaluator, outcome, reason), `remembered_by` and `cost_usd` by evaluator, `tokens`
    by (evaluator, input or output), and how long the calls that were made took by evaluator. `spent` are the evaluators
    whose daily budget is spent, `unpriced` those that have a limit and report no costs.
    """

    store_problem: str | None = None
    """Why the last exchange with the store did not take place; None when it did."""
    calls: int = 0
    in_flight: int = 0
    stored: int = 0
    remembered: int = 0
    failed: int = 0
    retried: int = 0
    released: int = 0
    discarded: int = 0
    breakers: dict[str, str] = field(default_factory=dict)
    breaker_reasons: dict[str, str] = field(default_factory=dict)
    misconfigured: frozenset[str] = frozenset()
    not_active: frozenset[str] = frozenset()
    spent: frozenset[str] = frozenset()
    unpriced: frozenset[str] = frozenset()
    ended: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    remembered_by: Counter[str] = field(default_factory=Counter)
    tokens: Counter[tuple[str, str]] = field(default_factory=Counter)
    cost_usd: dict[str, float] = field(default_factory=dict)
    call_seconds: dict[str, Histogram] = field(default_factory=dict)

    def called(self, ending: CallResult) -> None:
        """Count a call that was made and is over, whatever the store will say about its result."""
        name, charge = ending.lane.name, ending.usage
        self.call_seconds.setdefault(name, Histogram(CALL_SECONDS)).observe(ending.seconds)
        if charge is not None:
            self.cost_usd[name] = self.cost_usd.get(name, 0.0) + (charge.cost_usd or 0.0)
            self.tokens[name, "input"] += charge.input_tokens
            self.tokens[name, "output"] += charge.output_tokens

    def remember(self, lane: EvaluatorLane, result: queue.ClaimResult) -> None:
        """Count and report documents that the memo answered."""
        self.remembered += result.remembered
        self.remembered_by[lane.name] += result.remembered
        for uri, indexed_as in result.remembered_as:
            log.info(
                "document_settled",
                action="remember",
                uri=uri,
                indexed_as=indexed_as,
                outcome="stored",
                evaluator=lane.name,
            )

    def record(self, endings: list[CallResult], settled: queue.Settled) -> None:
        """Count and log results after the store has answered, by what it did with them."""
        held = set(settled.stored)
        for ending in endings:
            claim = ending.call.claim
            if (claim.uri, claim.indexed_as) in held:
                outcome = self._count(ending.settlement)
            else:
                self.discarded += 1
                outcome = "discarded"
            reason = ending.settlement.reason if isinstance(ending.settlement, Failure | Retry) else ""
            self.ended[ending.lane.name, outcome, str(reason)] += 1
            _report(ending, outcome)

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
            case NotStarted() | Cancelled():
                self.released += 1
                return "released"

    def note_breaker(self, lane: EvaluatorLane, settlement: Settlement | None) -> None:
        """Say loudly when a breaker has changed; `settlement` is what changed it, None for a probe's start."""
        before, now = self.breakers.get(lane.name), lane.breaker.state
        self.breakers[lane.name] = now
        if now == before or before is None:
            return
        if now == "open":
            why: dict[str, Any] = {}
            if isinstance(settlement, Retry):
                why = {"reason": settlement.reason, "error": settlement.message}
                self.breaker_reasons[lane.name] = f"{why['reason']}: {why['error']}"
                self.misconfigured -= {lane.name}
                if settlement.misconfigured:
                    self.misconfigured |= {lane.name}
                    why |= {"misconfigured": True, "fix": FIX}
            log.error("breaker_opened", evaluator=lane.name, **why)
        else:
            if now == "closed":
                self.breaker_reasons.pop(lane.name, None)
                self.misconfigured -= {lane.name}
            log.warning("breaker_closed" if now == "closed" else "breaker_probing", evaluator=lane.name)

    def note_allowance(self, lane: EvaluatorLane, left: daily_budget.Allowance | None) -> None:
        """Say once when the money of the day is used up, when there is more, and when a limit knows no costs."""
        lane.allowance = left
        if left is None:
            return
        fields = {"evaluator": lane.name, "limit_usd": left.limit_usd, "spent_usd": round(left.spent_usd, 6)}
        if left.reached and lane.name not in self.spent:
            self.spent |= {lane.name}
            log.error("spend_limit_reached", **fields, resumes=json_rows.moment(left.resumes_ms).isoformat())
        elif not left.reached and lane.name in self.spent:
            self.spent -= {lane.name}
            log.warning("spend_limit_over", **fields)
        if left.is_blind and lane.name not in self.unpriced:
            self.unpriced |= {lane.name}
            log.warning("spend_unknown", evaluator=lane.name, limit_usd=left.limit_usd, calls=left.unpriced_calls)


def _report(ending: CallResult, outcome: str) -> None:
    """Write the one line about a claim that is over; a retry is not the end of the story and stays below it."""
    claim, settlement = ending.call.claim, ending.settlement
    fields: dict[str, Any] = {
        "action": "evaluate",
        "evaluator": ending.lane.name,
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
            fields |= {"reason": str(reason), "error": error}
        case Retry(reason=reason, delay_s=delay_s):
            fields |= {"reason": str(reason), "delay_s": round(delay_s, 3)}
            if outcome == "retried":
                log.debug("call_retried", **fields)
                return
    log.info("document_settled" if outcome in {"stored", "failed"} else "call_ended", **fields)
