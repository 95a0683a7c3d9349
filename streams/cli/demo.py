"""`demo`: the whole story in a minute, on tickets that come with the package."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from facetline.streams.cli import options, output, running

if TYPE_CHECKING:
    from facetline.streams.pipeline import Pipeline
    from facetline.streams.settings import Settings

COLLECTION = "tickets"
SOURCE = "facetline/demo"
SECOND_QUESTION = "[collections.tickets.questions.team]"
"""The sample file without what begins here is the demo's first set of questions."""
CONFIDENT = 0.5
SHOWN = 7
WORKER_STOP_S = 15.0
REWRITTEN = "tickets/t1"
REWRITE = "Forget the payments, that is settled. But the parcel with my order never arrived. Where is it?"


def demo(
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Through the Kafka of FACETLINE_KAFKA__BOOTSTRAP_SERVERS.")
    ] = False,
) -> None:
    """Tell the story: write, answers, search, rewrite, a new question, reindex. Leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="facetline-demo-") as folder:
        running.run(lambda: _story(Path(folder), kafka=kafka))


async def _story(folder: Path, *, kafka: bool) -> int | None:
    started = time.monotonic()
    settings = _settings(folder, kafka=kafka)
    if kafka:
        await _make_topics(settings)
    (folder / "facetline.toml").write_text(_sample("facetline.toml").split(SECOND_QUESTION)[0])
    async with _open(settings, kafka=kafka) as pipeline:
        await _write_all(pipeline)
        await _measure(pipeline, "topic")
        await _search(pipeline)
        await _rewrite(pipeline)
    _chapter("The questions change: a second one, 'team', joins. Nothing is asked about again by itself")
    (folder / "facetline.toml").write_text(_sample("facetline.toml"))
    async with _open(settings, kafka=kafka) as pipeline:
        await _reindex(pipeline)
        await _measure(pipeline, "team")
        await _hits(pipeline, {"team": ["engineering"], "topic": ["login"]}, None)
    output.text()
    output.text(
        f"Done in {time.monotonic() - started:.0f} s. Next: facetline init, then facetline write …; see README.md"
    )
    return None


def _settings(folder: Path, *, kafka: bool) -> "Settings":
    from facetline.facets import errors

    settings = options.settings(folder / "facetline.toml", folder / "data")
    if kafka and settings.runtime != "kafka":
        raise errors.InvalidSettings(
            "demo --kafka needs a broker: set FACETLINE_KAFKA__BOOTSTRAP_SERVERS, or run 'make demo-kafka'"
        )
    own = f"demo-{uuid.uuid4().hex[:8]}"  # topics and group of its own: nothing of yours is touched
    change = {"topic_prefix": own, "group_id": own, "partitions": 4} if kafka else {"bootstrap_servers": None}
    return settings.model_copy(update={"store_url": None, "kafka": settings.kafka.model_copy(update=change)})


def _sample(name: str) -> str:
    return resources.files("facetline.streams").joinpath("samples", name).read_text(encoding="utf-8")


def _tickets() -> list[dict[str, Any]]:
    return [json.loads(line) for line in _sample("tickets.ndjson").splitlines()]


@contextlib.asynccontextmanager
async def _open(settings: "Settings", *, kafka: bool) -> "AsyncIterator[Pipeline]":
    """Open the pipeline with the file as it now is; with Kafka, beside a worker process of its own."""
    from facetline.storage import definitions
    from facetline.streams import wiring

    with _worker(settings) if kafka else contextlib.nullcontext():
        async with wiring.open_pipeline(settings, classify=True) as pipeline:
            if pipeline.project is not None:
                await pipeline.store.write(definitions.activate, pipeline.project.definitions)
            yield pipeline


@contextlib.contextmanager
def _worker(settings: "Settings") -> Iterator[None]:
    kafka = settings.kafka
    environment = {
        **os.environ,
        "FACETLINE_KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
        "FACETLINE_KAFKA__GROUP_ID": kafka.group_id,
        "FACETLINE_STORE_URL": settings.store,
    }
    command = [sys.executable, "-c", "from facetline.streams.cli.main import main; main()"]
    arguments = ["worker", "--config", str(settings.config), "--folder", str(settings.data_folder)]
    process = subprocess.Popen([*command, *arguments], env=environment)  # noqa: S603 (our own command)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(WORKER_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _make_topics(settings: "Settings") -> None:
    from facetline.streams.kafka import topics

    reports = await topics.create_topics(settings.kafka)
    output.text(f"Topics on {settings.kafka.bootstrap_servers}: {', '.join(report.name for report in reports)}")


def _chapter(line: str) -> None:
    output.text()
    output.text(f"── {line}")


async def _write_all(pipeline: "Pipeline") -> None:
    from facetline.streams.cli.imports import wait_answered
    from facetline.streams.pipeline import NewDocument

    tickets = _tickets()
    _chapter(f"{len(tickets)} sample tickets are written; a small model that runs here answers one question about each")
    rows = [NewDocument(f"{COLLECTION}/{each['key']}", each["body"], each["state"], each["key"]) for each in tickets]
    started = time.monotonic()
    await pipeline.write_many(await pipeline.definitions(), rows, source=SOURCE)
    written_s = time.monotonic() - started
    await _until_applied(pipeline, len(rows))
    await wait_answered(pipeline, COLLECTION, SOURCE)
    output.text(f"written in {written_s:.2f} s, all answered after {time.monotonic() - started:.1f} s")


async def _until_applied(pipeline: "Pipeline", count: int) -> None:
    """Wait until the documents are there; at once in the local runtime."""
    from facetline.facets import errors
    from facetline.storage.log import documents
    from facetline.streams.pipeline import poll

    async def look() -> bool | None:
        counts = (await pipeline.store.read(documents.counts)).get(COLLECTION, {})
        return True if sum(counts.values()) >= count else None

    if await poll(look, time.monotonic() + 60) is None:
        raise errors.BrokerUnavailable("the worker did not apply the tickets within a minute")


async def _measure(pipeline: "Pipeline", question: str) -> None:
    """Say how often the model was right on the samples, except where the demo rewrote one."""
    labels = json.loads(_sample("labels.json"))
    reply = await pipeline.search(COLLECTION, limit=200)
    answers = {
        hit["key"]: hit["facets"][question]["choice"] for hit in reply["hits"] if hit["facets"] and hit["revision"] == 1
    }
    right = sum(answers[key] == labels[key][question] for key in answers)
    output.text(f"'{question}': embedded model, English, right on {right} of {len(answers)} samples")


async def _search(pipeline: "Pipeline") -> None:
    _chapter("Search: which tickets are about billing? No model runs now")
    await _hits(pipeline, {"topic": ["billing"]}, None)
    _chapter(
        f"And signing in? Then only answers with a confidence of at least {CONFIDENT}: what it was unsure of is gone"
    )
    await _hits(pipeline, {"topic": ["login"]}, None)
    await _hits(pipeline, {"topic": ["login"]}, CONFIDENT)


async def _hits(pipeline: "Pipeline", facets: dict[str, list[str]], min_confidence: float | None) -> None:
    command = " ".join(["$ facetline search tickets", *(f"{name}={value}" for name, (value,) in facets.items())])
    output.text(command + (f" --min-confidence {min_confidence}" if min_confidence is not None else ""))
    reply = await pipeline.search(COLLECTION, facets, min_confidence=min_confidence, limit=SHOWN)
    bodies = {each["key"]: each["body"] for each in _tickets()}
    output.table(
        (
            f"  {hit['uri']}",
            output.answers(hit["facets"]),
            _excerpt(bodies[hit["key"]]) if hit["revision"] == 1 else "…",
        )
        for hit in reply["hits"]
    )
    more = reply["total"] - len(reply["hits"])
    output.text(f"  {f'… and {more} more. ' if more > 0 else ''}{reply['total']} found in {reply['took_ms']:.1f} ms")


def _excerpt(body: str) -> str:
    return body if len(body) <= 60 else body[:59] + "…"  # noqa: PLR2004 (fits a line)


async def _rewrite(pipeline: "Pipeline") -> None:
    _chapter(f"{REWRITTEN} is rewritten: its old answers are gone before anything else happens, new ones follow")
    output.text(f"$ facetline write {REWRITTEN} --body '{_excerpt(REWRITE)}'")
    written = await pipeline.write(REWRITTEN, body=REWRITE, wait="applied")
    output.text(f"  version {written['version']}: {written['status']}, facets {json.dumps(written['facets'])}")
    answered = await pipeline.write(REWRITTEN, state={"title": "Parcel, not payments"}, wait="answered")
    output.text(f"  version {answered['version']}: {answered['status']}, {output.answers(answered['facets'])}")


async def _reindex(pipeline: "Pipeline") -> None:
    from facetline.streams.cli import jobs

    output.text("$ facetline reindex tickets --outdated")
    result = await jobs.run_job(pipeline, COLLECTION, "outdated")
    output.text(f"  {len(result['reindexed'])} asked again, {len(result['failed'])} failed")
