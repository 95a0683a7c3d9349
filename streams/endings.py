"""What the side chain tells the store: results in batches, each kind in one transaction, then new claims.

Answers and the next claims share a transaction, so that a fast evaluator costs one commit for a whole round of calls.
Failures, retries and releases are rare and have transactions of their own: each locks its documents in the order of
their uris, and mixing kinds would break that order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from facets.documents import Evaluation
from storage import engine, queue
from streams.calls import Answer, Call, CutOff, Failure, Unasked
from streams.lanes import Lane, Retry, Settlement


@dataclass(frozen=True, slots=True)
class Ending:
    """A claim that is over for this process, and what the store is told about it."""

    lane: Lane
    call: Call
    settlement: Settlement
    seconds: float


@dataclass(frozen=True, slots=True)
class Ask:
    """Claims wanted for one evaluator; see `queue.claim`."""

    fingerprints: Mapping[str, str]
    slots: int
    reindex_slots_min: int
    lease_ms: int
    busy_keys: frozenset[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The fate of answers, the claims for each ask in its order, and the store's time at that."""

    answers: queue.Settled
    claims: tuple[queue.ClaimResult, ...]
    now_ms: int


NOTHING = queue.Settled((), ())


def exchange(tx: engine.Tx, owner: str, answers: Sequence[Ending], asks: Sequence[Ask]) -> Exchanged:
    """Store answers, then claim. Claims wait for no lock, so holding those of the answers blocks nobody."""
    answered = [_answered(each.call, each.settlement) for each in answers if isinstance(each.settlement, Answer)]
    settled = queue.answer(tx, answered) if answered else NOTHING
    return Exchanged(settled, tuple(_claim(tx, owner, ask) for ask in asks), tx.now_ms)


def _claim(tx: engine.Tx, owner: str, ask: Ask) -> queue.ClaimResult:
    return queue.claim(
        tx,
        owner,
        slots=ask.slots,
        reindex_slots_min=ask.reindex_slots_min,
        fingerprints=ask.fingerprints,
        lease_ms=ask.lease_ms,
        busy_keys=ask.busy_keys,
    )


def entry(ending: Ending) -> queue.Failed | queue.Retried | queue.Released:
    """Return an ending that is no answer as the store takes it."""
    claim = ending.call.claim
    identity = (claim.uri, claim.indexed_as, claim.attempt)
    match ending.settlement:
        case Answer():
            raise AssertionError("answers are stored by `exchange`")
        case Failure(reason=reason, message=message):
            return queue.Failed(*identity, reason, message)
        case Retry(delay_s=delay_s, counted=counted):
            return queue.Retried(*identity, int(delay_s * 1000), counted)
        case Unasked() | CutOff():
            return queue.Released(*identity, called=ending.call.started_s is not None)


def _answered(call: Call, answer: Answer) -> queue.Answered:
    claim, definition, evaluated = call.claim, call.assignment.definition, answer.evaluated
    evaluation = Evaluation(
        evaluator=definition.evaluator,
        kind=definition.kind,
        model=evaluated.model,
        fingerprint=claim.fingerprint,
        classified_at=datetime.fromtimestamp(claim.asked_ms / 1000, UTC),  # the store puts in its own time
        confidence_source=evaluated.confidence_source,
        usage=None if evaluated.usage is None else dict(evaluated.usage),
        cost_usd=evaluated.cost_usd,
        notes=None if evaluated.notes is None else dict(evaluated.notes),
    )
    return queue.Answered(
        uri=claim.uri,
        indexed_as=claim.indexed_as,
        attempt=claim.attempt,
        fingerprint=claim.fingerprint,
        facets=answer.facets,
        evaluation=evaluation,
        scope=claim.scope,
        body_hash=claim.body_hash,
        asked_ms=claim.asked_ms,
    )
