"""Report why an evaluator is not being called: circuit open, misconfigured, or daily budget spent.

A process that makes the calls knows it from its side chain. Any other one reads it in the store: the outage reports of
the processes that make them, and the usage ledger against the limit in its own configuration file.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from facetline.facets import errors, plurals
from facetline.storage import definitions, evaluator_outages
from facetline.storage.db import engine, json_rows
from facetline.storage.queue import daily_budget
from facetline.streams.classify.call import CallLimits
from facetline.streams.classify.side_chain import SideChain

FIX = "fix its key, its quota or its table in facetline.toml"
WAIT = "wait until it answers again"


@dataclass(frozen=True, slots=True)
class Unavailability:
    """Why an evaluator is not called, and what to do; `fix` is "" where the problem says so itself.

    `is_permanent`: waiting alone does not help soon.
    """

    evaluator: str
    problem: str
    fix: str
    is_permanent: bool

    @property
    def cause(self) -> str:
        """The evaluator, why it is not called, and what to do, without the documents that wait."""
        return f"{self.evaluator} is paused: {self.problem}" + (f"; {self.fix}" if self.fix else "")

    def says(self, waiting: int | None, *, workers: bool) -> str:
        """Return it as one line: the cause, how many documents wait, and what makes the calls then."""
        documents = (
            "documents wait" if waiting is None else plurals.counted(waiting, "document waits", "documents wait")
        )
        if not self.fix:
            return f"{self.cause} {documents}."
        then = "calls resume on their own" if workers else "the next write, import or reindex resumes the calls"
        return f"{self.cause}. {documents}; {then}"

    def error(self, waiting: int | None, *, workers: bool) -> errors.TransientError:
        """Return it as an error."""
        kind = errors.EvaluatorMisconfigured if self.is_permanent else errors.EvaluatorUnavailable
        return kind(self.says(waiting, workers=workers))


def spent(evaluator: str, left: daily_budget.Allowance) -> Unavailability:
    """Return that the budget of the day is spent."""
    resumes = json_rows.moment(left.resumes_ms).strftime("%Y-%m-%d %H:%M UTC")
    problem = f"it has spent ${left.spent_usd:.4f} of ${left.limit_usd:g} today (max_usd_per_day)"
    return Unavailability(evaluator, problem, f"wait until {resumes}, or raise the limit", is_permanent=True)


def stopped(evaluator: str, reason: str | None, *, misconfigured: bool) -> Unavailability:
    """Return that its circuit breaker is open; `reason` is what opened it."""
    if misconfigured and reason and reason.endswith("."):  # our adapters end with what to do, as a sentence
        return Unavailability(evaluator, reason.removeprefix("unavailable: "), "", is_permanent=True)
    known = f" ({reason})" if reason else ""
    problem = f"it cannot be used{known}" if misconfigured else f"it does not answer{known}"
    return Unavailability(evaluator, problem, FIX if misconfigured else WAIT, is_permanent=misconfigured)


def in_process(chain: SideChain, collection: str) -> Unavailability | None:
    """Return why this process does not call a collection's evaluator, None when it does."""
    for lane in chain.lanes:
        if collection not in lane.assignments:
            continue
        if lane.breaker.state != "closed":
            reason = chain.stats.breaker_reasons.get(lane.name)
            return stopped(lane.name, reason, misconfigured=lane.name in chain.stats.misconfigured)
        if lane.allowance is not None and lane.allowance.reached:
            return spent(lane.name, lane.allowance)
    return None


def in_store(tx: engine.Tx, collection: str, limits: Mapping[str, CallLimits]) -> Unavailability | None:
    """Return why no process calls a collection's evaluator, as far as the store knows; `limits` are by evaluator."""
    _, active = definitions.active(tx)
    definition = active.by_name.get(collection)
    if definition is None:
        return None
    outage = evaluator_outages.now(tx, definition.evaluator)
    if outage is not None:
        reason = f"{outage.reason}: {outage.message}"
        return stopped(definition.evaluator, reason, misconfigured=outage.misconfigured)
    of_evaluator = limits.get(definition.evaluator)
    if of_evaluator is None or of_evaluator.max_usd_per_day is None:
        return None
    limit_usd = of_evaluator.max_usd_per_day
    left = daily_budget.allowance(tx, definition.evaluator, limit_usd, collections=[collection], slots=1)
    return spent(definition.evaluator, left) if left.reached else None


def check_spent(tx: engine.Tx, evaluator: str, limit_usd: float | None) -> None:
    """Refuse a call that is about no document when the budget of the day is spent.

    Raises:
        EvaluatorUnavailable: the message says when there is more.
    """
    if limit_usd is not None:
        left = daily_budget.allowance(tx, evaluator, limit_usd, collections=(), slots=1)
        if left.reached:
            raise errors.EvaluatorUnavailable(spent(evaluator, left).cause)


def last_known(tx: engine.Tx, evaluator: str) -> str | None:
    """Return the last outage of an evaluator as a line, None when it has answered since."""
    return next((when(each) for each in evaluator_outages.all(tx) if each.evaluator == evaluator), None)


def when(outage: evaluator_outages.Outage) -> str:
    """Return an outage report that was not renewed, with its time."""
    at = json_rows.moment(outage.told_ms).strftime("%Y-%m-%d %H:%M:%S UTC")
    did = "could not be used" if outage.misconfigured else "did not answer"
    return f"{outage.evaluator} {did} at {at} ({outage.reason}: {outage.message})"


@dataclass(frozen=True, slots=True)
class Survey:
    """A line for each evaluator of a project with something to report.

    `broken`: one must be fixed now; `paused`: one has spent the budget of the day.
    """

    lines: tuple[str, ...]
    broken: bool
    paused: bool


def survey(tx: engine.Tx, limits: Mapping[str, CallLimits]) -> Survey:
    """Return what is known of the evaluators whose limits these are."""
    lines, broken, paused = [], False, False
    for each in evaluator_outages.all(tx):
        if each.evaluator in limits:
            is_now = each.is_current(tx.now_ms)
            broken = broken or (is_now and each.misconfigured)
            what = f"; {FIX if each.misconfigured else WAIT}" if is_now else "; no call has succeeded since"
            lines.append(f"{when(each)}{what}")
    for name, of_evaluator in limits.items():
        if of_evaluator.max_usd_per_day is not None:
            left = daily_budget.allowance(tx, name, of_evaluator.max_usd_per_day, collections=(), slots=1)
            paused = paused or left.reached
            lines.append(_spending(name, left))
    return Survey(tuple(lines), broken, paused)


def _spending(evaluator: str, left: daily_budget.Allowance) -> str:
    if left.reached:
        return spent(evaluator, left).cause
    unknown = f"; the cost of {plurals.counted(left.unpriced_calls, 'call')} is unknown" if left.unpriced_calls else ""
    return f"{evaluator} has spent ${left.spent_usd:.4f} of ${left.limit_usd:g} today (UTC){unknown}"
