"""Liveness and readiness checks of a serving process; failed checks name the cause and the way out.

*Alive* checks only the process: an unreachable store is no reason to restart it. *Ready* means that it answers searches
and accepts writes. Searches continue while the store or the broker is unreachable, so a process whose views are built
is then *degraded*; it is failed only if it can serve nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from facetline.facets.backend import Check, Level
from facetline.storage import processes
from facetline.streams.classify import availability
from facetline.streams.classify.stats import FIX
from facetline.streams.monitor import answering
from facetline.streams.monitor.health import stalled
from facetline.streams.views.live_views import LiveViews

if TYPE_CHECKING:
    from facetline.streams.pipeline import Pipeline

STUCK_S = 120.0
"""A refresh of the views takes milliseconds, seconds after a long absence, half a minute if the store is away."""
SLOW_S = 5.0
"""A view older than this is reported."""
NAMED_MAX = 20
"""Maximum number of collections named by one check."""
ENDED = "view updater stopped (bug); restart the server"


@dataclass
class ProcessState:
    """State of the process: whether it is stopping, and the last checks of broker and workers.

    `broker` is the problem, "" if it answers, None without a broker or before the first check. `workers` None: this
    process classifies, or the check has not succeeded yet.
    """

    stopping: bool = False
    broker: str | None = None
    workers: processes.Answering | None = None


def alive(views: LiveViews, following: bool, work_dead: Sequence[str]) -> list[Check]:
    """Return a check of the event loop, which is ok if this runs, and one of the parts that must run."""
    dead = [*([] if following else ["views"]), *work_dead]
    parts = Check("parts", "ok", "all parts run")
    if dead:
        parts = Check("parts", "failed", f"{', '.join(dead)} stopped; restart the server")
    elif views.busy_s() > STUCK_S:
        parts = Check("parts", "failed", f"views: no progress for {views.busy_s():.0f} s; restart the server")
    return [Check("event_loop", "ok", "answers"), parts]


async def ready(pipeline: "Pipeline", views: LiveViews, state: ProcessState, *, following: bool) -> list[Check]:
    """Return all readiness checks; `following`: the views are kept current."""
    view = _view(views) if following else Check("view", "failed", ENDED)
    found = [
        _stop(state),
        _store(views, pipeline.settings.runtime),
        *_working(pipeline),
        *_broker(state),
        *_workers(state),
        view,
        _definitions(pipeline, views),
    ]
    return [check for check in [*found, _evaluators(pipeline)] if check is not None]


def _stop(state: ProcessState) -> Check | None:
    if not state.stopping:
        return None
    return Check("stop", "failed", "stopping; running requests get their grace period")


def _store(views: LiveViews, runtime: str) -> Check:
    age_s = views.age_s()
    if age_s is None:
        return Check("store", "failed", views.problem or "not read yet")
    if views.problem is None and views.busy_s() < SLOW_S:
        return Check("store", "ok", "answers")
    problem = views.problem or f"no answer for {views.busy_s():.0f} s"
    writes = "writes are refused" if runtime == "local" else "writes go to the log and are applied once it is back"
    return Check("store", "degraded", f"{problem}; searches use the state of {age_s:.0f} s ago, {writes}")


def _working(pipeline: "Pipeline") -> list[Check]:
    """Check the connections for writes and claims, which may be blocked while the views are current."""
    problem = stalled(pipeline.store)
    if problem is None and pipeline.work is not None:
        problem = pipeline.work.side_chain.stats.store_problem
    if problem is None:
        return [Check("store_work", "ok", "ok")]
    return [Check("store_work", "degraded", f"{problem}; searches continue, writes and answers wait")]


def _broker(state: ProcessState) -> list[Check]:
    if state.broker is None:
        return []
    if not state.broker:
        return [Check("broker", "ok", "answers")]
    return [Check("broker", "degraded", f"{state.broker}; searches continue, writes are refused")]


def _workers(state: ProcessState) -> list[Check]:
    """Check whether documents wait while no worker classifies them."""
    found = state.workers
    if found is None:
        return []
    return [Check("workers", "degraded" if answering.is_amiss(found) else "ok", answering.says(found))]


def _view(views: LiveViews) -> Check:
    unbuilt = views.unbuilt()
    if unbuilt:
        named = [_unbuilt(views, name) for name in unbuilt[:NAMED_MAX]]
        return Check("view", "failed", f"being built: {', '.join(named)}")
    if not views.known.definitions.by_name:
        return Check("view", "ok", "no collection is active yet")
    age_s = views.age_s() or 0.0
    level: Level = "ok" if age_s < SLOW_S else "degraded"
    return Check("view", level, f"{len(views.known.definitions.by_name)} collections, as of {age_s:.1f} s ago")


def _unbuilt(views: LiveViews, collection: str) -> str:
    reason = views.why_unbuilt(collection)
    return collection if reason is None else f"{collection} (retrying: {reason})"


def _definitions(pipeline: "Pipeline", views: LiveViews) -> Check:
    own = pipeline.project.definitions if pipeline.project is not None else ()
    active = views.known.definitions.by_name
    foreign = [each.name for each in own if each.name not in active or active[each.name] != each]
    if not foreign:
        return Check("definitions", "ok", "ok")
    detail = f"{', '.join(foreign)}: {pipeline.settings.config} differs from the active definition, which is served"
    return Check("definitions", "degraded", f"{detail}; run 'facetline collections apply' to activate the file's")


def _evaluators(pipeline: "Pipeline") -> Check | None:
    if pipeline.work is None:
        return None
    chain = pipeline.work.side_chain
    problems = []
    for lane in chain.lanes:
        if lane.breaker.state != "closed":
            reason = chain.stats.breaker_reasons.get(lane.name)
            wait = FIX if lane.name in chain.stats.misconfigured else "documents wait until it answers"
            problems.append(f"{lane.name}{f' ({reason})' if reason else ''} is stopped: {wait}")
        elif lane.allowance is not None and lane.allowance.reached:
            found = availability.spent(lane.name, lane.allowance)
            problems.append(f"{found.cause}; documents wait")
    if problems:
        return Check("evaluators", "degraded", "; ".join(problems))
    return Check("evaluators", "ok", "ok")
