"""Workers that come and go: they share the work, leave it in order, and no offset of Kafka's decides what is done."""

import signal
import time
from collections.abc import Callable

import aiokafka
import kafka_topics
import pytest
import runtimes
from polling import eventually
from runtimes import ANSWERED_S, Case

from streams import kafka_clients, topics


async def test_two_workers_share_the_work(case: Case, record_property: Callable[[str, object], None]):
    """Both ask, nobody asks twice; when one of them is killed, the other one does what is written from then on."""
    case.site.define(concurrency=2)
    keys = [f"t{number:02d}" for number in range(20)]
    case.on("gate")
    with case.site.worker() as first, case.site.worker() as second:
        for key in keys:
            await case.write(key, f"billing {key} hold=gate", wait="applied")

        def asking() -> set[int]:
            return {call.pid for call in case.site.script.calls()}

        await eventually(lambda: len(asking()) == 2, deadline_s=ANSWERED_S, what="both workers have calls")
        case.off("gate")
        await case.settled(*keys)
        calls, pids = [case.calls(key) for key in keys], asking()
        first.kill()
        killed_s = time.monotonic()
        for key in keys:
            await case.write(key, f"outage {key}", wait="none")
        await case.caught_up()
        after = await case.settled(*keys)
        resumed_s = time.monotonic() - killed_s

    record_property("resumed_s", resumed_s)
    print(f"{case.site.name}: all work had been done {resumed_s:.1f} s after the kill")  # noqa: T201 (a figure)
    assert pids == {first.pid, second.pid}
    assert calls == [1] * 20
    assert {each["facets"]["topic"]["choice"] for each in after} == {"outage"}
    assert resumed_s < 30  # promised are 15 on a machine that has nothing else to do


async def test_a_stop_leaves_nothing_claimed(case: Case):
    """Told to stop in mid-call, a worker ends in order; the next one asks at once, and one crash is recorded."""
    case.on("gate")
    if not case.site.is_kafka:
        await case.write("t1", "billing hold=gate", wait="applied")
    with case.site.worker() as worker:
        if case.site.is_kafka:
            await case.write("t1", "billing hold=gate", wait="applied")
        await case.called("t1")
        worker.send_signal(signal.SIGINT if case.site.is_kafka else signal.SIGTERM)
        code = await eventually(lambda: {worker.poll()} - {None}, deadline_s=20, what="the worker has ended")
    case.off("gate")
    with case.site.worker():
        (after,) = await case.settled("t1")

    assert code == {0}
    assert (after["status"], after["calls"]) == ("indexed", {"made": 2, "retries": 0, "crashes": 1})


@pytest.mark.parametrize("site", runtimes.RUNTIMES[1:], indirect=True)
async def test_committed_offsets_decide_nothing(case: Case):
    """A group reset to the start asks and changes nothing; a group ahead of what was applied misses nothing."""
    keys = [f"t{number}" for number in range(8)]
    kafka = case.site.settings.kafka
    with case.site.worker():
        await case.produce(*(case.message(key, f"billing {key}", key) for key in keys))
        before = await case.settled(*keys)
    reset = kafka.model_copy(update={"group_id": f"{kafka.group_id}-reset"})
    with case.site.worker(FACETLINE_KAFKA__GROUP_ID=reset.group_id):

        async def redelivered() -> bool:
            return sum((await kafka_topics.committed(reset)).values()) >= len(keys)

        await eventually(redelivered, deadline_s=ANSWERED_S, every_s=0.5, what="all was delivered again")
        after = await case.settled(*keys)
    await runtimes.produce(
        case.site, case.pipeline, [case.message(f"u{key}", f"outage {key}", f"u{key}") for key in keys]
    )
    await _commit_the_end(case)
    later = [case.message(f"v{key}", f"other {key}", f"v{key}") for key in keys]
    await runtimes.produce(case.site, case.pipeline, later[:4])  # a jump in some partitions, and silence in others
    with case.site.worker():
        await case.caught_up()
        skipped = await case.settled(*(f"u{key}" for key in keys), *(f"v{key}" for key in keys[:4]))

    assert after == before
    assert [case.calls(key) for key in keys] == [1] * 8
    assert {each["status"] for each in skipped} == {"indexed"}
    assert [case.calls(f"u{key}") for key in keys] == [1] * 8


async def _commit_the_end(case: Case) -> None:
    """Commit the ends of all partitions for the workers' group, as somebody might with Kafka's tools."""
    kafka = case.site.settings.kafka
    topic = topics.topic_names(kafka.topic_prefix).documents
    consumer = aiokafka.AIOKafkaConsumer(**kafka_clients.consumer_arguments(kafka, group_id=kafka.group_id))
    await consumer.start()
    try:
        places = [aiokafka.TopicPartition(topic, partition) for partition in range(runtimes.PARTITIONS)]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        await consumer.commit(dict(ends))
    finally:
        await consumer.stop()
