"""A histogram in the sense of Prometheus, without its library: counting must cost nothing where it is not read."""

import bisect
from collections.abc import Sequence

CALL_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""From an answer that was recorded to the longest call that anybody waits for."""
BATCH_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BATCH_EVENTS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""Up to `write_worker.EVENTS_MAX`."""


class Histogram:
    """Counts observations by upper bound (inclusive), and adds them up."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.sum = 0.0
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)

    @property
    def count(self) -> int:
        """How many observations there were."""
        return sum(self._counts)

    def observe(self, value: float) -> None:
        """Count one observation."""
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """Return the cumulative counts by bound, as Prometheus writes them."""
        found: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            found.append(("+Inf" if bound == float("inf") else str(float(bound)), float(total)))
        return found
