"""A node whose store stops and starts again: searches go on, writes are refused until it is back, nothing is lost."""

import asyncio
import time
from pathlib import Path

import missing
import postgres_server
import pytest
from polling import eventually
from runtimes import Site
from serving import node_on

from facetline.facets import errors
from facetline.facets.backend import LOCAL, Freshness, Wait
from facetline.facets.search.selection import Selection
from facetline.streams.kafka import topics
from facetline.streams.serve.node import PipelineNode

AWAY_S = 90.0
"""A write is tried for half a minute, and a look at the store as well."""
TICKETS = Selection(collection="tickets")


async def write(node: PipelineNode, key: str, wait: Wait = "applied") -> dict[str, object]:
    """Write a document."""
    uri = f"@s/tickets/{key}"
    return await node.write(LOCAL, uri, body=f"billing {key}", state=None, event_id=key, wait=wait, timeout_s=20.0)


@pytest.mark.postgres
@pytest.mark.timeout(240)
async def test_a_store_that_stops_stops_no_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """While the store is away what was found is found, whole documents and writes are refused, and all go on later."""
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        server = postgres_server.Server()
    except postgres_server.MissingPostgres as error:
        missing.skip_or_fail(str(error))
    server.start()
    try:
        url = postgres_server.create_database(server.admin_url, "serving")
        async with node_on(Site("local", tmp_path, {"FACETLINE_STORE_URL": url})) as (_, node):
            written = await write(node, "t1", "answered")
            await node.search(LOCAL, TICKETS, Freshness((str(written["token"]),), 20_000))
            server.crash()

            found = await node.search(LOCAL, TICKETS)
            assert found["keys"] == ["t1"]
            with pytest.raises(errors.StoreUnavailable):
                await node.get(LOCAL, "@s/tickets/t1")
            away = asyncio.create_task(write(node, "t2"))

            async def degraded() -> bool:
                return {check.name: check.level for check in await node.ready()}["store"] == "degraded"

            await eventually(degraded, deadline_s=AWAY_S, what="readiness tells of the store")
            assert (await node.search(LOCAL, TICKETS))["hits"] == found["hits"]
            server.run()
            with_it = await asyncio.wait_for(away, AWAY_S)

            again = await write(node, "t2", "answered")
            assert again["version"] >= with_it["version"]  # type: ignore[operator]
            seen = await node.search(LOCAL, TICKETS, Freshness((str(again["token"]),), 30_000))
            assert seen["keys"] == ["t1", "t2"]
    finally:
        server.stop()


@pytest.mark.kafka
@pytest.mark.postgres
@pytest.mark.timeout(240)
@pytest.mark.parametrize("silent", [False, True], ids=["stopped", "silent"])
async def test_a_write_that_the_log_has_is_accepted_while_the_store_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka_bootstrap: str, topic_prefix: str, silent: bool
):
    """With Kafka a store that stops, or says nothing any more, refuses no write: 202 with the event's id within the
    write's deadline or a shorter timeout, readiness says that it is applied later, and so it is.
    """
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        server = postgres_server.Server()
    except postgres_server.MissingPostgres as error:
        missing.skip_or_fail(str(error))
    server.start()
    try:
        url = postgres_server.create_database(server.admin_url, "serving")
        settings = {
            "FACETLINE_STORE_URL": url,
            "FACETLINE_KAFKA__BOOTSTRAP_SERVERS": kafka_bootstrap,
            "FACETLINE_KAFKA__TOPIC_PREFIX": topic_prefix,
            "FACETLINE_KAFKA__GROUP_ID": topic_prefix,
        }
        site = Site("kafka", tmp_path, settings)
        await topics.create_topics(site.settings.kafka)
        with site.worker():
            async with node_on(site) as (_, node):
                before = await write(node, "t1", "answered")
                assert (before["event_id"], before["status"]) == ("t1", "indexed")
                _away(server, silent)
                replies = [
                    await _timed(node, f"t{number}", wait, 20.0) for number, wait in ((2, "applied"), (3, "answered"))
                ]
                short = await _timed(node, "t4", "applied", 1.0)

                async def says_so() -> bool:
                    checks = {check.name: check for check in await node.ready()}
                    return checks["store"].level == "degraded" and "applied once it is back" in checks["store"].detail

                await eventually(says_so, deadline_s=AWAY_S, what="readiness tells what becomes of writes")
                _back(server, silent)

                async def applied() -> bool:
                    found = [await node.event(LOCAL, f"t{number}") for number in (2, 3, 4)]
                    return [each["outcome"] for each in found] == ["applied"] * 3

                await eventually(applied, deadline_s=AWAY_S, what="what was accepted is applied")
    finally:
        server.thaw()
        server.stop()

    for (reply, seconds), key in zip([*replies, short], ("t2", "t3", "t4"), strict=True):
        assert set(reply) == {"uri", "event_id", "token"}
        assert reply["event_id"] == key
        assert seconds < site.settings.write_deadline_s + 1.0
    assert short[1] < 2.0


async def _timed(node: PipelineNode, key: str, wait: Wait, timeout_s: float) -> tuple[dict[str, object], float]:
    started = time.monotonic()
    uri = f"@s/tickets/{key}"
    reply = await node.write(LOCAL, uri, body=key, state=None, event_id=key, wait=wait, timeout_s=timeout_s)
    return reply, time.monotonic() - started


def _away(server: postgres_server.Server, silent: bool) -> None:
    if silent:
        server.freeze()
    else:
        server.crash()


def _back(server: postgres_server.Server, silent: bool) -> None:
    if silent:
        server.thaw()
    else:
        server.run()
