"""One evaluator's breaker: it stops the calls when the evaluator, rather than a document, is the trouble.

    closed ──(misconfigured, or passing failures of three different documents without a success between)──► open
    open ──(delay over: one probe)──► half open ──(success)──► closed
                                          └──(failure: the delay doubles, up to a cap)──► open

Pure: time comes in as seconds of a monotonic clock. A call shows the `Ticket` it was started with, so that a call
from before the last change of state cannot move the new state.
"""

from dataclasses import dataclass
from typing import Literal

State = Literal["closed", "open", "half_open"]

DOCUMENTS_FAILED_MAX = 3
"""So many different documents in a row: one poisonous body never opens a breaker."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """The state that a call was started in."""

    generation: int
    probe: bool


class Breaker:
    """The state of one evaluator, as this process knows it."""

    def __init__(self, *, probe_first_s: float = 5.0, probe_most_s: float = 300.0) -> None:
        self.state: State = "closed"
        self.openings = 0
        self._probe_first_s = probe_first_s
        self._probe_most_s = probe_most_s
        self._generation = 0
        self._failed: set[str] = set()
        self._delay_s = probe_first_s
        self._probe_at_s = 0.0

    def allowed(self, now_s: float) -> int | None:
        """Return how many calls may start: None for no limit, 1 when a probe is due, else 0."""
        if self.state == "closed":
            return None
        return 1 if self.state == "open" and now_s >= self._probe_at_s else 0

    def probe_due_s(self) -> float | None:
        """Return when the next probe may start, None unless the breaker is open."""
        return self._probe_at_s if self.state == "open" else None

    def begin(self) -> Ticket:
        """Start a call that `allowed` permitted; in an open breaker it is the probe."""
        if self.state == "closed":
            return Ticket(self._generation, probe=False)
        self._change("half_open")
        return Ticket(self._generation, probe=True)

    def succeeded(self, ticket: Ticket) -> None:
        """Note that the evaluator answered, be it with a refusal or something invalid: it is there."""
        if ticket.generation != self._generation:
            return
        self._failed.clear()
        if self.state == "half_open":
            self._delay_s = self._probe_first_s
            self._change("closed")

    def failed(self, ticket: Ticket, document: str, now_s: float, *, misconfigured: bool = False) -> bool:
        """Note a passing failure of `document`; say whether it is the document's to answer for.

        False means that the evaluator is the trouble (the breaker is or was open): the document's tries are not
        counted.
        """
        if ticket.generation != self._generation:
            return False
        if ticket.probe:
            self._delay_s = min(self._delay_s * 2, self._probe_most_s)
            self._open(now_s)
            return False
        self._failed.add(document)
        if misconfigured or len(self._failed) >= DOCUMENTS_FAILED_MAX:
            self._open(now_s)
            return False
        return True

    def abandoned(self, ticket: Ticket, now_s: float) -> None:
        """Note that a call ended without saying anything about the evaluator; a probe may be sent again at once."""
        if ticket.probe and ticket.generation == self._generation:
            self._change("open")
            self._probe_at_s = now_s

    def _open(self, now_s: float) -> None:
        self._failed.clear()
        self._probe_at_s = now_s + self._delay_s
        self.openings += self.state == "closed"
        self._change("open")

    def _change(self, state: State) -> None:
        self.state = state
        self._generation += 1
