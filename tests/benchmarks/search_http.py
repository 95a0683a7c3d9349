"""What HTTP adds to a search, on 1,000,000 documents: milliseconds that a request to `facetline serve` takes.

Value: the whole request, from a client of this machine that keeps its connection. Baseline: what the reply itself says
the search took (`took_ms`). Both are medians of the same requests, each of another search, so that none is remembered.
`search_http_1m_again` is a search that was asked before. `search_http_1m_start` is the seconds from the command to its
first answer, its view being built from the store, against those in which this process builds the same view.
"""

import asyncio
import contextlib
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import answered
import commands
import feed_to_view
import httpx
import runtimes
import sample
from figures import Figure

from facetline.storage.db import opening

DOCUMENTS = 1_000_000
REQUESTS = 60
START_S = 600.0
HERE = Path(__file__).resolve().parent
SEARCH = "/v1/collections/tickets/search"
PARAMETERS = {"f.topic": ["billing", "outage"], "counts": "*"}


async def measure() -> AsyncIterator[Figure]:
    """Measure it."""
    with TemporaryDirectory() as folder:
        settings = sample.configure(Path(folder))
        settings.data_folder.mkdir()
        store = await opening.open_store(settings.store, deadline_s=START_S)
        await store.write(answered.fill, DOCUMENTS, numbered=True)
        built_s = await feed_to_view.follow(store)
        await store.close()
        started_s = time.monotonic()
        with _serving(Path(folder)) as address, httpx.Client(base_url=address, trust_env=False) as client:
            await asyncio.to_thread(_ask_until_answered, client)
            yield Figure("search_http_1m_start", time.monotonic() - started_s, "s", built_s)
            whole, inside = await asyncio.to_thread(_measure, client, [0.5 + n / 1000 for n in range(REQUESTS)])
            yield Figure("search_http_1m", whole, "ms", inside)
            again, inside = await asyncio.to_thread(_measure, client, [0.5] * REQUESTS)
            yield Figure("search_http_1m_again", again, "ms", max(inside, 0.1))


def _measure(client: httpx.Client, confidences: list[float]) -> tuple[float, float]:
    """Return the median milliseconds of a request, and of the search inside it."""
    whole, inside = [], []
    for confidence in confidences:
        started_s = time.perf_counter()
        reply = client.get(SEARCH, params={**PARAMETERS, "min_confidence": confidence}, timeout=60).raise_for_status()
        whole.append((time.perf_counter() - started_s) * 1000)
        inside.append(reply.json()["took_ms"])
    return statistics.median(whole), statistics.median(inside)


def _ask_until_answered(client: httpx.Client) -> None:
    ends = time.monotonic() + START_S
    while time.monotonic() < ends:
        with contextlib.suppress(httpx.TransportError):
            reply = client.get(SEARCH, params={"limit": 1}, timeout=60)
            if reply.is_success and reply.json()["total"] == DOCUMENTS:
                return
        time.sleep(0.2)
    raise TimeoutError("the server does not answer")


@contextlib.contextmanager
def _serving(folder: Path) -> Iterator[str]:
    """A `facetline serve` over the folder; yields its address."""
    path = os.pathsep.join((str(commands.ROOT), str(HERE)))
    process = commands.Place(folder, {}).start(
        *("serve", "--port", "0", "--folder", folder / "data"),
        settings={"PYTHONPATH": path, "FACETLINE_LOG_LEVEL": "warning"},
        stderr=sys.stderr,
    )
    try:
        yield process.stdout.readline().removeprefix("serving on ").strip()
    finally:
        runtimes.stop(process)
        process.stdout.close()
