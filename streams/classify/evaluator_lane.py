"""One evaluator's share of the side chain: its collections, limiter, breaker and retry bounds, and what they decide.

A lane says how many documents may be claimed now, and turns the outcome of a call into what the store records. It knows
no store and starts no calls.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from facetline.storage.queue import claiming, daily_budget, due_documents, queue
from facetline.streams.classify import retry_policy, usage
from facetline.streams.classify.call import (
    Answer,
    Assignment,
    Call,
    CallLimits,
    Cancelled,
    Failure,
    NotStarted,
    TransientFailure,
    Verdict,
    spent_on,
)
from facetline.streams.classify.circuit_breaker import Breaker, Ticket
from facetline.streams.classify.rate_limiter import Limiter

REINDEX_SHARE = 0.1
"""Part of all claims that a reindex keeps, however busy the live writes are."""

POLL_S = 1.0
"""How soon a write of another process is seen at the latest; one claim that finds nothing costs the store little."""

LOOK_MIN_S = 0.01
"""A document may be due and still not be had, while someone has it locked."""

NO_TICKET = Ticket(-1, probe=False)
"""Belongs to no state of any breaker."""

PROBED_MAX = 32
"""Documents an open breaker remembers having probed with, so that each probe takes another one."""


ACCUSERS_MAX = 1000
"""How many documents are remembered whose calls found the evaluator misconfigured."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Ask again after `delay_s`; `counted` when it is the document's own trouble.

    `misconfigured`: no retry can help before the evaluator is fixed.
    """

    reason: str
    message: str
    delay_s: float
    counted: bool
    misconfigured: bool = False


Settlement = Answer | Failure | Retry | NotStarted | Cancelled
"""What the store records about a claim."""


class EvaluatorLane:
    """One evaluator as this process uses it. Times are seconds of a monotonic clock."""

    def __init__(self, name: str, assignments: Mapping[str, Assignment], now_s: float) -> None:
        limits = next(iter(assignments.values())).limits
        self.name = name
        self.assignments = dict(assignments)
        self.fingerprints = {each: assignment.definition.fingerprint for each, assignment in assignments.items()}
        self.limits: CallLimits = limits
        self.limiter = Limiter(
            concurrency=limits.concurrency,
            requests_per_minute=limits.requests_per_minute,
            tokens_per_minute=limits.tokens_per_minute,
            now_s=now_s,
        )
        self.allowance: daily_budget.Allowance | None = None
        self.breaker = Breaker(probe_first_s=limits.probe_first_s, probe_most_s=limits.probe_most_s)
        self.look_at_s = now_s
        self._policy = retry_policy.Policy(
            tries_max=limits.tries_max,
            wait_sum_max_s=limits.retry_wait_max_s,
            first_s=limits.retry_first_s,
            most_s=limits.retry_most_s,
        )
        self.turns: claiming.Turns = {}
        """Whose document was claimed last, so that the next claim begins after it."""
        self._probed: list[tuple[str, str, str]] = []
        self._accusers: dict[str, int] = {}
        self._answered = 0
        self._reindex_credit = 0.0
        self._asking_bytes = {name: _bytes_of(each) for name, each in assignments.items()}

    @property
    def lease_s(self) -> float:
        """How long a claim is ours."""
        return self.limits.call_s + self.limits.lease_margin_s

    @property
    def wait_max_s(self) -> float:
        """The longest wait that a document is given before it is asked about again."""
        retry_after_s = retry_policy.RETRY_AFTER_MAX_S * (1 + retry_policy.RETRY_AFTER_SPREAD)
        return max(self.limits.retry_most_s, retry_after_s)

    @property
    def probing(self) -> bool:
        """Whether the next call would be a breaker's probe."""
        return self.breaker.state != "closed"

    @property
    def is_spent(self) -> bool:
        """Whether the day's money was used up when the store was last asked."""
        return self.allowance is not None and self.allowance.reached

    def slots(self, now_s: float) -> int:
        """Return how many calls may start now."""
        permitted = self.breaker.allowed(now_s)
        free = self.limiter.free(now_s)
        return free if permitted is None else min(free, permitted)

    def next_look_s(self, now_s: float) -> float | None:
        """Return when a claim may bring something, None while only the end of a call can make it so."""
        free_at_s = self.limiter.free_at_s(now_s)
        if self.breaker.state == "half_open" or (free_at_s is None and self.limiter.free(now_s) == 0):
            return None
        return max(self.look_at_s, free_at_s or 0.0, self.breaker.probe_due_s() or 0.0)

    def reindex_slots_min(self, slots: int) -> int:
        """Return how many of `slots` claims a reindex may have before live writes."""
        return min(slots, int(self._reindex_credit))

    def probed(self) -> Iterable[tuple[str, str, str]]:
        """Return the keys of the documents that the open breaker was probed with."""
        return self._probed if self.probing else ()

    def begin(self, claim: queue.Claim, lease_until_s: float) -> Call:
        """Count a claimed document as a running call."""
        self._share(claim)
        taken = self.limiter.start(self._asking_bytes[claim.collection] + len(claim.body.encode()))
        call = Call(claim, self.assignments[claim.collection], self.breaker.begin(), lease_until_s, taken=taken)
        if call.ticket.probe:
            self._probed = [*self._probed[1 - PROBED_MAX :], call.key]
        return call

    def decline(self, claim: queue.Claim) -> Call:
        """Return a claimed document as a call that is not made: the evaluator went away while it was claimed."""
        return Call(claim, self.assignments[claim.collection], NO_TICKET, 0.0)

    def look_again(self, result: queue.ClaimResult, *, slots: int, now_s: float, store_ms: int) -> None:
        """Set when the next look is due, after a claim of `slots` at the store's time `store_ms`."""
        if len(result.claims) == slots or result.remembered:
            self.look_at_s = now_s  # there may be more
        elif not result.claims and self.probing and self._probed:
            self._probed.clear()  # no other document is due: probe with one of those again
            self.look_at_s = now_s
        else:
            due_s = POLL_S if result.next_due_ms is None else (result.next_due_ms - store_ms) / 1000
            self.look_at_s = now_s + min(max(due_s, LOOK_MIN_S), POLL_S)

    def end(self, call: Call, verdict: Verdict, now_s: float) -> Settlement:
        """Count the end of a call, and decide what is recorded of its document."""
        if call.started_s is None:
            self.limiter.withdraw(call.taken)
        else:
            spent = spent_on(call, verdict)
            self.limiter.end(call.taken, 0 if spent is None else sum(usage.tokens_of(spent.usage)))
        self._answered += isinstance(verdict, Answer)
        match verdict:
            case TransientFailure():
                return self._troubled(call, verdict, now_s)
            case Answer():
                self.limiter.succeeded()
                self.breaker.succeeded(call.ticket)
            case Failure() if call.started_s is not None:  # it answered with a refusal
                self.limiter.succeeded()
                self.breaker.succeeded(call.ticket)
            case _:
                self.breaker.abandoned(call.ticket, now_s)
        if not self.probing:
            self._probed.clear()
        return verdict

    def _troubled(self, call: Call, trouble: TransientFailure, now_s: float) -> Settlement:
        counted = self._blame(call, trouble, now_s)
        claim = call.claim
        if not counted:
            delay_s = retry_policy.wait_s(
                self._policy, earlier=claim.retries, retry_after_s=trouble.retry_after_s, uniform=random.random
            )
            return Retry(trouble.reason, trouble.message, delay_s, counted=False, misconfigured=trouble.misconfigured)
        next_s = retry_policy.next_wait_s(
            replace(self._policy, tries_max=min(self._policy.tries_max, trouble.tries_max or self._policy.tries_max)),
            tries=claim.tries,
            waited_s=claim.retry_wait_ms / 1000,
            retry_after_s=trouble.retry_after_s,
            uniform=random.random,
        )
        if next_s is None:
            return Failure(trouble.reason, f"given up after {claim.tries + 1} tries: {trouble.message}", "Trouble")
        return Retry(trouble.reason, trouble.message, next_s, counted=True)

    def _blame(self, call: Call, trouble: TransientFailure, now_s: float) -> bool:
        """Tell limiter and breaker; say whether the document's own bounds move."""
        if not trouble.counted:
            self.breaker.abandoned(call.ticket, now_s)
            return False
        if trouble.tries_max is not None:  # it was reached, and did not answer
            self.limiter.succeeded()
            self.breaker.succeeded(call.ticket)
            return True
        if trouble.misconfigured and self._accuses_again(call.claim.uri):
            self.breaker.abandoned(call.ticket, now_s)
            return True
        if trouble.reason == "rate_limited" and not self.limiter.refused(now_s, trouble.retry_after_s):
            self.breaker.abandoned(call.ticket, now_s)
            return False  # an echo of the refusal that opened the pause
        if trouble.reason != "rate_limited" and trouble.retry_after_s is not None:
            self.limiter.pause(now_s, trouble.retry_after_s)
        return self.breaker.failed(call.ticket, call.claim.uri, now_s, misconfigured=trouble.misconfigured)

    def _accuses_again(self, uri: str) -> bool:
        """Return whether a document's earlier calls found the evaluator misconfigured, and others were answered since.

        Then it is the document: a firewall that stops its body with 403, a refusal that quotes words of it. Each time
        counts only with an answer since the last, so that no document fails for a key that is bad for long.
        """
        then = self._accusers.pop(uri, None)
        if len(self._accusers) >= ACCUSERS_MAX:
            del self._accusers[next(iter(self._accusers))]
        self._accusers[uri] = self._answered
        return then is not None and then < self._answered

    def _share(self, claim: queue.Claim) -> None:
        """Credit a reindex for this claim, or charge it for its own; little can be saved up."""
        self._reindex_credit += REINDEX_SHARE
        if claim.lane == due_documents.REINDEX:
            self._reindex_credit -= 1.0
        most = 1.0 + 2 * REINDEX_SHARE * self.limits.concurrency  # a round's share and what was left of the last
        self._reindex_credit = min(max(self._reindex_credit, 0.0), most)


def _bytes_of(assignment: Assignment) -> int:
    """Return about how much text goes with each body."""
    return sum(len(question.model_dump_json()) for question in assignment.definition.questions.values())


def lanes_of(assignments: Mapping[str, Assignment], now_s: float) -> list[EvaluatorLane]:
    """Return one lane for each evaluator's name."""
    by_name: dict[str, dict[str, Assignment]] = {}
    for collection, assignment in assignments.items():
        by_name.setdefault(assignment.definition.evaluator, {})[collection] = assignment
    return [EvaluatorLane(name, those, now_s) for name, those in by_name.items()]
