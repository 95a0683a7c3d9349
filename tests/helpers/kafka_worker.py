"""A process that does nothing but write what Kafka has into a store; to be killed.

Run as a script with one JSON argument. Says `assigned` on its output at every assignment that is not empty, and ends
in order at SIGTERM.
"""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from facetline.storage.db import opening
from facetline.streams import failpoints
from facetline.streams.kafka import log_reader, topics
from facetline.streams.kafka.consumer import FaustWorker
from facetline.streams.kafka.write_worker import WriteWorker
from facetline.streams.settings import KafkaSettings


@contextmanager
def running(
    settings: KafkaSettings, store_url: str, *, failpoint: str = "", cython: bool = True, **given: Any
) -> Iterator[subprocess.Popen[str]]:
    """A worker process; whatever is left of it is killed in the end."""
    environment = {key: value for key, value in os.environ.items() if key != failpoints.VARIABLE}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    if failpoint:
        environment[failpoints.VARIABLE] = failpoint
    if not cython:
        environment["NO_CYTHON"] = "1"
    argument = json.dumps({"kafka": settings.model_dump(), "store_url": store_url, **given})
    process = subprocess.Popen([sys.executable, __file__, argument], env=environment, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def wait_assigned(process: "subprocess.Popen[str]") -> None:
    """Block until the process has partitions; the test's own limit bounds it."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("assigned"):
            return
    raise AssertionError(f"the worker ended with {process.wait()} before it was assigned anything")


async def _main(given: dict[str, Any]) -> None:
    # Nobody reads the output after `assigned`: a log written there would fill the pipe and stop the process.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    settings = KafkaSettings(**given.pop("kafka"))
    store = await opening.open_store(given.pop("store_url"))
    topic = topics.topic_names(settings.topic_prefix).documents
    log = log_reader.KafkaLog(settings, topic)
    worker = FaustWorker(settings, topic, WriteWorker(store, log, topic), **given)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    said = asyncio.create_task(_say(worker))
    await worker.run(stop)
    said.cancel()
    await log.stop()
    await store.close()


async def _say(worker: FaustWorker) -> None:
    said: frozenset[int] | None = None
    while True:
        if worker.partitions and worker.partitions != said:
            print("assigned", sorted(worker.partitions), flush=True)  # noqa: T201 (what the test reads)
        said = worker.partitions
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(_main(json.loads(sys.argv[1])))
