"""Several workers on one PostgreSQL: they share, take over, come and go, and change their questions one by one."""

import asyncio
import json
from typing import Any

import kafka_topics
import postgres_server
import pytest
from polling import eventually
from rig import LEASES_S, Rig
from runtimes import ANSWERED_S
from trials import Trial

from facetline.storage import definitions
from facetline.storage.jobs import jobs, model
from facetline.storage.jobs.model import JobRequest
from facetline.streams.kafka import topics
from facetline.streams.reindex import requests

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]
FOUR = ("one", "two", "three", "four")
STANDS_MS = 2_000
"""How long a transaction may stand still; twenty seconds where nobody says so."""
ENDED = "idle-in-transaction timeout"
"""What a worker logs whose transaction was ended: that it tries again, or that it waits, by how long it was frozen."""
KEYS = [f"t{number:02d}" for number in range(24)]


def callers(trial: Trial) -> set[int]:
    """Who has asked about this trial's documents."""
    return {call.pid for call in trial.site.script.calls() if call.body.endswith(f"#{trial.scope}")}


async def test_four_workers_share_the_work_and_one_is_frozen(rig: Rig):
    """All four ask and nobody asks twice; what a frozen one holds is taken over, and its late words change nothing."""
    rig.define(concurrency=4)
    for name in FOUR:
        rig.start(name)
    async with rig.trial() as trial:
        trial.on("gate")
        for number in range(60):  # written one after another until everybody has joined in
            await trial.put(f"t{number:02d}", "m01 hold=gate", wait="none")
            if len(callers(trial)) == len(FOUR):
                break
            await asyncio.sleep(0.2)
        await eventually(lambda: len(callers(trial)) == len(FOUR), deadline_s=ANSWERED_S, what="all four ask")
        once = [trial.calls(key) for key in KEYS]
        frozen = {call.key for call in trial.site.script.calls() if call.pid == rig.workers["one"].pid}
        late = await _late_words(trial)
        await trial.dally()
        rig.freeze("one")
        trial.off("gate")
        await trial.put("meanwhile", "m02", wait="none")
        rig.site.clock.shift(LEASES_S)
        after = await trial.settled(*sorted(frozen))
        await trial.dally()
        rig.thaw("one")
        await eventually(lambda: _more_late_words(trial, late), deadline_s=ANSWERED_S, what="its words were discarded")

        assert max(once) == 1
        assert {each["calls"]["crashes"] for each in after} == {1}
    rig.running("one", "two")


async def _late_words(trial: Trial) -> int:
    return sum([await trial.tally(f"{word}_discarded") for word in ("answers", "failures", "retries", "releases")])


async def _more_late_words(trial: Trial, before: int) -> bool:
    return await _late_words(trial) > before


async def test_members_that_come_and_go_during_a_call(rig: Rig):
    """Rebalances neither end a long call nor cause another one, and everything else goes on meanwhile."""
    rig.running("one", "two")
    async with rig.trial() as trial:
        trial.on("gate")
        for key in ("a", "b", "c"):
            await trial.put(key, "m01 hold=gate")
        await trial.called("c")
        for _ in range(3):
            assigned = rig.site.logs().count("partitions_assigned")
            rig.start("three")
            await eventually(
                lambda assigned=assigned: rig.site.logs().count("partitions_assigned") >= assigned + 3,
                deadline_s=ANSWERED_S,
                what="all three have their partitions",
            )
            await asyncio.gather(*(trial.put(f"d{number}", "m02", wait="none") for number in range(8)))
            await trial.caught_up()
            await trial.dally()
            rig.stop("three")
            await asyncio.gather(*(trial.put(f"d{number}", "m03", wait="answered") for number in range(8)))
        trial.off("gate")
        await trial.settled("a", "b", "c")

        assert [trial.calls(key) for key in ("a", "b", "c")] == [1] * 3
        assert [rig.workers[name].poll() for name in ("one", "two")] == [None, None]


async def test_rolling_restarts_and_a_rolling_change_of_questions(rig: Rig):
    """Workers stop in order one by one while documents are written, and come back with other questions: none is lost,
    and the definition changes once.
    """
    rig.running("one", "two")
    async with rig.trial() as trial:
        stop = asyncio.Event()
        writing = asyncio.create_task(trial.scribble(KEYS, stop, 0.03))
        before = await trial.pipeline.store.read(definitions.generation)
        rig.define("topic", "mood", file="next.toml")
        codes = []
        for name in ("one", "two"):
            await trial.dally()
            codes.append(await asyncio.to_thread(rig.stop, name))
            rig.start(name, FACETLINE_CONFIG="next.toml")
            if name == "one":
                said = await asyncio.to_thread(rig.site.place.run, "collections", "apply", "--config", "next.toml")
        await trial.put("last", "m04", wait="answered")
        stop.set()
        await writing
        after = await trial.pipeline.store.read(definitions.generation)
        (last,) = await trial.settled("last")

        assert (codes, said.code) == ([0, 0], 0), said.err
        assert after.number == before.number + 1
        assert set(last["facets"]) == {"topic", "mood"}
    await asyncio.to_thread(rig.site.place.run, "collections", "apply")


async def test_a_reindex_against_live_writes_and_a_kill(rig: Rig):
    """Asked for twice it is one job; its worker is killed half-way; live writes go on, and every document ends as its
    last write.
    """
    rig.running("one")
    async with rig.trial() as trial:
        await asyncio.gather(*(trial.put(key, "m01", wait="none") for key in KEYS))
        await trial.caught_up()
        await trial.settled(*KEYS)
        request = JobRequest("tickets", trial.scope, "force")
        job = await requests.start(trial.pipeline, request)
        again = await requests.start(trial.pipeline, request)
        stop = asyncio.Event()
        writing = asyncio.create_task(trial.scribble(KEYS[:8], stop, 0.05))

        async def half() -> bool:
            counts = await trial.pipeline.store.read(jobs.progress, job.id)
            return counts.get("waiting", 0) + counts.get("asked", 0) < len(KEYS) / 2

        await eventually(half, deadline_s=ANSWERED_S, every_s=0.01, what="half of it is done")
        await trial.dally()
        rig.kill("one")
        rig.site.clock.shift(LEASES_S)
        rig.start("two")

        async def ended() -> bool:
            return (await trial.pipeline.store.read(jobs.get, job.id)).state not in model.ACTIVE

        await eventually(ended, deadline_s=ANSWERED_S, what="the job has ended")
        stop.set()
        await writing
        progress = (await requests.result(trial.pipeline, job.id))["progress"]

        assert again.id == job.id
        assert progress["done"] == progress["total"]
        assert len(KEYS) - 8 <= progress["total"] <= len(KEYS)  # what was written before its item was is done anyway


async def test_a_worker_frozen_in_a_transaction_holds_nobody_up(rig: Rig):
    """Its rows are free again after a while; another worker goes on with its partitions, and what it does itself when
    it is thawed changes nothing and ends nothing.
    """
    assert rig.server is not None
    rig.running()
    postgres_server.limit_idling(rig.proxied_url, STANDS_MS)
    pause = rig.site.folder / "applying"
    first = rig.start("one", f"apply.before_commit=pause:{pause}")
    async with rig.trial() as trial:
        await trial.put("a", "m01", wait="answered")
        pause.touch()
        await trial.put("a", "m02", wait="none")
        await eventually(pause.with_name("applying.reached").exists, deadline_s=ANSWERED_S, what="it stands still")
        rig.freeze("one")
        rig.start("two")
        await trial.put("a", "m03", wait="applied")
        rig.site.clock.shift(LEASES_S)
        await trial.settled("a")
        pause.unlink()
        said = rig.site.logs().count(ENDED)
        rig.thaw("one")
        await eventually(lambda: rig.site.logs().count(ENDED) > said, deadline_s=ANSWERED_S, what="it tries again")
        await trial.put("a", "m04", wait="answered")

        assert first.poll() is None
        assert await trial.topic("a") == "m04"
    postgres_server.limit_idling(rig.proxied_url, 0)
    rig.running("two")


@pytest.mark.parametrize("point", ["publish.before_send", "publish.before_commit"])
async def test_a_frozen_publisher_is_fenced(rig: Rig, point: str):
    """With old rows in hand or in its transaction: nobody sees them after its successor's, which are there in order."""
    rig.running()
    pause = rig.site.folder / "publishing"
    first = rig.start("one", f"{point}=pause:{pause}")
    async with rig.trial() as trial:
        await trial.put("a", "m01", wait="answered")
        await _published(rig, trial)
        started = rig.site.logs().count("worker_started")
        rig.start("two")
        await eventually(
            lambda: rig.site.logs().count("worker_started") > started, deadline_s=ANSWERED_S, what="its heir is there"
        )
        pause.touch()
        await trial.put("a", "m02")
        await eventually(pause.with_name("publishing.reached").exists, deadline_s=ANSWERED_S, what="it stands still")
        rig.freeze("one")
        rig.site.clock.shift(LEASES_S)
        await trial.settled("a")  # whoever was asking
        values = await _published(rig, trial)
        await trial.dally()
        pause.unlink()
        rig.thaw("one")
        await trial.put("a", "m03", wait="answered")
        later = await _published(rig, trial)

        assert first.poll() is None
        for each in (values, later):
            versions = [value["version"] for value in each]
            assert versions == sorted(set(versions))
        assert later[: len(values)] == values
        assert later[-1]["facets"]["topic"]["choice"] == "m03"
    rig.running("two")


async def _published(rig: Rig, trial: Trial) -> list[dict[str, Any]]:
    """Return what readers of committed records see of the document, once its newest state is there."""
    topic = topics.topic_names(rig.site.settings.kafka.topic_prefix).facets
    newest = (await trial.get("a"))["version"]

    async def look() -> list[dict[str, Any]] | None:
        records = await kafka_topics.contents(rig.site.settings.kafka, topic, 10_000, deadline_s=1.0)
        uri = trial.uri("a").encode()
        values = [json.loads(record.value) for record in records if record.key == uri and record.value]
        return values if values and values[-1]["version"] >= newest else None

    return await eventually(look, deadline_s=ANSWERED_S, what="the newest state is on the topic")
