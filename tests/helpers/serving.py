"""A node to be asked: over an open pipeline in this process, or a whole `facetline serve` in one of its own.

The collections are those of `runtimes.MODULE`: `tickets` (scoped) and `notes`, answered by a `FolderEvaluator`.
"""

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import runtimes
from commands import Place
from runtimes import Site

from facetline.facets.backend import Caller, Right
from facetline.streams.pipeline import Pipeline
from facetline.streams.serve.node import PipelineNode, open_node

if TYPE_CHECKING:
    import subprocess

ALICE = Caller("alice-token", frozenset[Right]({"read", "write"}), "alice")
BOB = Caller("bob-token", frozenset[Right]({"read", "write"}), "bob")


def reader(scope: str) -> Caller:
    """A caller that reads one scope."""
    return Caller(f"{scope}-reader", frozenset[Right]({"read"}), scope)


def writer(scope: str) -> Caller:
    """A caller that reads and writes one scope."""
    return Caller(f"{scope}-writer", frozenset[Right]({"read", "write"}), scope)


@asynccontextmanager
async def node_on(site: Site, *, classify: bool = True) -> AsyncIterator[tuple[Pipeline, PipelineNode]]:
    """Open a pipeline of a site and serve it; `classify` (local): it runs the side chain as well."""
    async with site.pipeline(classify=classify) as pipeline, open_node(pipeline) as node:
        yield pipeline, node


@asynccontextmanager
async def local_node(folder: Path) -> AsyncIterator[tuple[Pipeline, PipelineNode]]:
    """Serve a new local pipeline in an empty folder, with its side chain."""
    async with node_on(Site("local", folder, {})) as opened:
        yield opened


class ServeProcess:
    """A running `facetline serve`; `log` is the file with what it says."""

    def __init__(self, process: "subprocess.Popen[str]", url: str, log: Path) -> None:
        self.process, self.url, self.log = process, url, log
        self._client = httpx.Client(base_url=url, trust_env=False)

    def request(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        key: str | None = None,
        timeout_s: float = 30.0,
        **json: Any,
    ) -> httpx.Response:
        """Ask it; `json` is the body, if there is any."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        headers |= {} if key is None else {"Idempotency-Key": key}
        return self._client.request(method, path, json=json or None, headers=headers, timeout=timeout_s)

    def close(self) -> None:
        """Close the connections to it."""
        self._client.close()

    def stop(self) -> int:
        """SIGTERM, and wait for the end."""
        return runtimes.stop(self.process)  # type: ignore[arg-type]


@contextmanager
def serve_process(place: Place, *words: str, **settings: str) -> Iterator[ServeProcess]:
    """Run `facetline serve` in a place on a free port; it is stopped in the end."""
    log = place.folder / f"serve-{uuid.uuid4().hex[:8]}.log"
    with log.open("w") as said:
        process = place.start(
            "serve", "--port", "0", *words, settings={"FACETLINE_LOG_LEVEL": "debug", **settings}, stderr=said
        )
    try:
        line = process.stdout.readline()
        assert line.startswith("serving on "), log.read_text()
        with closing(ServeProcess(process, line.removeprefix("serving on ").strip(), log)) as running:
            yield running
    finally:
        runtimes.stop(process)
        process.stdout.close()
