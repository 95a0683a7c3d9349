"""A node whose store stops and starts again: searches go on, writes are refused until it is back, nothing is lost."""

import asyncio
from pathlib import Path

import missing
import postgres_server
import pytest
from polling import eventually
from runtimes import Site
from serving import node_on

from facets import errors
from facets.node import LOCAL, Freshness, Wait
from facets.selection import Selection
from streams.node import PipelineNode

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
