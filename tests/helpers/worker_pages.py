"""What a worker process shows over HTTP and in its log. It must be started with `ANY_PORT`, and log at level info."""

import json
from pathlib import Path
from typing import Any

import aiohttp
from polling import eventually
from prometheus_client.parser import text_string_to_metric_families
from runtimes import ANSWERED_S, Site

ANY_PORT = {"FACETLINE_WORKER_HTTP": "127.0.0.1:0"}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Pages:
    """The pages and the log of the worker that a site started as the nth."""

    def __init__(self, site: Site, nth: int) -> None:
        self.log = site.folder / f"worker-{nth}.log"

    async def address(self) -> str:
        """Return host and port, as soon as the worker has said them."""
        at = await eventually(self._said, deadline_s=ANSWERED_S, what="the worker serves HTTP")
        return f"{at['host']}:{at['port']}"

    async def get(self, path: str) -> tuple[int, str]:
        """Return a page's status and text."""
        url = f"http://{await self.address()}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as reply:
            return reply.status, await reply.text()

    async def ready(self) -> None:
        """Wait until the worker is ready, degraded or not."""

        async def look() -> bool:
            return (await self.get("/readyz"))[0] == 200

        await eventually(look, deadline_s=ANSWERED_S, every_s=0.2, what="the worker is ready")

    async def samples(self) -> Samples:
        """Return every sample of /metrics that is ours."""
        _, text = await self.get("/metrics")
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if family.name.startswith("facetline_")
        }

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the log; the last one may be half written."""
        return lines(self.log)

    def _said(self) -> dict[str, Any] | None:
        return next((line for line in self.lines() if line["event"] == "worker_http_started"), None)


def lines(log: Path) -> list[dict[str, Any]]:
    """Return the JSON lines of a log."""
    found = log.read_text(errors="replace").split("\n")[:-1] if log.exists() else []
    return [json.loads(line) for line in found if line.startswith("{")]
