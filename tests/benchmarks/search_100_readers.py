"""A hundred readers at once on 1,000,000 documents, and a writer at full speed beside them: searches a second.

Four threads do the searches, as in a serving process; the readers ask again as soon as they are answered. Baseline: the
same readers run the statements written by hand. The writer applies 500 changed documents at a time, without a pause.
The alone figure has no writer; remembered is a hundred readers who all ask the same while nothing changes.
"""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import search_query
import searchable
from figures import Figure, note, p95

from facetline.facets.definitions import Definitions
from facetline.facets.view.view import View

DOCUMENTS = 1_000_000
READERS = 100
THREADS = 4
RUN_S = 12.0
BATCH = 500


async def measure() -> AsyncIterator[Figure]:
    """Measure it with and without the writer."""
    view = searchable.view(DOCUMENTS)
    alone, by_hand = await _searches(view), await _by_hand(view)
    yield Figure("search_100_readers_alone", alone, "searches/s", by_hand)
    with _writing(view) as written:
        started, before = time.monotonic(), written[0]
        value, baseline = await _searches(view), await _by_hand(view)
        note(f"  the writer applied {(written[0] - before) / (time.monotonic() - started):.0f} documents/s")
    yield Figure("search_100_readers", value, "searches/s", baseline)
    with contextlib.closing(View(store_id="bench")) as remembering:
        remembering.define(Definitions([searchable.definition()]))
        for page in searchable.documents(DOCUMENTS // 10):
            remembering.apply(page)
        yield Figure("search_100_readers_remembered", await _searches(remembering), "searches/s", alone)


async def _searches(view: View) -> float:
    selections = [searchable.selection(kind) for kind in searchable.KINDS]
    return await _read(lambda n: view.search(selections[n % len(selections)]))


async def _by_hand(view: View) -> float:
    statements = [searchable.by_hand(kind) for kind in searchable.KINDS]

    def run(number: int) -> object:
        with view._connection.cursor() as cursor:
            return search_query.run(cursor, statements[number % len(statements)])

    return await _read(run)


async def _read(work: Callable[[int], object]) -> float:
    """Return how many of the readers' requests are answered in a second."""
    numbers = itertools.count()
    waited_ms: list[float] = []
    ends = time.monotonic() + RUN_S
    loop = asyncio.get_running_loop()

    async def reader() -> None:
        while time.monotonic() < ends:
            asked = time.perf_counter()
            await loop.run_in_executor(pool, work, next(numbers))
            waited_ms.append((time.perf_counter() - asked) * 1000)

    with ThreadPoolExecutor(THREADS) as pool:
        started = time.monotonic()
        await asyncio.gather(*(reader() for _ in range(READERS)))
        rate = len(waited_ms) / (time.monotonic() - started)
    note(f"  {rate:.1f}/s, a reader waits {p95(waited_ms):.0f} ms (p95)")
    return rate


@contextlib.contextmanager
def _writing(view: View) -> Iterator[list[int]]:
    """Have a thread change documents for as long as this lasts; yields how many it has changed."""
    stop, written = threading.Event(), [0]

    def write() -> None:
        for version in itertools.count(3):
            for page in searchable.documents(DOCUMENTS, version=version, seed=version):
                for start in range(0, len(page), BATCH):
                    if stop.is_set():
                        return
                    view.apply(page[start : start + BATCH])
                    written[0] += BATCH

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield written
    finally:
        stop.set()
        thread.join()
