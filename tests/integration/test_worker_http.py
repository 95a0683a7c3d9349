"""A worker's pages over HTTP: what they say while it starts, works, waits and stops, and who may read them.

The server and the store are real; the parts of the worker are stand-ins that say what a test needs.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import loopback
import pytest
import stored
import structlog

from facetline.facets import errors
from facetline.storage.db import engine
from facetline.storage.queue import daily_budget
from facetline.streams.classify.circuit_breaker import Breaker
from facetline.streams.kafka.broker_clock import BrokerClock
from facetline.streams.kafka.log_reader import Bounds
from facetline.streams.monitor import http
from facetline.streams.monitor.observer import Observer
from facetline.streams.monitor.worker_state import Members
from facetline.streams.settings import Settings, load_settings

pytestmark = pytest.mark.collections("tickets")


@pytest.fixture
def store_url(sqlite_url: str) -> str:
    """SQLite alone: nothing here depends on the database."""
    return sqlite_url


def settings(tmp_path: Path, **given: Any) -> Settings:
    """Return settings whose broker is not there."""
    kafka = {"bootstrap_servers": f"127.0.0.1:{loopback.free_ports(1)[0]}"}
    return load_settings(config=tmp_path / "facetline.toml", kafka=kafka, **given)


def starting(tmp_path: Path, **given: Any) -> Members:
    """Return a worker that has not started anything yet."""
    definition = SimpleNamespace(name="tickets", fingerprint=stored.FIRST)
    project: Any = SimpleNamespace(definitions=[definition])
    return Members(settings(tmp_path, **{"worker_http": "127.0.0.1:0", **given}), project)


def working(tmp_path: Path, store: engine.Store, **given: Any) -> Any:
    """Return a worker with everything started; its parts are stand-ins."""
    members: Any = starting(tmp_path, **given)
    lane = SimpleNamespace(name="triage", breaker=Breaker(), allowance=None)
    stats = SimpleNamespace(breaker_reasons={}, misconfigured=frozenset(), unpriced=frozenset(), store_problem=None)
    members.store, members.partitions = store, 4
    members.work = SimpleNamespace(side_chain=SimpleNamespace(lanes=[lane], stats=stats), tasks=[])
    members.consumer = SimpleNamespace(partitions=frozenset({0, 2}), waiting=None, broker_clock=BrokerClock())
    members.publisher = SimpleNamespace(waiting=None, position=5)
    return members


class ThereObserver(Observer):
    """Sees a broker that is there."""

    async def _ask_bounds(self) -> dict[int, Bounds]:
        return {0: Bounds(0, 0)}


class Site:
    """A server and who looks at it."""

    def __init__(self, address: tuple[str, int] | None) -> None:
        self.address = address

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        """Return a page's status and, where it is JSON, its content."""
        assert self.address is not None
        url = f"http://{self.address[0]}:{self.address[1]}{path}"
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as reply:
            text = await reply.text()
            return reply.status, json.loads(text) if "json" in reply.content_type else text


@contextlib.asynccontextmanager
async def served(members: Members, *, broker: bool = True) -> AsyncIterator[Site]:
    """Serve a worker's pages."""
    observer = ThereObserver(members) if broker else Observer(members)
    async with http.serving(members.settings, observer) as address:
        yield Site(address)
    await observer.close()


def checks(page: dict[str, Any]) -> dict[str, str]:
    """Return the level of each check on a page."""
    return {check["name"]: check["level"] for check in page["checks"]}


async def test_a_worker_that_waits_is_alive_and_not_ready(tmp_path: Path):
    """Before store and broker are there it lives, and says in one problem what it waits for."""
    members = starting(tmp_path)
    members.waits_for = "PostgreSQL refuses the connection"
    async with served(members, broker=False) as site:
        alive = await site.get("/livez")
        status, page = await site.get("/readyz")
        _, metrics = await site.get("/metrics")

    assert (alive[0], alive[1]["status"]) == (200, "alive")
    assert (status, page["title"], page["status"]) == (503, "not ready", 503)
    assert checks(page) == {"store": "failed", "broker": "failed", "start": "failed"}
    assert "PostgreSQL refuses the connection" in page["detail"]
    assert members.settings.kafka.bootstrap_servers in page["detail"]
    assert "facetline_worker_store_up 0.0" in metrics
    assert "process_resident_memory_bytes" in metrics


async def test_a_worker_at_work_is_ready(tmp_path: Path, store: engine.Store):
    """200; the checks are listed when asked for."""
    async with served(working(tmp_path, store)) as site:
        short, long = await site.get("/readyz"), await site.get("/readyz?verbose")

    assert short == (200, {"status": "ready", "checks": []})
    assert long[0] == 200
    assert checks(long[1]) == dict.fromkeys(
        ("store", "store_work", "broker", "assignment", "consumer", "publisher", "definitions", "evaluators"), "ok"
    )


@pytest.mark.parametrize(
    ("part", "change", "check", "words"),
    [
        ("consumer", {"partitions": None}, "assignment", "waits for its first partitions"),
        ("consumer", {"waiting": "the disk is full"}, "consumer", "the disk is full"),
        ("publisher", {"waiting": "no broker"}, "publisher", "no broker"),
    ],
)
async def test_what_holds_records_up_is_named(
    tmp_path: Path, store: engine.Store, part: str, change: dict[str, Any], check: str, words: str
):
    """503 as long as records do not flow."""
    members = working(tmp_path, store)
    vars(getattr(members, part)).update(change)
    async with served(members) as site:
        status, page = await site.get("/readyz")

    assert status == 503
    assert checks(page) == {check: "failed"}
    assert words in page["detail"]


async def test_a_broker_that_goes_away_makes_unready_and_not_dead(tmp_path: Path, store: engine.Store):
    """Readiness names it; liveness does not ask."""
    async with served(working(tmp_path, store), broker=False) as site:
        alive, ready = await site.get("/livez"), await site.get("/readyz")

    assert (alive[0], ready[0]) == (200, 503)
    assert checks(ready[1]) == {"broker": "failed"}


async def test_faults_that_waiting_mends_only_degrade(tmp_path: Path, store: engine.Store):
    """An open breaker, another active definition and a wrong clock are named, with 200: holding back mends none."""
    members = working(tmp_path, store)
    (lane,) = members.work.side_chain.lanes
    lane.breaker.failed(lane.breaker.begin(), "tickets/1", 0.0, misconfigured=True)
    members.work.side_chain.stats.breaker_reasons["triage"] = "unavailable: the key is refused"
    members.work.side_chain.stats.misconfigured = frozenset({"triage"})
    lane.allowance = daily_budget.Allowance(2.0, 2.5, 0, 0, 1_800_057_600_000)
    members.project.definitions[0].fingerprint = "another"
    members.consumer.broker_clock.note(2e10)
    async with served(members) as site:
        status, page = await site.get("/readyz")
    said = {check["name"]: check["detail"] for check in page["checks"]}

    assert (status, page["status"]) == (200, "degraded")
    assert checks(page) == dict.fromkeys(("definitions", "evaluators", "clock"), "degraded")
    assert "triage (unavailable: the key is refused)" in said["evaluators"]
    assert "fix its key" in said["evaluators"]
    assert "$2.5000 of $2 today" in said["evaluators"]
    assert "2027-01-16 00:00 UTC" in said["evaluators"]
    assert "facetline collections apply" in said["definitions"]


async def test_a_part_that_ended_is_a_dead_worker(tmp_path: Path, store: engine.Store):
    """Liveness names the part; in a stop parts end in order, which is no death, but no readiness either."""
    members = working(tmp_path, store)
    part = asyncio.create_task(asyncio.sleep(0), name="publisher")
    members.tasks.append(part)
    await part
    async with served(members) as site:
        dead = await site.get("/livez")
        members.stopping = True
        alive, ready = await site.get("/livez"), await site.get("/readyz")

    assert (dead[0], alive[0], ready[0]) == (503, 200, 503)
    assert "publisher ended" in dead[1]["detail"]
    assert checks(ready[1]) == {"stop": "failed"}


async def test_a_worker_that_leaves_asks_nobody(tmp_path: Path, store: engine.Store):
    """Between the end of its work and its own end it answers, without the store that is being closed."""
    members = working(tmp_path, store)
    observer = ThereObserver(members)
    async with http.serving(members.settings, observer) as address:
        site = Site(address)
        before = await site.get("/readyz")
        await observer.close()
        await observer.close()
        await store.close()
        after, alive = await site.get("/readyz"), await site.get("/livez")

    assert (before[0], after[0], alive[0]) == (200, 503, 200)
    assert "the worker stops" in after[1]["detail"]


async def test_an_address_that_was_set_is_had_or_refused(tmp_path: Path):
    """A taken port is an error that names the setting: whoever set it has somebody who asks there."""
    async with served(starting(tmp_path)) as site:
        assert site.address is not None
        with pytest.raises(errors.InvalidSettings, match="FACETLINE_WORKER_HTTP"):
            async with served(starting(tmp_path, worker_http=f"127.0.0.1:{site.address[1]}")):
                raise AssertionError


async def test_an_address_of_nobody_else_is_refused(tmp_path: Path):
    """A host that is not this machine's is named."""
    with pytest.raises(errors.InvalidSettings, match=r"192\.0\.2\.1:0 cannot be had"):
        async with served(starting(tmp_path, worker_http="192.0.2.1:0")):
            raise AssertionError


async def test_workers_of_one_machine_take_the_next_ports(tmp_path: Path):
    """Nobody chose an address: each further worker takes the next port; when none is left it says so and works."""
    members = starting(tmp_path)
    unset = members.settings.model_copy(update={"worker_http": f"127.0.0.1:{loopback.free_ports(1)[0]}"})
    unset.model_fields_set.discard("worker_http")
    members.settings = unset
    async with contextlib.AsyncExitStack() as opened:
        sites = [await opened.enter_async_context(served(members)) for _ in range(http.PORTS_TRIED)]
        with structlog.testing.capture_logs() as logs:
            without = await opened.enter_async_context(served(members))

    ports = [site.address[1] for site in sites if site.address is not None]
    assert ports == sorted(ports)
    assert len(set(ports)) >= http.PORTS_TRIED - 3  # somebody else may have one of them
    assert without.address is None
    assert [line["event"] for line in logs] == ["worker_http_off"]


async def test_worker_http_off_opens_no_port(tmp_path: Path):
    """No port is taken."""
    async with served(starting(tmp_path, worker_http="off")) as site:
        address = site.address

    assert address is None


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:1", 200),
        ("localhost", 200),
        ("[::1]:8090", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
    ],
)
async def test_a_loopback_address_answers_for_loopback_hosts(tmp_path: Path, host: str, status: int):
    """A web page that has its own name lead here gets nothing."""
    async with served(starting(tmp_path)) as site:
        found, _ = await site.get("/livez", Host=host)

    assert found == status


async def test_metrics_come_as_openmetrics_when_asked_for(tmp_path: Path):
    """Who asks for OpenMetrics gets it, with its end mark."""
    async with served(starting(tmp_path)) as site:
        _, page = await site.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")

    assert page.endswith("# EOF\n")
