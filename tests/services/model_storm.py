"""A provider under load, as a plan of the loopback model server."""

from collections import Counter

import model_replies
from model_replies import GOOD, Reply
from model_server import Request


class Storm:
    """A provider that takes so many requests in a window, refuses more with a Retry-After, and then is away."""

    def __init__(self, *, in_window: int, window_s: float, away_after: int, away_s: float) -> None:
        self._in_window, self._window_s = in_window, window_s
        self._away_after, self._away_s = away_after, away_s
        self._windows: Counter[int] = Counter()
        self._away_until: float | None = None
        self.answered = self.away = 0
        self.refused: list[Request] = []
        self.held = False
        """The outage does not end while this is set."""

    def __call__(self, request: Request) -> Reply:
        """Answer, refuse, or be away."""
        if self.answered == self._away_after and self._away_until is None:
            self._away_until = request.at_s + self._away_s
        if self._away_until is not None and (self.held or request.at_s < self._away_until):
            self.away += 1
            return model_replies.error(503)
        window = int(request.at_s / self._window_s)
        self._windows[window] += 1
        if self._windows[window] > self._in_window:
            self.refused.append(request)
            return model_replies.too_many(retry_after_ms=str(int(self._window_s * 1000)))
        self.answered += 1
        return GOOD
