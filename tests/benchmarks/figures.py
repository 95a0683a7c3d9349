"""What a benchmark says: one JSON object a line on standard output, and how it is getting on on standard error."""

import gc
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure with the baseline that was measured, or stands, beside it in the same run."""

    bench: str
    value: float
    unit: str
    baseline: float

    def line(self) -> str:
        """The figure as one line of JSON."""
        said = {**asdict(self), "ratio": self.value / self.baseline}
        return json.dumps({name: rounded(each) if isinstance(each, float) else each for name, each in said.items()})


def rounded(value: float) -> float:
    """Three digits: more would be noise."""
    return float(f"{value:.3g}") if abs(value) < 1000 else float(round(value))


def note(text: str) -> None:
    """Say how it is getting on."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


async def interleaved(rounds: int, **works: Callable[[], Awaitable[float]]) -> dict[str, float]:
    """Measure each of `works` in turn, `rounds` times over; return the median of each.

    Turn about, because a machine's speed drifts: what is compared is measured side by side.
    """
    measured: dict[str, list[float]] = {name: [] for name in works}
    for number in range(1, rounds + 1):
        for name, work in works.items():
            gc.collect()
            started_s, busy_s = time.perf_counter(), time.process_time()
            measured[name].append(await work())
            took_s, busy_s = time.perf_counter() - started_s, time.process_time() - busy_s
            note(f"  {number}/{rounds} {name}: {rounded(measured[name][-1]):g} ({took_s:.1f} s, CPU {busy_s:.1f} s)")
    return {name: statistics.median(values) for name, values in measured.items()}


def p95(values: list[float]) -> float:
    """The value that 95 of 100 do not exceed."""
    return statistics.quantiles(values, n=20, method="inclusive")[-1]
