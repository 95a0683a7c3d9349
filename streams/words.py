"""What a process has to tell the others about its evaluators: which do not answer and why, and which do again.

Told in the next exchange with the store, and kept until the store has heard it.
"""

from dataclasses import dataclass

from storage import engine, troubles
from streams.calls import Answer
from streams.lanes import Lane, Retry, Settlement

MARGIN_S = 10.0
"""How much longer than until the end of its next probe a word is taken for what is so: time for it to be told anew."""


@dataclass(frozen=True, slots=True)
class Word:
    """One evaluator does not answer, or (`trouble` None) it does."""

    lane: Lane
    trouble: Retry | None
    valid_s: float = 0.0


class Words:
    """The words not told yet, by evaluator."""

    def __init__(self) -> None:
        self._untold: dict[str, Word] = {}
        self._well: set[str] = set()

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self._untold)

    def note(self, lane: Lane, settlement: Settlement) -> None:
        """Note the end of a call: trouble while the breaker is open, or the first answer after that or a start."""
        if lane.breaker.state == "open" and isinstance(settlement, Retry):
            self._well.discard(lane.name)
            self._untold[lane.name] = Word(lane, settlement)
        elif lane.breaker.state == "closed" and isinstance(settlement, Answer) and lane.name not in self._well:
            self._well.add(lane.name)
            self._untold[lane.name] = Word(lane, None)

    def taken(self, now_s: float) -> tuple[Word, ...]:
        """Return what is to be told now, in the order of the evaluators' names."""
        return tuple(_dated(self._untold[name], now_s) for name in sorted(self._untold))

    def heard(self, words: tuple[Word, ...]) -> None:
        """Note that the store has heard these; what came meanwhile stays."""
        for word in words:
            if self._untold[word.lane.name].trouble is word.trouble:
                del self._untold[word.lane.name]


def tell(tx: engine.Tx, words: tuple[Word, ...]) -> None:
    """Write them down."""
    for word in words:
        if word.trouble is None:
            troubles.clear(tx, word.lane.name)
        else:
            troubles.tell(
                tx,
                word.lane.name,
                word.trouble.reason,
                word.trouble.message,
                misconfigured=word.trouble.misconfigured,
                valid_ms=int(word.valid_s * 1000),
            )


def _dated(word: Word, now_s: float) -> Word:
    probe_s = word.lane.breaker.probe_due_s() or now_s
    return Word(word.lane, word.trouble, max(0.0, probe_s - now_s) + word.lane.lease_s + MARGIN_S)
