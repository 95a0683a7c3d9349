"""A process that searches all the while and keeps every reply: `python reader_child.py CLOCK REPLIES`.

It reads the scope to look at from the file `watched`, and asks for all of it and for each answer in turn; while that
is empty it rests. Lines of
REPLIES are `[mark asked for or null, [[uri, version, revision, indexed_as, status, title, choice], …]]`; the same reply
again in a row is kept once. A store that is away is a line `null`.
"""

import asyncio
import itertools
import json
import signal
import sys
from pathlib import Path
from typing import Any, TextIO

from clocks import FileClock

from facetline.facets import errors
from facetline.streams import wiring
from facetline.streams.pipeline import Pipeline
from facetline.streams.settings import load_settings

EVERY_S = 0.2
STATES = ("uri", "version", "revision", "indexed_as", "status")


async def main(clock: str, file: TextIO) -> None:
    """Search until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    last: dict[str | None, str] = {}
    async with wiring.open_pipeline(load_settings(), writes=False, clock_shift=FileClock(Path(clock))) as pipeline:
        topic = (await pipeline.definition("tickets")).questions["topic"]
        for mark in itertools.cycle([None, *getattr(topic, "options", ())]):
            if stop.is_set():
                return
            if not (scope := _watched()):
                await asyncio.sleep(EVERY_S)
                continue
            said = json.dumps(await _ask(pipeline, scope, mark))
            if last.get(mark) != said:
                last[mark] = said
                file.write(said + "\n")
                file.flush()
            await asyncio.sleep(EVERY_S if mark is None else EVERY_S / 5)


async def _ask(pipeline: Pipeline, scope: str, mark: str | None) -> Any:
    try:
        asked = {"topic": mark} if mark else None
        reply = await pipeline.search("tickets", asked, scope=scope, limit=200)
    except errors.TransientError:
        return None
    return [mark, [_hit(hit) for hit in reply["hits"]]]


def _watched() -> str:
    return Path("watched").read_text()


def _hit(hit: dict[str, Any]) -> list[Any]:
    topic = (hit["facets"] or {}).get("topic") or {}
    return [*(hit[name] for name in STATES), (hit["state"] or {}).get("title"), topic.get("choice")]


if __name__ == "__main__":
    with Path(sys.argv[2]).open("w") as replies:
        asyncio.run(main(sys.argv[1], replies))
