"""Whether a serving process is alive, and whether it can serve: what is wrong is named, with the way out.

*Alive* makes no request: a store that is away is no reason to restart the process. *Ready* means that it answers
searches and takes writes. A search goes on while the store or the broker is away, so a process whose views are built is
then *degraded* for what it cannot do, and failed only where that is everything it is there for.
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
"""A look at the store takes milliseconds, a long way some seconds a step, and a store that is away half a minute."""
SLOW_S = 5.0
"""A view that is older than this is reported."""
NAMED_MAX = 20
"""Collections that one check names."""
ENDED = "view updater stopped (bug); restart the server"


@dataclass
class ProcessState:
    """What is known of the process itself: whether it is stopping, and the broker's last state.

    `broker` None: there is none, or it was not asked yet; "" says that it answers. `workers` None: this process asks
    evaluators itself, or the store was not asked yet, or does not say.
    """

    stopping: bool = False
    broker: str | None = None
    workers: processes.Answering | None = None


def alive(views: LiveViews, following: bool, work_dead: Sequence[str]) -> list[Check]:
    """Return a check for the event loop, which is fine when this runs at all, and one for each part that must run."""
    dead = [*([] if following else ["views"]), *work_dead]
    parts = Check("parts", "ok", "all parts run")
    if dead:
        parts = Check("parts", "failed", f"{', '.join(dead)} ended; start it again")
    elif views.busy_s() > STUCK_S:
        parts = Check("parts", "failed", f"views: one look has taken {views.busy_s():.0f} s; start it again")
    return [Check("event_loop", "ok", "answers"), parts]


async def ready(pipeline: "Pipeline", views: LiveViews, standing: ProcessState, *, following: bool) -> list[Check]:
    """Return all checks of readiness; `following`: the views are kept current."""
    view = _view(views) if following else Check("view", "failed", ENDED)
    found = [
        _stop(standing),
        _store(views, pipeline.settings.runtime),
        *_working(pipeline),
        *_broker(standing),
        *_workers(standing),
        view,
        _definitions(pipeline, views),
    ]
    return [check for check in [*found, _evaluators(pipeline)] if check is not None]


def _stop(standing: ProcessState) -> Check | None:
    if not standing.stopping:
        return None
    return Check("stop", "failed", "stopping; running requests get their grace period")


def _store(views: LiveViews, runtime: str) -> Check:
    age_s = views.age_s()
    if age_s is None:
        return Check("store", "failed", views.problem or "not seen yet")
    if views.problem is None and views.busy_s() < SLOW_S:
        return Check("store", "ok", "answers")
    problem = views.problem or f"one look has taken {views.busy_s():.0f} s"
    writes = "writes are refused" if runtime == "local" else "writes go to the log and are applied once it is back"
    return Check("store", "degraded", f"{problem}; searches go on as of {age_s:.0f} s ago, {writes}")


def _working(pipeline: "Pipeline") -> list[Check]:
    """Look at the connections that do the work: views may be current while writes or claims wait."""
    problem = stalled(pipeline.store)
    if problem is None and pipeline.work is not None:
        problem = pipeline.work.side_chain.stats.store_problem
    if problem is None:
        return [Check("store_work", "ok", "transactions end in time")]
    return [Check("store_work", "degraded", f"{problem}; searches go on, writes and answers wait")]


def _broker(standing: ProcessState) -> list[Check]:
    if standing.broker is None:
        return []
    if not standing.broker:
        return [Check("broker", "ok", "answers")]
    return [Check("broker", "degraded", f"{standing.broker}; searches go on, writes are refused")]


def _workers(standing: ProcessState) -> list[Check]:
    """Say whether documents wait that no process asks about: this one would serve them, and they never come."""
    found = standing.workers
    if found is None:
        return []
    return [Check("workers", "degraded" if answering.is_amiss(found) else "ok", answering.says(found))]


def _view(views: LiveViews) -> Check:
    unbuilt = views.unbuilt()
    if unbuilt:
        lines = [_unbuilt(views, name) for name in unbuilt[:NAMED_MAX]]
        return Check("view", "failed", f"being built: {', '.join(lines)}")
    if not views.known.definitions.by_name:
        return Check("view", "ok", "no collection is active yet")
    age_s = views.age_s() or 0.0
    level: Level = "ok" if age_s < SLOW_S else "degraded"
    return Check("view", level, f"{len(views.known.definitions.by_name)} collections, as of {age_s:.1f} s ago")


def _unbuilt(views: LiveViews, collection: str) -> str:
    reason = views.why_unbuilt(collection)
    return collection if reason is None else f"{collection} (tried again: {reason})"


def _definitions(pipeline: "Pipeline", views: LiveViews) -> Check:
    own = pipeline.project.definitions if pipeline.project is not None else ()
    active = views.known.definitions.by_name
    foreign = [each.name for each in own if each.name not in active or active[each.name] != each]
    if not foreign:
        return Check("definitions", "ok", "fine")
    message = (
        f"{', '.join(foreign)}: {pipeline.settings.config} differs from the active definition, which is what is served"
    )
    return Check("definitions", "degraded", f"{message}; 'facetline collections apply' makes the file's own active")


def _evaluators(pipeline: "Pipeline") -> Check | None:
    if pipeline.work is None:
        return None
    chain = pipeline.work.side_chain
    lines = []
    for lane in chain.lanes:
        if lane.breaker.state != "closed":
            reason = chain.stats.breaker_reasons.get(lane.name)
            wait = FIX if lane.name in chain.stats.misconfigured else "documents wait until it answers again"
            lines.append(f"{lane.name}{f' ({reason})' if reason else ''} is stopped: {wait}")
        elif lane.allowance is not None and lane.allowance.reached:
            found = availability.spent(lane.name, lane.allowance)
            lines.append(f"{found.cause}; documents wait")
    return Check("evaluators", "degraded", "; ".join(lines)) if lines else Check("evaluators", "ok", "fine")
