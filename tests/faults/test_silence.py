"""Database connections that fall silent: work goes on elsewhere in time, readiness says so, and a stop waits for none.

Method: a proxy that takes bytes and delivers none, without ending any connection. `make soak` repeats it with other
seeds, which choose what is swallowed when.
"""

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import cutting_proxy
import missing
import postgres_server
import pytest
import seeds
from polling import eventually
from rig import LEASES_S, Rig
from runtimes import ANSWERED_S, Site
from serving import serve_process
from storms import SILENCES
from worker_pages import ANY_PORT, lines

KEYS = [f"t{number}" for number in range(12)]
KAFKA = [pytest.mark.kafka, pytest.mark.postgres]
BUSY_S = 15.0
"""What a loaded machine may add to a stop: leaving the group takes some seconds by itself."""


@pytest.mark.parametrize("any_rig", [pytest.param("kafka", marks=KAFKA)], indirect=True)
async def test_connections_that_fall_silent_lose_nothing(any_rig: Rig):
    """Whatever is swallowed, a commit or only its answer too: nothing is lost, doubled or paid for twice."""
    rig = any_rig
    assert rig.proxy is not None
    source = seeds.chance("silence")
    silences = source.sample(SILENCES, k=len(SILENCES))
    rig.running("one", "two")
    async with rig.trial() as trial:
        await trial.put("first", "m01", wait="answered")
        for round_, what in enumerate(silences):
            before = rig.proxy.swallowed
            rig.proxy.fall_silent(what, 2)
            await asyncio.gather(*(trial.put(key, f"m0{round_}", wait="none") for key in KEYS))
            await eventually(
                lambda before=before: rig.proxy is not None and rig.proxy.swallowed >= before + 2,
                deadline_s=ANSWERED_S,
                what=f"connections fell silent: {what}",
            )
            rig.proxy.speak()
            await trial.dally()
        rig.site.clock.shift(LEASES_S)  # claims whose answer was lost
        await trial.caught_up()
        after = await trial.settled(*KEYS)

        assert {each["facets"]["topic"]["choice"] for each in after} == {"m04"}
        assert [worker.poll() for worker in rig.workers.values()] == [None, None]


@pytest.mark.parametrize("any_rig", [pytest.param("kafka", marks=KAFKA)], indirect=True)
async def test_a_worker_with_a_silent_database_says_so_and_stops(any_rig: Rig):
    """Readiness fails while every connection is silent, comes back with the network, and SIGTERM ends it either way."""
    rig = any_rig
    assert rig.proxy is not None
    rig.running()
    worker = rig.start("page", **ANY_PORT, FACETLINE_STORE_STATEMENT_S="60")
    log = rig.site.logs_of[worker.pid]
    async with rig.trial() as trial:
        await trial.put("first", "m01", wait="answered")
        page = await _page(log)

        async def ready() -> bool:
            return (await _get(page))[0] == 200

        await eventually(ready, deadline_s=ANSWERED_S, every_s=0.3, what="the worker is ready")
        rig.proxy.fall_silent("both")
        await trial.put("second", "m02", wait="none")

        async def stalled() -> str | None:
            status, text = await _get(page)
            return text if status == 503 and "store_work" in text and "waiting for the store" in text else None

        text = await eventually(stalled, deadline_s=ANSWERED_S, every_s=0.3, what="readiness names what waits")
        assert "look at its locks" in text
        began = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        await eventually(
            lambda: worker.poll() is not None, deadline_s=1.0 + BUSY_S, what="the worker ends although nothing answers"
        )
        took_s = time.monotonic() - began
        code = worker.poll()
        rig.proxy.speak()
        rig.site.clock.shift(LEASES_S)
        rig.running("one")
        (after,) = await trial.settled("second")

    assert (code, after["status"]) == (0, "indexed")
    print(f"stopped after {took_s:.1f} s")  # noqa: T201 (for a reader of the figures)


async def _page(log: Path) -> str:
    said = await eventually(
        lambda: [line for line in lines(log) if line["event"] == "worker_http_started"],
        deadline_s=ANSWERED_S,
        what="the worker serves HTTP",
    )
    return f"http://{said[0]['host']}:{said[0]['port']}/readyz"


async def _get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as reply:
        return reply.status, await reply.text()


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[cutting_proxy.Proxy, Site]]:
    """A local runtime on a PostgreSQL behind a proxy."""
    try:
        server = postgres_server.Server()
    except postgres_server.MissingPostgres as error:
        missing.skip_or_fail(str(error))
    server.start()
    try:
        postgres_server.create_database(server.admin_url, "silent")
        with cutting_proxy.before(server.folder / ".s.PGSQL.5432") as proxy:
            url = f"postgresql+psycopg://postgres@127.0.0.1:{proxy.port}/silent?sslmode=disable"
            settings = {
                "FACETLINE_STORE_URL": url,
                "FACETLINE_STORE_CONNECT_S": "2",
                "FACETLINE_STORE_STATEMENT_S": "2",
            }
            yield proxy, Site("local", tmp_path, settings)
    finally:
        server.stop()


@pytest.mark.postgres
async def test_a_server_with_a_silent_database_says_so_and_stops(proxied: tuple[cutting_proxy.Proxy, Site]):
    """`serve` on PostgreSQL: searches go on, readiness names the store, a write ends in time, and so does SIGTERM."""
    proxy, site = proxied
    with serve_process(site.place, FACETLINE_STORE_STATEMENT_S="60") as serving:
        path = "/v1/documents/@s/tickets/t1"
        first = serving.request("PUT", f"{path}?wait=answered", body="billing")
        assert first.status_code < 300, first.text

        async def found() -> bool:
            reply = await asyncio.to_thread(serving.request, "GET", "/v1/collections/tickets/search?scope=s")
            return "tickets/t1" in reply.text

        await eventually(found, deadline_s=ANSWERED_S, every_s=0.3, what="the document is found")
        proxy.fall_silent("both")

        async def said() -> str | None:
            reply = await asyncio.to_thread(serving.request, "GET", "/readyz")
            return reply.text if "waiting for the store" in reply.text else None

        text = await eventually(said, deadline_s=ANSWERED_S, every_s=0.3, what="readiness names what waits")
        goes_on = await found()
        began = time.monotonic()
        code = serving.stop()
        took_s = time.monotonic() - began

    assert "store_work" in text
    assert goes_on
    assert (code, took_s < 1.0 + BUSY_S) == (0, True)


@pytest.mark.postgres
async def test_commands_end_although_the_database_is_silent(proxied: tuple[cutting_proxy.Proxy, Site]):
    """A command says that the store does not answer; one that is interrupted ends at once; a server may not start."""
    proxy, site = proxied
    written = await asyncio.to_thread(
        site.place.run, "write", "@s/tickets/t1", "--body", "billing", "--wait", "applied"
    )
    assert written.code == 0, written.err
    proxy.fall_silent("both")
    getting = asyncio.to_thread(site.place.run, "get", "@s/tickets/t1")
    starting = site.place.start("serve", "--port", "0")
    before = proxy.swallowed
    await eventually(lambda: proxy.swallowed > before, deadline_s=ANSWERED_S, what="the server connects")
    await asyncio.sleep(0)
    starting.send_signal(signal.SIGTERM)
    began = time.monotonic()
    out, err = await asyncio.to_thread(starting.communicate, None, 60.0)
    took_s = time.monotonic() - began
    got = await getting

    assert (starting.returncode, took_s < BUSY_S) == (0, True), (out, err)
    assert (got.code, "did not answer" in got.err or "cannot be opened" in got.err) == (1, True), got.err
    assert "Traceback" not in got.err + err
