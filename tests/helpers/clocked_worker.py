"""`facetline worker` with a store's clock that a test shifts: `python clocked_worker.py CLOCK`."""

import asyncio
import sys
from pathlib import Path

from clocks import FileClock

from facetline.streams import logs, worker
from facetline.streams.settings import load_settings


def main(clock: str) -> None:
    """Work until a signal comes."""
    settings = load_settings()
    logs.configure(settings.log_level, settings.log_format)
    asyncio.run(worker.run_worker(settings, clock_shift=FileClock(Path(clock))))


if __name__ == "__main__":
    main(*sys.argv[1:])
