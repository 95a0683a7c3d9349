"""A node to be asked: over an open pipeline in this process, or a whole `facetline serve` in one of its own.

The collections are those of `runtimes.MODULE`: `tickets` (scoped) and `notes`, answered by a `FolderEvaluator`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from runtimes import Site

from facets.node import Caller, Right
from streams.node import PipelineNode, open_node
from streams.pipeline import Pipeline

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
