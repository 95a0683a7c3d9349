"""Applying events from Kafka, on SQLite and on PostgreSQL: events a second, each durably applied.

What is measured is the product's consumer in a process of its own: Faust, judging, positions, outcomes, documents,
bodies, one synced commit for a batch. Baseline: a bare Faust loop that does nothing, on the same topic.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import consumers
import kafka_topics
import sample
import services
from figures import Figure, interleaved

from facetline.storage import definitions
from facetline.storage.db import opening
from facetline.streams.kafka import topics
from facetline.streams.settings import KafkaSettings
from facetline.streams.wire import codec

EVENTS = 20_000
ROUNDS = 3
PARTITIONS = 8


async def measure() -> AsyncIterator[Figure]:
    """Measure both stores against one baseline."""
    with ExitStack() as opened:
        bootstrap = opened.enter_context(services.kafka())
        admin_url = opened.enter_context(services.postgres())
        prefix = f"b{uuid.uuid4().hex[:12]}"
        settings = await kafka_topics.make(bootstrap, prefix, partitions=PARTITIONS)
        await kafka_topics.fill(settings, [message(number) for number in range(EVENTS)])

        async def bare() -> float:
            topic = topics.topic_names(prefix).documents
            given = {"bootstrap": bootstrap, "topic": topic, "group": f"b{uuid.uuid4().hex}", "events": EVENTS}
            return await asyncio.to_thread(consumers.rate, "bare", **given)

        async def sqlite() -> float:
            with TemporaryDirectory() as folder:
                return await _applied(settings, f"sqlite:///{Path(folder) / 'store.db'}")

        async def postgres() -> float:
            with services.database(admin_url) as url:
                return await _applied(settings, url)

        found = await interleaved(ROUNDS, bare=bare, sqlite=sqlite, postgres=postgres)
    for store in ("sqlite", "postgres"):
        yield Figure(f"apply_kafka_{store}", found[store], "events/s", found["bare"])


def message(number: int) -> codec.Message:
    """A valid write of a document."""
    return codec.encode_write(
        sample.uri(number), body=sample.body(number), state=sample.state(number), source="bench", event_id=str(number)
    )


async def _applied(settings: KafkaSettings, store_url: str) -> float:
    store = await opening.open_store(store_url)
    await store.write(definitions.activate, [sample.definition()])
    await store.close()
    kafka: dict[str, Any] = {**settings.model_dump(), "group_id": f"b{uuid.uuid4().hex}"}
    given = {"kafka": kafka, "store_url": store_url, "events": EVENTS}
    return await asyncio.to_thread(consumers.rate, "apply", **given)
