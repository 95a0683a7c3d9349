"""Outage reports of a process: which of its evaluators do not answer and why, and which answer again.

They are written in the next exchange with the store, and kept until it has acknowledged them.
"""

from dataclasses import dataclass

from facetline.storage import evaluator_outages
from facetline.storage.db import engine
from facetline.streams.classify.call import Answer
from facetline.streams.classify.evaluator_lane import EvaluatorLane, Retry, Settlement

MARGIN_S = 10.0
"""How long after the next probe a report stays valid: the time it takes to renew it."""


@dataclass(frozen=True, slots=True)
class OutageReport:
    """One evaluator does not answer, or (`trouble` None) it does."""

    lane: EvaluatorLane
    trouble: Retry | None
    valid_s: float = 0.0


class OutageReports:
    """The reports not written yet, by evaluator."""

    def __init__(self) -> None:
        self._unreported: dict[str, OutageReport] = {}
        self._well: set[str] = set()

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._unreported)

    def note(self, lane: EvaluatorLane, settlement: Settlement) -> None:
        """Note the end of a call: trouble while the breaker is open, or the first answer after that or a start."""
        if lane.breaker.state == "open" and isinstance(settlement, Retry):
            self._well.discard(lane.name)
            self._unreported[lane.name] = OutageReport(lane, settlement)
        elif lane.breaker.state == "closed" and isinstance(settlement, Answer) and lane.name not in self._well:
            self._well.add(lane.name)
            self._unreported[lane.name] = OutageReport(lane, None)

    def taken(self, now_s: float) -> tuple[OutageReport, ...]:
        """Return what to write now, in the order of the evaluators' names."""
        return tuple(_dated(self._unreported[name], now_s) for name in sorted(self._unreported))

    def acknowledge(self, words: tuple[OutageReport, ...]) -> None:
        """Drop reports that the store has; newer ones stay."""
        for word in words:
            if self._unreported[word.lane.name].trouble is word.trouble:
                del self._unreported[word.lane.name]


def write(tx: engine.Tx, words: tuple[OutageReport, ...]) -> None:
    """Write them down."""
    for word in words:
        if word.trouble is None:
            evaluator_outages.clear(tx, word.lane.name)
        else:
            evaluator_outages.record(
                tx,
                word.lane.name,
                word.trouble.reason,
                word.trouble.message,
                misconfigured=word.trouble.misconfigured,
                valid_ms=int(word.valid_s * 1000),
            )


def _dated(word: OutageReport, now_s: float) -> OutageReport:
    probe_s = word.lane.breaker.probe_due_s() or now_s
    return OutageReport(word.lane, word.trouble, max(0.0, probe_s - now_s) + word.lane.lease_s + MARGIN_S)
