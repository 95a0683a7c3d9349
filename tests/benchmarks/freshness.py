"""Freshness: milliseconds from a write's commit until a search finds the document by its answer; the 95th of 100.

`local`: commit is the return of the write in one process that also searches. `kafka`: the broker's acknowledgement;
worker, store (PostgreSQL) and the searching process are three. Both with a thousand documents there already, a model
that answers at once, and a search every few milliseconds: what is measured is the pipeline's own waiting.
Baselines: `local`, the same by hand in one process without waiting for anything (commit, ask, commit, insert into
DuckDB, select); `kafka`, the way through Kafka alone, from acknowledgement to a bare consumer.
"""

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import kafka_topics
import sample
import services
import workers
from aiokafka import TopicPartition
from figures import Figure, note, p95

from facetline.streams import wiring
from facetline.streams.kafka import clients, topics
from facetline.streams.pipeline import NewDocument, Pipeline
from facetline.streams.settings import Settings

THERE = 1_000
SAMPLES = 100
LOOK_EVERY_S = 0.003
LIMIT_S = 60.0


async def measure() -> AsyncIterator[Figure]:
    """Measure both runtimes."""
    with TemporaryDirectory() as folder:
        by_hand = p95(await _by_hand(Path(folder)))
        settings = sample.configure(Path(folder))
        async with wiring.open_pipeline(settings, classify=True) as opened:
            yield Figure("freshness_local", p95(await _freshness(opened)), "ms", by_hand)
    with ExitStack() as with_, TemporaryDirectory() as folder:
        bootstrap = with_.enter_context(services.kafka())
        url = with_.enter_context(services.database(with_.enter_context(services.postgres())))
        async with workers.running(Path(folder), bootstrap, url) as (settings, _pid):
            async with wiring.open_pipeline(settings) as opened:
                found = p95(await _freshness(opened))
            yield Figure("freshness_kafka", found, "ms", p95(await _through_kafka(settings)))


async def _freshness(opened: Pipeline) -> list[float]:
    active = await opened.definitions()
    rows = [NewDocument(sample.uri(n), sample.body(n), sample.state(n), str(n)) for n in range(THERE)]
    for start in range(0, THERE, sample.BATCH):
        await opened.write_many(active, rows[start : start + sample.BATCH], source="bench")

    async def settled() -> bool:
        reply = await opened.search("tickets", limit=1)
        return bool(reply["total"] == THERE and reply["as_of"]["pending"] == 0)

    await workers.until(settled, LIMIT_S)
    return [await _one(opened, THERE + number) for number in range(SAMPLES)]


async def _one(opened: Pipeline, number: int) -> float:
    own = f"state_title = '{sample.state(number)['title']}'"

    async def found() -> bool:
        reply = await opened.search("tickets", {"topic": sample.TOPICS}, filter=own, limit=1)
        return bool(reply["total"] == 1)

    wait = "none" if opened.settings.runtime == "kafka" else "applied"
    await opened.write(sample.uri(number), body=sample.body(number), state=sample.state(number), wait=wait)
    committed_s = time.perf_counter()
    await workers.until(found, LIMIT_S, LOOK_EVERY_S)
    took_ms = (time.perf_counter() - committed_s) * 1000
    if (number - THERE) % (SAMPLES // 4) == 0:
        note(f"  {number - THERE}: {took_ms:.0f} ms")
    return took_ms


async def _by_hand(folder: Path) -> list[float]:
    store, view = sqlite3.connect(folder / "by-hand.db"), duckdb.connect()
    store.executescript(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
        "CREATE TABLE documents (uri TEXT PRIMARY KEY, body TEXT, facets TEXT)"
    )
    view.execute("CREATE TABLE shown (uri VARCHAR PRIMARY KEY, topic VARCHAR)")
    evaluator, took = sample.Sample(), []
    for number in range(SAMPLES):
        uri, body = sample.uri(number), sample.body(number)
        with store:
            store.execute("INSERT INTO documents (uri, body) VALUES (?, ?)", (uri, body))
        started_s = time.perf_counter()
        evaluated = await evaluator.evaluate(body, sample.QUESTIONS, key="", deadline_s=60)
        facets = {name: answer.model_dump() for name, answer in evaluated.answers.items()}
        with store:
            store.execute("UPDATE documents SET facets = ? WHERE uri = ?", (json.dumps(facets), uri))
        view.execute("INSERT INTO shown VALUES (?, ?)", (uri, facets["topic"]["choice"]))
        assert view.execute("SELECT count(*) FROM shown WHERE uri = ?", (uri,)).fetchall() == [(1,)]
        took.append((time.perf_counter() - started_s) * 1000)
    store.close()
    view.close()
    return took


async def _through_kafka(settings: Settings) -> list[float]:
    topic = topics.topic_names(settings.kafka.topic_prefix).facets  # of keys like these nobody else knows
    consumer = clients.make_consumer(settings.kafka)
    consumer.assign([TopicPartition(topic, partition) for partition in range(workers.PARTITIONS)])
    await consumer.start()
    took = []
    try:
        await consumer.seek_to_end()
        async with kafka_topics.producing(settings.kafka) as producer:
            for number in range(SAMPLES):
                receiving = asyncio.create_task(_received(consumer, str(number).encode()))
                await producer.send_and_wait(topic, sample.body(number).encode(), str(number).encode())
                started_s = time.perf_counter()
                await asyncio.wait_for(receiving, LIMIT_S)
                took.append((time.perf_counter() - started_s) * 1000)
    finally:
        await consumer.stop()
    return took


async def _received(consumer: object, key: bytes) -> None:
    async for record in consumer:  # type: ignore[attr-defined]
        if record.key == key:
            return
