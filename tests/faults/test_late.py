"""Answers that come late, or twice, or from the dead: a reader that looks all the while never sees one of them."""

import asyncio

import pytest
from polling import eventually
from rig import LEASES_S, Rig
from runtimes import ANSWERED_S
from trials import Trial

from facetline.storage.db.engine import Tx
from facetline.storage.log import documents

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


def asking(trial: Trial, key: str) -> int:
    """The process id of the last call about a document."""
    return next(
        call.pid
        for call in reversed(trial.site.script.calls())
        if call.body.endswith(f"#{trial.scope}") and call.key == key
    )


def named(rig: Rig, pid: int) -> str:
    """The name of a worker process."""
    return next(name for name, worker in rig.workers.items() if worker.pid == pid)


def _indexed_as(tx: Tx, uri: str) -> int | None:
    found = documents.get(tx, uri)
    return None if found is None else found.indexed_as


async def test_slow_head_fast_tail_kill(rig: Rig):
    """A killed worker's slow call is made once more by another; what its neighbours were told is not asked again."""
    rig.running("one", "two")
    async with rig.trial() as trial:
        trial.on("gate")
        await trial.put("a", "m01 hold=gate")
        await trial.called("a")
        for key in "bcdef":
            await trial.put(key, "m02")
        await trial.settled(*"bcdef")
        await trial.dally()
        rig.kill(named(rig, asking(trial, "a")))
        trial.off("gate")
        rig.site.clock.shift(LEASES_S)
        (after,) = await trial.settled("a")

        assert (after["status"], after["calls"]) == ("indexed", {"made": 2, "retries": 0, "crashes": 1})
        assert [trial.calls(key) for key in "bcdef"] == [1] * 5


async def test_late_answers_of_earlier_lives(rig: Rig):
    """Rewritten, deleted, or deleted and written again while it was asked about: the late answer is nobody's."""
    rig.running("one", "two")
    async with rig.trial() as trial:
        before = await trial.tally("answers_discarded")
        trial.on("slow")
        for key in ("rewritten", "deleted", "again"):
            await trial.put(key, "m01 hold=slow")
            await trial.called(key)
        await trial.put("rewritten", "m02", wait="answered")
        await trial.remove("deleted")
        await trial.remove("again")
        await trial.put("again", "m03", wait="answered")
        await trial.dally()
        trial.off("slow")

        async def discarded() -> bool:
            return await trial.tally("answers_discarded") >= before + 3

        await eventually(discarded, deadline_s=ANSWERED_S, what="three late answers were discarded")
        assert (await trial.topic("rewritten"), await trial.topic("again")) == ("m02", "m03")


@pytest.mark.parametrize("any_rig", ["local", "kafka"], indirect=True)
async def test_rewritten_between_answer_and_store(any_rig: Rig):
    """A worker that stands still with an answer in hand while its document is rewritten stores nothing."""
    pause = any_rig.site.folder / "paused"
    pause.touch()
    any_rig.running()
    any_rig.start("paused", f"chain.before_store=pause:{pause}")
    if any_rig.site.is_kafka:  # it applies what the other one cannot, and claims nothing: it asks something else
        any_rig.define("mood", file="mood.toml")
        any_rig.start("applies", FACETLINE_CONFIG="mood.toml")
    async with any_rig.trial() as trial:
        before = await trial.tally("answers_discarded")
        keys = [f"t{number}" for number in range(8)]
        await asyncio.gather(*(trial.put(key, "m01", wait="none") for key in keys))
        await eventually(pause.with_name("paused.reached").exists, deadline_s=ANSWERED_S, what="it stands still")
        await asyncio.gather(*(trial.put(key, "m02", wait="none") for key in keys))

        async def passed() -> bool:
            rows = [await trial.pipeline.store.read(_indexed_as, trial.uri(key)) for key in keys]
            return any(row is not None and row > 1 for row in rows)

        await eventually(passed, deadline_s=ANSWERED_S, what="a document was rewritten meanwhile")
        await trial.dally()
        pause.unlink()
        await trial.discarded("answers_discarded", before)
        await trial.caught_up()
        after = await trial.settled(*keys)

        assert {each["facets"]["topic"]["choice"] for each in after} == {"m02"}
    any_rig.running()
