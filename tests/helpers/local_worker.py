"""A process that runs the side chain of a data folder until it is told to stop: `python local_worker.py CONFIG FOLDER`.

What the Kafka runtime has `facetline worker` for; here any program with an open pipeline does it.
"""

import asyncio
import signal
import sys

from streams.local import open_local


async def main(config: str, folder: str) -> None:
    """Work until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with open_local(config=config, folder=folder):
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
