"""How far the broker's clock is ahead of ours, as far as its records show.

A record that the broker stamped in our future proves a difference. One that lies in our past proves nothing: it may
have waited. So only one half is ever known here, and only while records come.
"""

import time
from collections.abc import Callable

WINDOW_S = 600.0
"""How long a proof counts: clocks are set right."""


class BrokerClock:
    """Remembers the largest difference of the last minutes."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._ahead_s: float | None = None
        self._at_s = 0.0

    @property
    def ahead_s(self) -> float | None:
        """Seconds that the broker's clock is ahead of ours at least; None when nothing is known."""
        if self._clock() - self._at_s > WINDOW_S:
            return None
        return self._ahead_s

    def note(self, stamped_s: float) -> None:
        """Look at the time that the broker gave to a record which has just come."""
        now_s = self._clock()
        ahead_s = stamped_s - now_s
        if self._ahead_s is None or ahead_s >= self._ahead_s or now_s - self._at_s > WINDOW_S:
            self._ahead_s, self._at_s = ahead_s, now_s
