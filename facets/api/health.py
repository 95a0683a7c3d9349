"""The routes about the process itself: is it alive, is it ready, its metrics; and the kinds of problem."""

from collections.abc import Sequence
from dataclasses import replace

from starlette.responses import Response

from facetline.facets.api import auth, models, problem_types, replies, reply_models
from facetline.facets.api.problems import Problem
from facetline.facets.api.routing import Call, Declared
from facetline.facets.backend import Check


async def livez(call: Call) -> Response:
    """Say whether the process works; nothing beside it is looked at."""
    call.parameters(models.Verbose)
    checks = await call.node.alive()
    if _level(checks) == "failed":
        raise Problem("not-alive", _said(checks))
    return replies.json_reply({"status": "alive"})


async def readyz(call: Call) -> Response:
    """Say whether the process can serve. Who has no token that sees everything is told that and no more."""
    verbose = call.parameters(models.Verbose).verbose
    checks = await call.node.ready()
    level = _level(checks)
    shown = [_shown(check) for check in checks if verbose or check.level != "ok"]
    seen = await _may_see(call, needed=verbose)
    if level == "failed":
        raise Problem("not-ready", _said(checks) if seen else "not yet, or no longer", checks=shown if seen else None)
    message = {"checks": shown} if seen else {}
    return replies.json_reply({"status": "ready" if level == "ok" else level, **message})


async def metrics(call: Call) -> Response:
    """Return the metrics page."""
    call.parameters(models.Nothing)
    body, media = await call.node.metrics(call.request.headers.get("accept", ""))
    return Response(body, headers={"Content-Type": media})


async def kind(call: Call) -> Response:
    """Explain a kind of problem."""
    call.parameters(models.Nothing)
    found = problem_types.KINDS.get(call.path["name"])
    if found is None:
        raise Problem("problem-not-found", f"there is no kind of problem {call.path['name'][:80]!r}")
    return replies.json_reply({"type": found.type, "title": found.title, "status": found.status, "mend": found.mend})


async def _may_see(call: Call, *, needed: bool) -> bool:
    """Say whether details are shown; `needed`: they were asked for, so a missing token is told."""
    try:
        caller = await call.service.access.caller(call.request.headers)
        auth.require(caller, "read", everywhere=True)
    except Problem:
        if needed:
            raise
        return False
    return True


def _level(checks: Sequence[Check]) -> str:
    levels = {check.level for check in checks}
    return next((level for level in ("failed", "degraded") if level in levels), "ok")


def _said(checks: Sequence[Check]) -> str:
    return "; ".join(f"{check.name}: {check.detail}" for check in checks if check.level == "failed")


def _shown(check: Check) -> dict[str, str]:
    return {"name": check.name, "level": check.level, "detail": check.detail}


_READYZ = Declared(
    "GET",
    "/readyz",
    "readyz",
    readyz,
    None,
    "Say whether the process can serve; `verbose` lists what was looked at",
    {200: {replies.JSON: reply_models.Health}},
    parameters=models.Verbose,
    problems=("not-ready", "unauthorized", "forbidden"),
)
ROUTES = (
    Declared(
        "GET",
        "/livez",
        "livez",
        livez,
        None,
        "Say whether the process works",
        {200: {replies.JSON: reply_models.Health}},
        parameters=models.Verbose,
        problems=("not-alive",),
    ),
    _READYZ,
    replace(_READYZ, path="/health", name="health", summary="The same as `/readyz`, under a name that many try first"),
    Declared(
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
    Declared(
        "GET",
        "/v1/problems/{name}",
        "get_problem_kind",
        kind,
        "read",
        "Explain a kind of problem",
        {200: {replies.JSON: reply_models.ProblemKind}},
        parameters=models.Nothing,
        problems=("problem-not-found",),
    ),
)
