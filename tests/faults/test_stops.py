"""Told to stop in mid-call: a worker leaves within its grace period, and at once when it is told twice.

Method: real worker processes, a call that would last a minute, and the store read when the process has ended.
"""

import signal
from collections.abc import Iterator

import pytest
import runtimes
import sqlalchemy as sa
from polling import eventually
from runtimes import ANSWERED_S, Case
from worker_pages import ANY_PORT, Pages

from facetline.storage.db.engine import Tx

BOUND_S = 25.0
"""What leaving the group and closing connections may take beyond the grace period on a busy machine."""


def account(tx: Tx) -> tuple[object, ...]:
    """What the queue holds of the one document: its holder, and the account of its calls."""
    columns = "status, owner, lease_until_ms, calls_made, retries, crashes"
    return tuple(tx.execute(sa.text(f"SELECT {columns} FROM documents")).one())


async def ended(worker: runtimes.Worker, limit_s: float) -> int:
    """Wait until a process has ended; return its exit code."""
    (code,) = await eventually(
        lambda: {worker.poll()} - {None}, deadline_s=limit_s, what=f"the worker has ended within {limit_s:g} s"
    )
    return code


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[runtimes.Site]:
    """A place whose workers are the command itself, exit codes and all."""
    with runtimes.made("kafka", tmp_path_factory.mktemp("site"), request.getfixturevalue) as made:
        yield made


@pytest.mark.kafka
@pytest.mark.postgres
async def test_told_to_stop_in_mid_call(case: Case):
    """SIGTERM: code 0 within the grace period; SIGINT twice: at once. Each leaves no claim and one crash recorded."""
    site, grace_s = case.site, 3.0
    site.define(call_s=60.0, grace_s=grace_s)
    case.on("gate")
    with site.worker(**ANY_PORT) as worker:
        await case.write("t1", "billing hold=gate", wait="applied")
        await case.called("t1")
        worker.send_signal(signal.SIGTERM)
        status, said = await Pages(site, 1).get("/readyz")
        once = await ended(worker, grace_s + BOUND_S)
    after_once = await case.pipeline.store.read(account)
    site.define(call_s=600.0, grace_s=600.0)
    with site.worker(**ANY_PORT) as worker:
        await case.called("t1", 2)
        worker.send_signal(signal.SIGINT)
        await eventually(lambda: "worker_stops" in Pages(site, 2).log.read_text(), deadline_s=ANSWERED_S)
        worker.send_signal(signal.SIGINT)
        twice = await ended(worker, BOUND_S)
    after_twice = await case.pipeline.store.read(account)
    case.off("gate")
    with site.worker():
        (answered,) = await case.settled("t1")

    assert (once, twice) == (0, 130)
    assert status == 503
    assert "stopping; running calls" in said
    assert after_once == ("pending", None, None, 1, 0, 1)
    assert after_twice == ("pending", None, None, 2, 0, 2)
    assert (answered["status"], answered["calls"]) == ("indexed", {"made": 3, "retries": 0, "crashes": 2})
    assert case.calls("t1") == 3
    assert [word for word in ("Traceback", "Unclosed", "never retrieved") if word in site.logs()] == []
