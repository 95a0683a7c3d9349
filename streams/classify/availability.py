"""Why nobody asks about a collection's documents just now, for whoever waits for their answers.

A process that makes the calls itself knows it; for the others it is in the store: the word of those that make them, and
the ledger, against the limit in this process's own configuration file.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from facetline.facets import errors
from facetline.storage import definitions, evaluator_outages
from facetline.storage.db import engine, json_rows
from facetline.storage.queue import daily_budget

if TYPE_CHECKING:
    from facetline.streams.pipeline import Pipeline
    from facetline.streams.project import Project

MEND = "mend its key, its quota or its table in facetline.toml"
WAIT = "wait until it answers again"


@dataclass(frozen=True, slots=True)
class Unavailability:
    """An evaluator that is not called. `lasts`: waiting alone does not help soon."""

    evaluator: str
    problem: str
    mend: str
    lasts: bool

    def says(self, waiting: int | None, *, workers: bool) -> str:
        """Return it as one line: how many documents wait, what to do, and who goes on with them then."""
        documents = "its documents stay" if waiting is None else _counted(waiting)
        then = "workers go on by themselves then" if workers else "the next write, import or reindex goes on with them"
        return f"evaluator '{self.evaluator}' {self.problem}; {documents} pending: {self.mend}; {then}"

    def error(self, waiting: int | None, *, workers: bool) -> errors.TransientError:
        """Return it as an error."""
        kind = errors.EvaluatorMisconfigured if self.lasts else errors.EvaluatorUnavailable
        return kind(self.says(waiting, workers=workers))


def spent(evaluator: str, left: daily_budget.Allowance) -> Unavailability:
    """Return that the day's money is used up."""
    resumes = json_rows.moment(left.resumes_ms).strftime("%Y-%m-%d %H:%M UTC")
    problem = f"has spent ${left.spent_usd:.4f} of the ${left.limit_usd:g} a day that max_usd_per_day allows"
    return Unavailability(evaluator, problem, f"wait until {resumes}, or raise the limit", lasts=True)


def stopped(evaluator: str, reason: str | None, *, misconfigured: bool) -> Unavailability:
    """Return that its breaker is open; `reason` is what opened it."""
    said = f" ({reason})" if reason else ""
    problem = f"cannot be used{said}" if misconfigured else f"does not answer{said}"
    return Unavailability(evaluator, problem, MEND if misconfigured else WAIT, lasts=misconfigured)


async def of(pipeline: "Pipeline", collection: str) -> Unavailability | None:
    """Return what keeps a collection's documents from being asked about, None when nothing is known to."""
    if pipeline.work is None:
        return await pipeline.store.read(_in_store, collection, _limit_of(pipeline))
    chain = pipeline.work.side_chain
    for lane in chain.lanes:
        if collection not in lane.assignments:
            continue
        if lane.breaker.state != "closed":
            reason = chain.stats.breaker_reasons.get(lane.name)
            return stopped(lane.name, reason, misconfigured=lane.name in chain.stats.misconfigured)
        if lane.allowance is not None and lane.allowance.reached:
            return spent(lane.name, lane.allowance)
    return None


def check_spent(tx: engine.Tx, evaluator: str, limit_usd: float | None) -> None:
    """Refuse a call about no document when the day's money is spent.

    Raises:
        EvaluatorUnavailable: saying when there is more.
    """
    if limit_usd is not None:
        left = daily_budget.allowance(tx, evaluator, limit_usd, collections=(), slots=1)
        if left.reached:
            found = spent(evaluator, left)
            raise errors.EvaluatorUnavailable(f"evaluator '{evaluator}' {found.problem}: {found.mend}")


async def last_known(pipeline: "Pipeline", collection: str) -> str | None:
    """Return it as a line, for a job that is looked at: also what was so when the last process ended."""
    found = await of(pipeline, collection)
    workers = pipeline.settings.runtime == "kafka"
    if found is not None:
        return found.says(None, workers=workers)
    active = (await pipeline.definitions()).by_name.get(collection)
    for each in await pipeline.store.read(evaluator_outages.all):
        if active is not None and each.evaluator == active.evaluator:
            return when(each)
    return None


def when(trouble: evaluator_outages.Outage) -> str:
    """Return a word that nobody has renewed, with its time."""
    at = json_rows.moment(trouble.told_ms).strftime("%Y-%m-%d %H:%M:%S UTC")
    did = "could not be used" if trouble.misconfigured else "did not answer"
    return f"evaluator '{trouble.evaluator}' {did} at {at} ({trouble.reason}: {trouble.message})"


@dataclass(frozen=True, slots=True)
class Survey:
    """A line for each evaluator of a project that has something to tell.

    `broken`: one must be mended now; `paused`: one may spend no more today.
    """

    lines: tuple[str, ...]
    broken: bool
    paused: bool


def survey(tx: engine.Tx, project: "Project") -> Survey:
    """Look at what is known of all evaluators of a project."""
    lines, broken, paused = [], False, False
    for each in evaluator_outages.all(tx):
        if each.evaluator in project.evaluators:
            is_now = each.is_current(tx.now_ms)
            broken = broken or (is_now and each.misconfigured)
            what = f": {MEND if each.misconfigured else WAIT}" if is_now else ", and nobody has had an answer since"
            lines.append(f"{when(each)}{what}")
    for name, limits in project.limits.items():
        if limits.max_usd_per_day is not None and name in project.evaluators:
            left = daily_budget.allowance(tx, name, limits.max_usd_per_day, collections=(), slots=1)
            paused = paused or left.reached
            lines.append(_spending(name, left))
    return Survey(tuple(lines), broken, paused)


def _spending(evaluator: str, left: daily_budget.Allowance) -> str:
    if left.reached:
        stands = spent(evaluator, left)
        return f"evaluator '{evaluator}' {stands.problem}: {stands.mend}"
    blind = f"; {left.unpriced_calls} calls told no cost" if left.unpriced_calls else ""
    return f"evaluator '{evaluator}' has spent ${left.spent_usd:.4f} of ${left.limit_usd:g} today (UTC){blind}"


def _limit_of(pipeline: "Pipeline") -> Callable[[str], float | None]:
    limits = pipeline.project.limits if pipeline.project is not None else {}
    return lambda evaluator: limits[evaluator].max_usd_per_day if evaluator in limits else None


def _in_store(tx: engine.Tx, collection: str, limit_of: Callable[[str], float | None]) -> Unavailability | None:
    _, active = definitions.active(tx)
    definition = active.by_name.get(collection)
    if definition is None:
        return None
    trouble = evaluator_outages.now(tx, definition.evaluator)
    if trouble is not None:
        reason = f"{trouble.reason}: {trouble.message}"
        return stopped(definition.evaluator, reason, misconfigured=trouble.misconfigured)
    limit_usd = limit_of(definition.evaluator)
    if limit_usd is None:
        return None
    left = daily_budget.allowance(tx, definition.evaluator, limit_usd, collections=[collection], slots=1)
    return spent(definition.evaluator, left) if left.reached else None


def _counted(waiting: int) -> str:
    return f"{waiting} document{'s stay' if waiting != 1 else ' stays'}"
