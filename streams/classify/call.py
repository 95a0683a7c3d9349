"""One call: ask an evaluator about one claimed document, and say plainly what came of it.

Whatever an evaluator does (answer, refuse, hang, raise anything at all) becomes a `Verdict`; nothing gets out of here
but the cancellation of the call itself. No verdict is stored here, and no call is ever repeated here.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from facetline.evaluators import validation
from facetline.evaluators.contract import UNSENT, Evaluated, Evaluator, spent_of
from facetline.facets import answers, errors
from facetline.facets.definitions import Definition
from facetline.facets.documents import DocumentReason
from facetline.streams.classify.circuit_breaker import Ticket
from facetline.streams.classify.token_bucket import NONE_TAKEN, Taken

if TYPE_CHECKING:
    from facetline.storage.queue import queue

MESSAGE_CHARS_MAX = 500
"""What is kept of an error's words: enough to act on, too little to be a copy of a document."""


LEASE_MARGIN_S = 15.0
"""How much longer than a call a lease is: time to be called after the claim, and to have the answer stored.

A claim older than this is not called, because its call could outlive its lease.
"""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What one evaluator may be asked, by one process.

    `call_s` is the wall-clock limit of one call, a lease is `lease_margin_s` longer. `tries_max` and `retry_wait_max_s`
    (the sum of waits) bound a document's tries; waits start at `retry_first_s` and double up to `retry_most_s`. A
    breaker probes after `probe_first_s`, doubling up to `probe_most_s`. `max_usd_per_day` alone is over all processes
    of the store, and its day is UTC.
    """

    concurrency: int = 16
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_usd_per_day: float | None = None
    call_s: float = 60.0
    lease_margin_s: float = LEASE_MARGIN_S
    tries_max: int = 6
    retry_wait_max_s: float = 3600.0
    retry_first_s: float = 1.0
    retry_most_s: float = 300.0
    probe_first_s: float = 5.0
    probe_most_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Assignment:
    """A collection as this process would ask about it: its own definition, and the evaluator that the name stands for.

    Collections whose definitions name the same evaluator share its limits: those of the first one.
    """

    definition: Definition
    evaluator: Evaluator
    limits: CallLimits = field(default_factory=CallLimits)


@dataclass(slots=True)
class Call:
    """A claimed document on its way; times are seconds of this process's monotonic clock."""

    claim: "queue.Claim"
    assignment: Assignment
    ticket: Ticket
    lease_until_s: float
    started_s: float | None = None
    taken: Taken = NONE_TAKEN

    @property
    def key(self) -> tuple[str, str, str]:
        """What the answer will be remembered by; two calls with one key are never made at once."""
        return (self.claim.scope, self.claim.body_hash, self.claim.fingerprint)


@dataclass(frozen=True, slots=True)
class Answer:
    """A full and valid set of answers, in their public form."""

    facets: dict[str, answers.FacetValue]
    evaluated: Evaluated


@dataclass(frozen=True, slots=True)
class Failure:
    """This body gets no answer; `error` is the class of the error. `spent` None: nothing, as far as is known."""

    reason: str
    message: str
    error: str
    spent: errors.Spent | None = None


@dataclass(frozen=True, slots=True)
class TransientFailure:
    """A retry may succeed; `misconfigured`: none can before the evaluator is fixed.

    Not `counted`: the call only found out how to ask the next one, so that it says nothing against anybody.
    `tries_max`: the evaluator was there, and only the document is tried again, so many times in all.
    """

    reason: str
    message: str
    retry_after_s: float | None = None
    misconfigured: bool = False
    spent: errors.Spent | None = None
    counted: bool = True
    tries_max: int | None = None


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The claim was too old: a call could have outlived its lease, so none was made."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The call was ended from here, at shutdown; its answer, if any, is lost."""


Verdict = Answer | Failure | TransientFailure | NotStarted | Cancelled

UNHEARD = errors.Spent()
"""The usage of a call whose end is unknown: its provider may have worked on, and may bill it."""


def spent_on(call: Call, verdict: Verdict) -> errors.Spent | None:
    """Return what a call used up, None when none was made or nothing was used up as far as anybody knows."""
    if call.started_s is None:
        return None
    match verdict:
        case Answer(evaluated=evaluated):
            return spent_of(evaluated)
        case Failure(spent=spent) | TransientFailure(spent=spent):
            return spent
        case Cancelled():
            return UNHEARD
        case NotStarted():
            return None


async def ask(call: Call, clock: Callable[[], float] = time.monotonic) -> Verdict:
    """Make the call, once, within its wall-clock limit and its lease."""
    now_s = clock()
    if call.lease_until_s - now_s < call.assignment.limits.call_s:
        return NotStarted()
    too_long = _too_long(call)
    if too_long is not None:
        return too_long
    call.started_s = now_s
    try:
        return await _evaluate(call)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            if UNSENT in getattr(error, "__notes__", ()):
                call.started_s = None
            raise
        return _failed(error)  # something inside the evaluator was cancelled, not this call
    except Exception as error:  # noqa: BLE001 (the outermost step: an evaluator's fault fails its document, not us)
        return verdict_on(error, call.assignment.limits.call_s)


async def _evaluate(call: Call) -> Answer:
    claim, assignment = call.claim, call.assignment
    questions = assignment.definition.questions
    async with asyncio.timeout(assignment.limits.call_s):
        evaluated = await assignment.evaluator.evaluate(
            claim.body, questions, key=claim.key, deadline_s=assignment.limits.call_s
        )
    try:
        validation.check_evaluated(questions, evaluated)
    except errors.InvalidAnswer as error:  # it was paid for all the same
        error.spent = spent_of(evaluated)
        raise
    return Answer(answers.facet_values(questions, evaluated.answers), evaluated)


def verdict_on(error: Exception, call_s: float) -> Verdict:
    """Return what an evaluator's error says about the call, whose limit was `call_s`."""
    match error:
        case TimeoutError():
            return TransientFailure(DocumentReason.TIMEOUT, f"no answer within {call_s:g} s", spent=UNHEARD)
        case errors.EvaluatorMisconfigured(spent=spent):
            return TransientFailure(DocumentReason.UNAVAILABLE, message_of(error), misconfigured=True, spent=spent)
        case errors.EvaluatorUnavailable(reason=reason, retry_after_s=wait_s, spent=spent):
            known = _known(reason, DocumentReason.UNAVAILABLE)
            if known == DocumentReason.TIMEOUT:
                spent = spent or UNHEARD
            return TransientFailure(
                known,
                message_of(error),
                retry_after_s=_retry_after_s(wait_s),
                spent=spent,
                counted=error.counted,
                tries_max=error.tries_max,
            )
        case errors.EvaluationFailed(reason=reason, spent=spent):
            name = type(error).__name__
            return Failure(_known(reason, DocumentReason.EVALUATOR_ERROR), message_of(error), name, spent)
        case _:
            return _failed(error)


def _too_long(call: Call) -> Failure | None:
    bytes_max = call.assignment.evaluator.limits.body_bytes_max
    if bytes_max is None or len(call.claim.body.encode()) <= bytes_max:
        return None
    message = f"the body has {len(call.claim.body.encode())} bytes, the evaluator takes {bytes_max}"
    return Failure(DocumentReason.TOO_LONG, message, "TooLong")


def _failed(error: BaseException) -> Failure:
    name = type(error).__name__
    return Failure(DocumentReason.EVALUATOR_ERROR, f"{name}: {message_of(error)}"[:MESSAGE_CHARS_MAX], name)


def _retry_after_s(given: object) -> float | None:
    """Return a Retry-After as a number: what someone's evaluator hands on may be the header's text."""
    return given if isinstance(given, int | float) else None


def _known(reason: str, otherwise: DocumentReason) -> str:
    return reason if reason in set(DocumentReason) else otherwise


def message_of(error: BaseException) -> str:
    """Return an error's words, short and fit for any database."""
    return storable(str(error), MESSAGE_CHARS_MAX)


def storable(text: str, chars_max: int) -> str:
    """Return a text cut and fit for any database (no NUL, no lone surrogates)."""
    return text[:chars_max].replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
