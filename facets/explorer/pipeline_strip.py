"""View model of the pipeline strip: documents by status, lag, evaluator and cost of a collection. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from facetline.facets.explorer import formatting

# In drawing order; deleted documents are not shown.
STATUSES = ("indexed", "pending", "failed", "empty")
_LABELS = {"indexed": "answered", "pending": "being asked", "failed": "failed", "empty": "blank"}
# The evaluator's state while no worker is running and documents wait.
_ABSENT = "absent"
_EVALUATOR = {
    "ok": "answering",
    "paused": "paused",
    "stopped": "stopped",
    "absent": "not asked",
    "unknown": "not asked: no worker is running",
}
# Polling interval of the strip in seconds: while documents wait, and otherwise.
BUSY_S = 2
QUIET_S = 5


@dataclass(frozen=True, slots=True)
class Part:
    """One status: start and length of its segment of the line, 0 to 100."""

    status: str
    label: str
    count: int
    start: float
    share: float


@dataclass(frozen=True, slots=True)
class Strip:
    """The pipeline strip; `every_s` is the polling interval, `warning` what the operator must do."""

    parts: list[Part]
    total: int
    pending: str
    failed: int
    reasons: list[str]
    outdated: int
    lag: str
    evaluator: str
    model: str
    state: str
    state_label: str
    why: str
    warning: str
    spend: str
    calls: int
    every_s: int


def parts(counts: Mapping[str, int]) -> list[Part]:
    """Return the segments of the line that shows the documents by status."""
    total = sum(counts.get(status, 0) for status in STATUSES)
    start = 0.0
    found = []
    for status in STATUSES:
        number = counts.get(status, 0)
        share = round(100 * number / total, 2) if total else 0.0
        found.append(Part(status, _LABELS[status], number, start, share))
        start = round(start + share, 2)
    return found


def strip(given: Mapping[str, Any]) -> Strip:
    """Return the strip for the object of `StatusBackend.strip`."""
    counts = given["counts"]
    waiting = counts.get("pending", 0)
    oldest = given.get("oldest_pending_s")
    evaluator = given["evaluator"]
    absent = evaluator["state"] == _ABSENT
    found = [replace(part, label="waiting") if absent and part.status == "pending" else part for part in parts(counts)]
    spend = given["spend"]
    events = given["lag"].get("events") or 0
    moving = bool(waiting or events)
    return Strip(
        parts=found,
        total=sum(part.count for part in found),
        pending=f"oldest waits {formatting.seconds(oldest)}" if waiting and oldest is not None and not absent else "",
        failed=counts.get("failed", 0),
        reasons=_reasons(given["failed"]),
        outdated=given.get("outdated") or 0,
        lag=_lag(events, given["lag"].get("seconds")),
        evaluator=evaluator["name"],
        model=evaluator.get("model") or evaluator.get("kind") or "",
        state=evaluator["state"],
        state_label=_EVALUATOR.get(evaluator["state"], evaluator["state"]),
        why="" if absent else evaluator.get("message") or "",
        warning=_warning(waiting, oldest, evaluator.get("message")) if absent else "",
        spend=_spend(spend.get("usd"), spend.get("usd_max")),
        calls=spend.get("calls") or 0,
        every_s=BUSY_S if moving else QUIET_S,
    )


def _warning(waiting: int, oldest_s: float | None, way_out: str | None) -> str:
    """Return the warning that no worker is running, with the waiting documents and the way out."""
    documents = f"{formatting.count(waiting)} document{' waits' if waiting == 1 else 's wait'} for an answer"
    since = "" if oldest_s is None else f", the oldest for {formatting.seconds(oldest_s)}"
    return f"No worker is running: {documents}{since}{f'; {way_out}' if way_out else ''}."


def _reasons(failed: Mapping[str, int]) -> list[str]:
    names = [reason.replace("_", " ") for reason in failed]
    if len(names) == 1:
        return names
    return [f"{formatting.count(number)} {each}" for each, number in zip(names, failed.values(), strict=True)]


def _spend(usd: float | None, most: float | None) -> str:
    """Return today's cost; an empty string if the caller may not see it."""
    if usd is None:
        return ""
    return formatting.usd(usd) + (f" of {formatting.usd(most)}" if most is not None else "")


def _lag(events: int, seconds: float | None) -> str:
    if not events:
        return ""
    behind = f"{formatting.count(events)} event{'' if events == 1 else 's'} behind"
    return behind if seconds is None else f"{behind}, {formatting.seconds(seconds)}"
