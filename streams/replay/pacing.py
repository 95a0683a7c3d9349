"""When a recorded event is due again: the gaps of the recording, made shorter or longer, and none without end."""

GAP_MAX_S = 60.0


class Pace:
    """Turns times of a recording into times of its replay.

    Gaps between events are divided by `speed`, and none is longer than `gap_most_s` seconds. An event that was recorded
    before its predecessor (another partition's, or a clock that was set back) is due at once, as is one without a time.
    """

    def __init__(self, speed: float, *, gap_most_s: float = GAP_MAX_S) -> None:
        self._speed = speed
        self._gap_most_s = gap_most_s
        self._latest_ms: int | None = None
        self._due_s = 0.0

    def due_s(self, timestamp_ms: int | None) -> float:
        """Return when the next event is due, in seconds after the first one."""
        if timestamp_ms is not None:
            if self._latest_ms is not None:
                gap_s = max(0, timestamp_ms - self._latest_ms) / 1000 / self._speed
                self._due_s += min(gap_s, self._gap_most_s)
            self._latest_ms = max(timestamp_ms, self._latest_ms or timestamp_ms)
        return self._due_s
