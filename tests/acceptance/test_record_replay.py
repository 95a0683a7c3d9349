"""From a topic into a file and from the file into both runtimes: real questions, recorded answers, identical facets.

Method: a sample of Banking77 is imported through Kafka by a worker that records its calls; the topic is recorded, and
replayed with those calls in a local pipeline and through another Kafka topic; then into the store it came from.
"""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import banking
import pytest
import runtimes
from runtimes import Site

from facetline.evaluators.recorded import recordings
from facetline.streams.testing.running_pipeline import RunningPipeline, of_its_own

SAMPLE = 200

pytestmark = [
    pytest.mark.skipif(not banking.QUESTIONS.exists(), reason="needs Banking77's questions in ../shared/data"),
    pytest.mark.kafka,
    pytest.mark.postgres,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]


@dataclass(frozen=True)
class Source:
    """Where the sample was imported and recorded."""

    site: Site
    events: Path
    calls: Path
    facets: dict[str, Any]


@pytest.fixture(scope="module")
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    """The sample in Kafka and PostgreSQL, answered by the embedded model; a worker runs on."""
    folder = tmp_path_factory.mktemp("source")
    sheet = banking.write_sheet(folder / "sample.csv", sample())
    calls = folder / "calls.ndjson"
    recording = {"FACETLINE_CALLS": "record", "FACETLINE_CALLS_FILE": str(calls)}
    with banking.made("kafka", folder, request.getfixturevalue) as site, site.worker(**recording):
        imported = site.place.run("import", sheet, *banking.IMPORT)
        assert imported.code == 0, imported.err
        recorded = site.place.run("record")
        assert recorded.code == 0, recorded.err
        (folder / "events.ndjson").write_text(recorded.out)
        yield Source(site, folder / "events.ndjson", calls, asyncio.run(facets(site)))


def sample() -> list[dict[str, str]]:
    """Rows of the questions, always the same."""
    return random.Random(78).sample(banking.rows(), SAMPLE)  # noqa: S311 (a repeatable draw, no secret)


async def facets(site: Site) -> dict[str, Any]:
    """What the store has, by key."""
    async with site.pipeline() as pipeline:
        return await banking.stored(pipeline)


@pytest.mark.parametrize("name", runtimes.RUNTIMES)
def test_a_replay_gives_the_facets_that_were_recorded(
    source: Source, name: str, tmp_path: Path, request: pytest.FixtureRequest
):
    """In either runtime each document has the very facets, with no call that was not recorded."""
    before = source.calls.read_bytes()
    settings = source.site.settings.model_copy(update={"calls": "replay", "calls_file": source.calls})
    bootstrap = request.getfixturevalue("kafka_bootstrap") if name == "kafka" else None
    with RunningPipeline(of_its_own(settings, tmp_path, bootstrap)) as running:
        tally = running.replay(source.events)
        found = running.run(banking.stored)
        notes = running.get("banking/1")["evaluation"]["notes"]

    assert (tally.sent, tally.refused) == (SAMPLE, [])
    assert found == source.facets
    assert len(found) == SAMPLE
    assert notes == {"recorded_call": True}
    assert source.calls.read_bytes() == before
    assert len(recordings.read(source.calls)) == len({row["text"] for row in sample()})


def test_a_replay_into_its_own_store_does_nothing(source: Source):
    """The topic replayed behind itself, by the command: every event is known, no document changes, nothing is asked."""
    before, called = asyncio.run(numbers(source.site)), source.calls.read_bytes()
    done = source.site.place.run("replay", source.events, "--json")

    assert done.code == 0, done.err
    assert (done.json["sent"], done.json["refused"]) == (SAMPLE, [])
    assert asyncio.run(numbers(source.site)) == before
    assert source.calls.read_bytes() == called


async def numbers(site: Site) -> list[tuple[Any, ...]]:
    """Every document's numbers."""
    async with site.pipeline() as pipeline:
        found: list[tuple[Any, ...]] = []
        cursor = None
        while True:
            page = await pipeline.search("banking", limit=200, cursor=cursor)
            found += [(hit["uri"], hit["version"], hit["revision"], hit["indexed_as"]) for hit in page["hits"]]
            cursor = page["next_cursor"]
            if cursor is None:
                return sorted(found)
