"""A process that runs the side chain of a data folder until it is told to stop: `python local_worker.py CLOCK`.

What the Kafka runtime has `facetline worker` for; here any program with an open pipeline does it. CLOCK is the file
that shifts the store's clock.
"""

import asyncio
import signal
import sys
from pathlib import Path

from clocks import FileClock

from facetline.streams import logs, wiring
from facetline.streams.settings import load_settings


async def main(clock: str) -> None:
    """Work until SIGTERM."""
    settings = load_settings(config="facetline.toml", data_folder=".facetline")
    logs.configure(settings.log_level, settings.log_format)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with wiring.open_pipeline(settings, classify=True, clock_shift=FileClock(Path(clock))):
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
