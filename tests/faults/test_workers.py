"""Workers that come and go: they share the work and leave it in order."""

import signal
import time
from collections.abc import Callable

import pytest
import runtimes
from polling import eventually
from runtimes import ANSWERED_S, Case


@pytest.mark.parametrize("site", runtimes.RUNTIMES[:1], indirect=True)  # with Kafka: test_many_workers.py
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
