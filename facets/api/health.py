"""Routes about the process: liveness, readiness, metrics; and the kinds of problem."""

from collections.abc import Sequence
from dataclasses import replace

from starlette.responses import Response

from facetline.facets.api import auth, models, problem_types, replies, reply_models
from facetline.facets.api.problems import Problem
from facetline.facets.api.routing import RequestContext, RouteSpec
from facetline.facets.backend import Check


async def livez(context: RequestContext) -> Response:
    """Report whether the process works; checks nothing outside of it."""
    context.parameters(models.Verbose)
    checks = await context.node.alive()
    if _level(checks) == "failed":
        raise Problem("not-alive", _failures(checks))
    return replies.json_reply({"status": "alive"})


async def readyz(context: RequestContext) -> Response:
    """Report whether the process can serve; details only to callers whose token has no scope."""
    verbose = context.parameters(models.Verbose).verbose
    checks = await context.node.ready()
    level = _level(checks)
    shown = [_shown(check) for check in checks if verbose or check.level != "ok"]
    seen = await _may_see(context, needed=verbose)
    if level == "failed":
        raise Problem("not-ready", _failures(checks) if seen else "not ready", checks=shown if seen else None)
    details = {"checks": shown} if seen else {}
    return replies.json_reply({"status": "ready" if level == "ok" else level, **details})


async def metrics(context: RequestContext) -> Response:
    """Return the metrics page."""
    context.parameters(models.Nothing)
    body, media = await context.node.metrics(context.request.headers.get("accept", ""))
    return Response(body, headers={"Content-Type": media})


async def kind(context: RequestContext) -> Response:
    """Describe a kind of problem."""
    context.parameters(models.Nothing)
    found = problem_types.KINDS.get(context.path["name"])
    if found is None:
        raise Problem("problem-not-found", f"unknown kind of problem {context.path['name'][:80]!r}")
    return replies.json_reply({"type": found.type, "title": found.title, "status": found.status, "mend": found.fix})


async def _may_see(context: RequestContext, *, needed: bool) -> bool:
    """Return whether details are shown; with `needed` (they were requested) a missing token is an error."""
    try:
        caller = await context.service.access.caller(context.request.headers)
        auth.require(caller, "read", everywhere=True)
    except Problem:
        if needed:
            raise
        return False
    return True


def _level(checks: Sequence[Check]) -> str:
    levels = {check.level for check in checks}
    return next((level for level in ("failed", "degraded") if level in levels), "ok")


def _failures(checks: Sequence[Check]) -> str:
    return "; ".join(f"{check.name}: {check.detail}" for check in checks if check.level == "failed")


def _shown(check: Check) -> dict[str, str]:
    return {"name": check.name, "level": check.level, "detail": check.detail}


_READYZ = RouteSpec(
    "GET",
    "/readyz",
    "readyz",
    readyz,
    None,
    "Report whether the process can serve; `verbose` lists all checks",
    {200: {replies.JSON: reply_models.Health}},
    parameters=models.Verbose,
    problems=("not-ready", "unauthorized", "forbidden"),
)
ROUTES = (
    RouteSpec(
        "GET",
        "/livez",
        "livez",
        livez,
        None,
        "Report whether the process works",
        {200: {replies.JSON: reply_models.Health}},
        parameters=models.Verbose,
        problems=("not-alive",),
    ),
    _READYZ,
    replace(_READYZ, path="/health", name="health", summary="The same as `/readyz`"),
    RouteSpec(
        "GET",
        "/metrics",
        "metrics",
        metrics,
        "read",
        "Return the metrics",
        {200: {"text/plain": None}},
        parameters=models.Nothing,
        everywhere=True,
    ),
    RouteSpec(
        "GET",
        "/v1/problems/{name}",
        "get_problem_kind",
        kind,
        "read",
        "Describe a kind of problem",
        {200: {replies.JSON: reply_models.ProblemKind}},
        parameters=models.Nothing,
        problems=("problem-not-found",),
    ),
)
