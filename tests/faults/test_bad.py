"""Poison on the topic and documents that the model refuses, in a crowd of good ones, without Faust's C extension."""

import asyncio

import poison
import pytest
import runtimes
from polling import eventually
from rig import Rig
from runtimes import ANSWERED_S
from trials import Trial

from facetline.storage.jobs import jobs, model
from facetline.storage.jobs.model import JobRequest
from facetline.streams.reindex import requests
from facetline.streams.wire.codec import Message

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]
REFUSED = [f"r{number:02d}" for number in range(30)]
GOOD = [f"g{number:02d}" for number in range(30)]


def _message(trial: Trial, make: poison.Bad) -> Message:
    key, value, headers = make(trial)
    return Message(key, value, tuple(headers))


async def test_poison_and_refusals_cost_their_own_documents_only(rig: Rig):
    """Every good neighbour is answered, each bad event is one dead letter, each refused document says why, the worker
    lives on, and asking again about what is missing asks about exactly that.
    """
    rig.running()
    worker = rig.start("one", NO_CYTHON="1")
    async with rig.trial() as trial:
        trial.on("bad")
        bad = [_message(trial, make) for _, make in poison.BAD_EVENTS]
        poisoning = asyncio.create_task(runtimes.produce(rig.site, trial.pipeline, bad))
        for refused, good in zip(REFUSED, GOOD, strict=True):
            await asyncio.gather(trial.put(refused, "m01 fail=bad", wait="none"), trial.put(good, "m02", wait="none"))
        await poisoning
        await trial.caught_up()
        told = await trial.settled(*REFUSED)
        answered = await trial.settled(*GOOD)
        trial.off("bad")
        job = await requests.start(trial.pipeline, JobRequest("tickets", trial.scope))

        async def ended() -> bool:
            return (await trial.pipeline.store.read(jobs.get, job.id)).state not in model.ACTIVE

        await eventually(ended, deadline_s=ANSWERED_S, what="the job has ended")
        result = await requests.result(trial.pipeline, job.id)

        letters = await trial.letters(*bad)

        assert [letter.reason if letter else None for letter in letters] == [reason for reason, _ in poison.BAD_EVENTS]
        assert {(each["status"], each["reason"]) for each in told} == {("failed", "refused")}
        assert {each["status"] for each in answered} == {"indexed"}
        assert sorted(result["reindexed"]) == [trial.uri(key) for key in REFUSED]
        assert [trial.calls(key) for key in GOOD] == [1] * len(GOOD)
        assert worker.poll() is None
    rig.running("one", "two")
