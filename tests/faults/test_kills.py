"""SIGKILL at each step of the write worker, the side chain, a reindex and the publisher: nothing lost, nothing double.

Each test lets processes die at named points, starts another one, and looks at what is there: every accepted write is
indexed, no document changed more often than its writes say, and no model was asked more often than crashes explain.
"""

import json
import signal
import uuid
from typing import Any

import kafka_topics
import pytest
import runtimes
from polling import eventually
from runtimes import Case

from facetline.storage.jobs import jobs, model
from facetline.storage.jobs.model import JobRequest
from facetline.storage.log import documents, outcomes
from facetline.streams.failpoints import VARIABLE
from facetline.streams.kafka import topics
from facetline.streams.reindex import requests
from facetline.streams.wire.codec import Message, encode_write

CALL_S = 2.0
LEASES_S = 60.0
"""All leases have ended when so much time has passed for the store."""
TAKEN_OVER_S = 60.0
"""A worker has started by then, and has done what is due."""


@pytest.mark.parametrize("failpoint", ["apply.before_commit", "apply.after_commit"])
async def test_killed_while_writes_are_applied(case: Case, failpoint: str):
    """Whether the transaction was committed or not: each write takes place once and is answered once."""
    keys = [f"t{number}" for number in range(5)]
    if case.site.is_kafka:
        before = await _worker_killed_applying(case, keys, failpoint)
    else:
        before = await _import_killed(case, keys, failpoint)
    with case.site.worker(**_group()):
        await case.caught_up()
        settled = await case.settled(*keys)

    assert before == (0 if failpoint == "apply.before_commit" else 5)
    assert {(each["version"], each["revision"], each["indexed_as"], each["status"]) for each in settled} == {
        (2, 1, 1, "indexed")
    }
    assert [case.calls(key) for key in keys] == [1] * 5


async def _worker_killed_applying(case: Case, keys: list[str], failpoint: str) -> int:
    """Kill a worker that applies; return how many documents are there then."""
    messages = [case.message(key, f"billing {key}", f"{case.scope}-{key}") for key in keys]
    await runtimes.produce(case.site, case.pipeline, messages)
    with case.site.worker(f"{failpoint}=kill") as worker:
        await runtimes.died(worker)
    found = [await case.pipeline.store.read(outcomes.find, "test", f"{case.scope}-{key}") for key in keys]
    there = sum(outcome is not None for outcome in found)
    return 5 if there else 0  # one partition of several may have been applied before the kill


async def _import_killed(case: Case, keys: list[str], failpoint: str) -> int:
    """Kill an import, look, and run it again; return how many documents were there between the two."""
    lines = [json.dumps({"uri": case.uri(key), "body": case.body(f"billing {key}")}) for key in keys]
    words = ("import", "-", "--collection", "tickets", "--wait", "applied", "--json")
    killed = case.site.place.run(*words, stdin="\n".join(lines), settings={VARIABLE: f"{failpoint}=kill"})
    there = [await case.pipeline.store.read(documents.get, case.uri(key)) for key in keys]
    again = case.site.place.run(*words, stdin="\n".join(lines))

    assert (killed.code, again.code, killed.out) == (-signal.SIGKILL, 0, "")
    assert again.json["written"] + again.json["unchanged"] == 5
    return sum(each is not None for each in there)


@pytest.mark.parametrize("site", runtimes.RUNTIMES[:1], indirect=True)  # with Kafka: storms, and test_late.py
async def test_killed_at_each_step_of_the_side_chain(case: Case):
    """Claimed, asked, answered or stored: each document is indexed in the end, at one call more for each crash."""
    keys = [f"t{number:02d}" for number in range(15)]
    case.on("gate")
    await _written_and_unclaimed(case, {key: f"outage {key}" + (" hold=gate" if key > "t11" else "") for key in keys})
    for failpoint in ("chain.after_claim", "chain.before_store", "chain.after_store"):
        with case.site.worker(f"{failpoint}=kill") as worker:
            await runtimes.died(worker)
    with case.site.worker() as worker:
        await case.called("t14")
        worker.kill()
        worker.wait()
    case.off("gate")
    case.site.clock.shift(LEASES_S)
    with case.site.worker():
        settled = await _all_settled(case, keys)

    assert {(each["status"], each["revision"], each["indexed_as"]) for each in settled} == {("indexed", 1, 1)}
    assert {each["version"] for each in settled} == {2}
    for each in settled:
        assert 1 <= case.calls(each["key"]) <= each["calls"]["made"] <= 1 + each["calls"]["crashes"]
    crashes = [each["calls"]["crashes"] for each in settled]
    assert crashes[:6] == [1] * 6  # claimed by the first; asked and lost by the second
    assert 0 in crashes[6:9]  # stored by the third
    assert [case.calls(key) for key in keys[3:6]] == [2] * 3


async def _written_and_unclaimed(case: Case, bodies: dict[str, str]) -> None:
    """Write documents that nobody asks about yet, and leave a configuration of three call slots."""
    for key, text in bodies.items():
        await case.write(key, text, wait="applied")
    case.site.define(call_s=CALL_S, concurrency=3)


async def _all_settled(case: Case, keys: list[str]) -> list[dict[str, Any]]:
    async def look() -> bool:
        counts = await case.pipeline.store.read(documents.counts)
        return counts["tickets"].get("pending", 0) == 0

    await eventually(look, deadline_s=TAKEN_OVER_S, every_s=0.2, what="nothing is pending")
    return await case.settled(*keys)


@pytest.mark.parametrize("site", runtimes.RUNTIMES[:1], indirect=True)  # a job knows no broker
async def test_killed_during_a_reindex(case: Case):
    """A worker dies after each of two steps of a job; another one ends the job, each document asked about once more."""
    keys = [f"t{number:02d}" for number in range(10)]
    case.site.define(call_s=CALL_S, concurrency=2)
    with case.site.worker():
        for key in keys:
            await case.write(key, f"billing {key}", wait="applied")
        await _all_settled(case, keys)
    job = await requests.start(case.pipeline, JobRequest("tickets", case.scope, "force"))
    with case.site.worker("reindex.after_turn=kill") as worker:
        await runtimes.died(worker)
    case.site.clock.shift(LEASES_S)
    with case.site.worker():

        async def ended() -> bool:
            return (await case.pipeline.store.read(jobs.get, job.id)).state not in model.ACTIVE

        await eventually(ended, deadline_s=TAKEN_OVER_S, every_s=0.2, what="the job has ended")
    result = await requests.result(case.pipeline, job.id)
    settled = await case.settled(*keys)

    assert (result["state"], len(result["reindexed"]), result["failed"]) == ("succeeded", 10, [])
    for each in settled:
        assert (each["status"], each["revision"]) == ("indexed", 1)
        assert 2 <= case.calls(each["key"]) <= 2 + each["calls"]["crashes"]


@pytest.mark.parametrize("site", runtimes.RUNTIMES[1:], indirect=True)
async def test_killed_at_each_step_of_publishing(case: Case):
    """The facets topic has every document's newest state last, in the order of versions, whatever was killed."""
    points = ("publish.before_send", "publish.before_commit", "publish.after_send", "publish.after_mark")
    for number, failpoint in enumerate(points):
        messages = [_blank(case, number), case.message("t1", f"billing {number}")]
        await runtimes.produce(case.site, case.pipeline, messages[: 1 + number])  # at first one record alone
        with case.site.worker(f"{failpoint}=kill", **_group()) as worker:
            await runtimes.died(worker)
        case.site.clock.shift(LEASES_S)
    await runtimes.produce(case.site, case.pipeline, [case.message("t1", "outage")])
    topic = topics.topic_names(case.site.settings.kafka.topic_prefix).facets
    with case.site.worker(**_group()):
        await case.caught_up()
        (document,) = await case.settled("t1")
        last = {(case.uri("t1"), document["version"]), *((case.uri(f"b{number}"), 1) for number in range(4))}

        async def published() -> list[dict[str, Any]] | None:
            records = await kafka_topics.contents(case.site.settings.kafka, topic, 10_000, deadline_s=2.0)
            values = [json.loads(record.value) for record in records if record.value]
            seen = {(value["uri"], value["version"]) for value in values}
            return values if seen >= last else None

        values = await eventually(published, deadline_s=TAKEN_OVER_S, what="the newest state is on the topic")
    told = [value for value in values if value["uri"] == case.uri("t1")]
    versions = [value["version"] for value in told]

    assert versions == sorted(versions)
    assert told[-1]["facets"] == document["facets"]
    assert document["facets"]["topic"]["choice"] == "outage"


def _group() -> dict[str, str]:
    """A consumer group of its own for a worker: it need not wait until the killed one's membership has ended."""
    return {"FACETLINE_KAFKA__GROUP_ID": uuid.uuid4().hex}


def _blank(case: Case, number: int) -> Message:
    """A write whose document never changes again: there is nothing to ask about it."""
    return encode_write(case.uri(f"b{number}"), body=" ", state=None, source="test", event_id=f"{case.scope}-{number}")
