"""Store the results of calls in batches, each kind in one transaction, and make new claims.

Answers and the next claims share a transaction, so that a fast evaluator costs one commit for a whole round of calls.
Failures, retries and releases are rare and have transactions of their own: each locks its documents in the order of
their uris, and mixing kinds would break that order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from facetline.facets.documents import Evaluation
from facetline.facets.errors import Spent
from facetline.storage import usage_ledger
from facetline.storage.db import engine
from facetline.storage.queue import claiming, daily_budget, queue
from facetline.streams.classify import outage_reports
from facetline.streams.classify import usage as usage_
from facetline.streams.classify.call import Answer, Call, Cancelled, Failure, NotStarted
from facetline.streams.classify.evaluator_lane import EvaluatorLane, Retry, Settlement


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a claim that is over for this process.

    `number` counts the results of this process; `spent` is what the call used up, None where there was none.
    """

    lane: EvaluatorLane
    call: Call
    settlement: Settlement
    seconds: float
    number: int = 0
    spent: Spent | None = None

    @property
    def usage(self) -> usage_ledger.UsageEntry | None:
        """The entry for the usage ledger, None when nothing was used up."""
        if self.spent is None:
            return None
        assigned = self.call.assignment
        return usage_.entry_of(self.number, assigned.definition, assigned.evaluator, self.spent)


@dataclass(frozen=True, slots=True)
class Ask:
    """Claims wanted for one evaluator; see `queue.claim`, and `daily_budget.allowance` where it has a spend limit."""

    evaluator: str
    fingerprints: Mapping[str, str]
    slots: int
    reindex_slots_min: int
    lease_ms: int
    busy_keys: frozenset[tuple[str, str, str]]
    wait_max_ms: int = queue.WAIT_MAX_MS
    turns: claiming.Turns = field(default_factory=dict)
    max_usd: float | None = None
    unbilled_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The fate of answers, claims and what is left to spend for each ask in its order, and the store's time at that."""

    answers: queue.Settled
    claims: tuple[queue.ClaimResult, ...]
    allowances: "Allowances"
    now_ms: int


NOTHING = queue.Settled((), ())
ResultKind = Literal["answer", "fail", "retry", "release"]
"""The keys of the usage ledger: results of one kind are stored in the order of their numbers."""
Allowances = tuple[daily_budget.Allowance | None, ...]


def exchange(
    tx: engine.Tx,
    owner: str,
    answers: Sequence[CallResult],
    asks: Sequence[Ask],
    used: usage_ledger.UsageBatch = usage_ledger.NOTHING,
    reports: tuple[outage_reports.OutageReport, ...] = (),
) -> Exchanged:
    """Store answers, claim, and charge the calls, in one transaction and in this order.

    Claims wait for no lock, so holding those of the answers blocks no process. The ledger comes last: its rows are
    shared with other processes, and locked for a moment only.
    """
    settled = store_answers(tx, answers)
    claims, allowances = claim(tx, owner, asks)
    outage_reports.write(tx, reports)
    usage_ledger.charge(tx, used)
    return Exchanged(settled, claims, allowances, tx.now_ms)


def store_answers(tx: engine.Tx, results: Sequence[CallResult]) -> queue.Settled:
    """Store the answers among these results that are still current; return which were, and which were discarded."""
    answered = [_answered(each.call, each.settlement) for each in results if isinstance(each.settlement, Answer)]
    return queue.answer(tx, answered) if answered else NOTHING


def claim(tx: engine.Tx, owner: str, asks: Sequence[Ask]) -> tuple[tuple[queue.ClaimResult, ...], Allowances]:
    """Claim what is asked for, within what each evaluator may spend; both results are in the order of `asks`."""
    allowances = tuple(_allowance(tx, ask) for ask in asks)
    return tuple(_claim(tx, owner, ask, left) for ask, left in zip(asks, allowances, strict=True)), allowances


def usage_of(owner: str, kind: ResultKind, results: Sequence[CallResult]) -> usage_ledger.UsageBatch:
    """Return the usage of these results in the order of their numbers; `kind` is the ledger's key for their numbers."""
    found = [used for each in results if (used := each.usage) is not None]
    return usage_ledger.UsageBatch(owner, kind, tuple(found))


def _allowance(tx: engine.Tx, ask: Ask) -> daily_budget.Allowance | None:
    if ask.max_usd is None:
        return None
    return daily_budget.allowance(
        tx,
        ask.evaluator,
        ask.max_usd,
        collections=ask.fingerprints,
        slots=ask.slots,
        unbilled_usd=ask.unbilled_usd,
    )


def _claim(tx: engine.Tx, owner: str, ask: Ask, left: daily_budget.Allowance | None) -> queue.ClaimResult:
    slots = ask.slots if left is None else left.calls
    return queue.claim(
        tx,
        owner,
        slots=slots,
        reindex_slots_min=min(ask.reindex_slots_min, slots),
        fingerprints=ask.fingerprints,
        lease_ms=ask.lease_ms,
        busy_keys=ask.busy_keys,
        wait_max_ms=ask.wait_max_ms,
        turns=ask.turns,
    )


def entry(result: CallResult) -> queue.Failed | queue.Retried | queue.Released:
    """Return a result that is no answer as the store takes it."""
    held = result.call.claim
    identity = (held.uri, held.indexed_as, held.attempt)
    match result.settlement:
        case Answer():
            raise AssertionError("answers are stored by `exchange`")
        case Failure(reason=reason, message=message):
            return queue.Failed(*identity, reason, message)
        case Retry(delay_s=delay_s, counted=counted):
            return queue.Retried(*identity, int(delay_s * 1000), counted)
        case NotStarted() | Cancelled():
            return queue.Released(*identity, called=result.call.started_s is not None)


def _answered(call: Call, answer: Answer) -> queue.Answered:
    held, definition, evaluated = call.claim, call.assignment.definition, answer.evaluated
    evaluation = Evaluation(
        evaluator=definition.evaluator,
        kind=definition.kind,
        model=evaluated.model,
        fingerprint=held.fingerprint,
        classified_at=datetime.fromtimestamp(held.asked_ms / 1000, UTC),  # the store puts in its own time
        confidence_source=evaluated.confidence_source,
        usage=None if evaluated.usage is None else dict(evaluated.usage),
        cost_usd=evaluated.cost_usd,
        notes=None if evaluated.notes is None else dict(evaluated.notes),
    )
    return queue.Answered(
        uri=held.uri,
        indexed_as=held.indexed_as,
        attempt=held.attempt,
        fingerprint=held.fingerprint,
        facets=answer.facets,
        evaluation=evaluation,
        scope=held.scope,
        body_hash=held.body_hash,
        asked_ms=held.asked_ms,
    )
