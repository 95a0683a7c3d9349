"""Side chains for tests: over a store with the collection `tickets` active, and stopped at the end of the test."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import stored
from polling import eventually

from facetline.evaluators.contract import Evaluator
from facetline.facets.definitions import Definition
from facetline.facets.errors import StoreUnavailable
from facetline.storage import definitions
from facetline.storage.db import engine
from facetline.storage.queue import queue
from facetline.streams.classify.call import Assignment, CallLimits
from facetline.streams.classify.side_chain import SideChain
from facetline.streams.reindex.runner import Reindexer

QUICK = CallLimits(
    concurrency=8,
    call_s=10.0,
    retry_first_s=0.02,
    retry_most_s=0.1,
    probe_first_s=0.1,
    probe_most_s=0.2,
)
"""Limits whose retries and probes take no longer than a test wants to wait."""


async def definition(store: engine.Store, name: str = "tickets") -> Definition:
    """Return the active definition of a collection."""
    _, active = await store.read(definitions.active)
    return active.by_name[name]


async def assignments(
    store: engine.Store, evaluator: Evaluator, limits: CallLimits = QUICK, *names: str
) -> Mapping[str, Assignment]:
    """Assign collections (`tickets` unless named) to an evaluator."""
    return {name: Assignment(await definition(store, name), evaluator, limits) for name in names or ("tickets",)}


@asynccontextmanager
async def running(
    store: engine.Store, evaluator: Evaluator, limits: CallLimits = QUICK, *, owner: str = "one", **options: Any
) -> AsyncIterator[SideChain]:
    """Run a side chain over `tickets`; at the end it gets a stop and its grace period."""
    chain = SideChain(store, await assignments(store, evaluator, limits), owner=owner, **options)
    stop = asyncio.Event()
    task = asyncio.create_task(chain.run(stop))
    try:
        yield chain
    finally:
        stop.set()
        await task


async def settled(store: engine.Store, *, deadline_s: float = 20.0) -> None:
    """Wait until nothing is pending."""

    async def nothing_pending() -> bool:
        """Say whether all documents are settled."""
        return (await store.read(queue.pending)).total == 0

    await eventually(nothing_pending, deadline_s=deadline_s, what="nothing is pending")


async def row(store: engine.Store, uri: str) -> dict[str, Any]:
    """Return a document's row."""
    return await store.read(stored.row, uri)


class Watched(engine.Store):
    """A store that keeps a history of writes, refuses the next `refusals`, and answers late while `late` is cleared."""

    def __init__(self, store: engine.Store) -> None:
        self.__dict__.update(store.__dict__)
        self.history: list[tuple[str, Any]] = []
        self.refusals = 0
        self.late = asyncio.Event()
        self.late.set()

    @property
    def writes(self) -> int:
        """How many writes were committed."""
        return len(self.history)

    async def write(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Refuse, or write and answer when it may."""
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailable("away")
        answer = await super().write(function, *args, **kwargs)
        self.history.append((function.__name__, answer))
        await self.late.wait()
        return answer


@asynccontextmanager
async def reindexing(
    store: engine.Store, evaluator: Evaluator, limits: CallLimits = QUICK, *, owner: str = "one", **options: Any
) -> AsyncIterator[SideChain]:
    """Run a side chain and a reindexer over `tickets`."""
    async with running(store, evaluator, limits, owner=owner) as chain:
        given = await assignments(store, evaluator, limits)
        known: dict[str, Any] = {"wake": chain.wake, "wanted": chain.wanted}
        reindexer = Reindexer(store, owner=owner, assignments=given, **known, **options)
        stop = asyncio.Event()
        task = asyncio.create_task(reindexer.run(stop))
        try:
            yield chain
        finally:
            stop.set()
            await task
