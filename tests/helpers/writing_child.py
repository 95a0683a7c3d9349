"""Writes documents one after another until killed; prints each one's number once its write is acknowledged."""

import asyncio
import sys
from pathlib import Path

from facetline.streams.local import open_local


async def main(folder: Path, first: int) -> None:
    """Write `tickets/nI` for I from `first` on."""
    async with open_local(config=folder / "facetline.toml", folder=folder / ".facetline") as pipeline:
        number = first
        while True:
            await pipeline.write(f"tickets/n{number}", body=f"billing {number}", wait="applied")
            print(number, flush=True)  # noqa: T201 (what the test reads)
            number += 1


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
