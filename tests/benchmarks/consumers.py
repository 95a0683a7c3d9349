"""Processes that consume the documents topic, from its start, until they have had a number of events.

`python consumers.py bare|apply ARGUMENT`. `bare` is a plain Faust app whose agent does nothing; `apply` is the
product's consumer over a store, with all that it does to an event. Each prints how many events a second it took, from
the end of the first 500 to the last one: starting up and joining the group are not counted.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SKIPPED = 500
LIMIT_S = 300


def rate(kind: str, **argument: Any) -> float:
    """Run a consumer in a process of its own; return its events a second."""
    command = [sys.executable, __file__, kind, json.dumps(argument)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT_S)
    return float(done.stdout.split()[-1])


class Count:
    """Counts events until there were enough, and takes the time."""

    def __init__(self, events: int) -> None:
        self.enough = asyncio.Event()
        self._events = events
        self._seen = 0
        self._first = (0, 0.0)

    def add(self, number: int) -> None:
        """So many more."""
        self._seen += number
        if not self._first[0] and self._seen >= SKIPPED:
            self._first = (self._seen, time.perf_counter())
        if self._seen >= self._events and not self.enough.is_set():
            rate = (self._seen - self._first[0]) / (time.perf_counter() - self._first[1])
            print(rate, flush=True)  # noqa: T201 (what the parent reads)
            self.enough.set()


async def bare(bootstrap: str, topic: str, group: str, events: int) -> None:
    """Faust as it comes, with a loop that does nothing."""
    import faust

    app = faust.App(
        group,
        broker=f"kafka://{bootstrap}",
        autodiscover=False,
        datadir="/nonexistent",
        topic_disable_leader=True,
        web_enabled=False,
    )
    app._create_directories = lambda: None
    app.conf.web_enabled = False
    count = Count(events)
    documents = app.topic(topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")

    async def nothing(stream: Any) -> None:
        async for _value in stream:
            count.add(1)

    app.agent(documents)(nothing)
    await app.start()
    await count.enough.wait()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(app.stop(), 5)


async def apply(kafka: dict[str, Any], store_url: str, events: int) -> None:
    """The product's consumer."""
    from facetline.storage.db import opening
    from facetline.streams.kafka import log_reader, topics
    from facetline.streams.kafka.consumer import FaustWorker
    from facetline.streams.kafka.write_worker import WriteWorker
    from facetline.streams.settings import KafkaSettings

    settings = KafkaSettings(**kafka)
    topic = topics.topic_names(settings.topic_prefix).documents
    store, log, count = await opening.open_store(store_url), log_reader.KafkaLog(settings, topic), Count(events)

    def applied(outcomes: Sequence[Any]) -> None:
        assert all(each.outcome == "applied" for each in outcomes)
        count.add(len(outcomes))

    worker = WriteWorker(store, log, topic, partitions=settings.partitions, on_applied=applied)
    await FaustWorker(settings, topic, worker).run(count.enough)
    await log.stop()
    await store.close()


if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parents[1])]
    from run import configure_logs

    configure_logs()
    asyncio.run({"bare": bare, "apply": apply}[sys.argv[1]](**json.loads(sys.argv[2])))
