"""A `facetline worker` with Kafka, a store, and a model that answers at once, in a process of its own."""

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import commands
import sample

from facetline.streams.kafka import topics
from facetline.streams.settings import Settings

HERE = Path(__file__).resolve().parent
PARTITIONS = 8


@asynccontextmanager
async def running(folder: Path, bootstrap: str, store_url: str) -> AsyncIterator[tuple[Settings, int]]:
    """A worker with topics of its own; yields the settings that go with it, and its process id."""
    own = f"b{uuid.uuid4().hex[:12]}"
    kafka = {"bootstrap_servers": bootstrap, "topic_prefix": own, "group_id": own, "partitions": PARTITIONS}
    settings = sample.configure(folder, kafka=kafka, store_url=store_url)
    await topics.create_topics(settings.kafka)
    environment = {f"FACETLINE_KAFKA__{name.upper()}": str(value) for name, value in kafka.items()}
    place = commands.Place(folder, {**environment, "FACETLINE_STORE_URL": store_url, "FACETLINE_WORKER_HTTP": "off"})
    path = os.pathsep.join((str(commands.ROOT), str(HERE)))
    process = place.start("worker", settings={"PYTHONPATH": path}, stdout=sys.stderr, stderr=sys.stderr)
    try:
        yield settings, process.pid
    finally:
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, 30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def until(condition: Callable[[], Awaitable[bool]], limit_s: float, every_s: float = 0.02) -> None:
    """Wait for a coroutine function to say yes."""
    ends = time.monotonic() + limit_s
    while not await condition():
        if time.monotonic() > ends:
            raise TimeoutError(f"not within {limit_s:g} s")
        await asyncio.sleep(every_s)
