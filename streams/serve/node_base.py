"""Common base of the node's parts: pipeline, views, checks of the caller, and reads with time limits."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from facetline.facets import errors, tokens
from facetline.facets.backend import Caller, Freshness
from facetline.facets.definitions import Definition
from facetline.facets.search.selection import Selection
from facetline.storage import credentials
from facetline.streams.serve import health, rights
from facetline.streams.serve.metrics import Measures
from facetline.streams.serve.sql import Statements
from facetline.streams.views import consistency
from facetline.streams.views.live_views import LiveViews

if TYPE_CHECKING:
    from facetline.streams.pipeline import Pipeline

STORE_S = 5.0
"""Time limit of a read of the store; the store retries for longer."""


class NodeBase:
    """State that the parts of a node share, and the checks that each of their methods begins with."""

    def __init__(
        self,
        pipeline: "Pipeline",
        views: LiveViews,
        statements: Statements,
        *,
        loopback: bool = True,
        secret: str = "",
    ) -> None:
        """`loopback` False: no caller is `LOCAL`. `secret` is the token of local commands; "" matches none."""
        self.pipeline = pipeline
        self.views = views
        self.measures = Measures()
        self.state = health.ProcessState()
        self._statements = statements
        self._loopback = loopback
        self._secret = credentials.digest(secret) if secret else ""
        self._following: asyncio.Task[None] | None = None

    def followed_by(self, task: "asyncio.Task[None]") -> None:
        """Set the task that keeps the views current, for health."""
        self._following = task

    @property
    def _follows(self) -> bool:
        """Whether the views are kept current; once they are not, the server must be restarted."""
        return self._following is None or not self._following.done()

    def _source(self, caller: Caller) -> str:
        return rights.source_of(caller, self.pipeline.source)

    def _check_admin(self, caller: Caller, collection: str | None = None) -> None:
        rights.need(caller, "admin", everywhere=True)
        if collection is not None:
            self._definition(caller, collection)

    def _definition(self, caller: Caller, name: str) -> Definition:
        return rights.definition_of(self.views.known.definitions, caller, name)

    def _selection(self, caller: Caller, selection: Selection) -> Selection:
        rights.need(caller, "read")
        definition = self._definition(caller, selection.collection)
        return rights.narrowed(selection, caller) if definition.scoped else selection

    def _tokens(self, caller: Caller, freshness: Freshness) -> list[tokens.Token]:
        return consistency.check(freshness, caller, self._source(caller), self.pipeline.store.store_id)

    async def _reached(self, caller: Caller, collection: str, freshness: Freshness) -> None:
        if not self._follows:
            raise errors.NotCaughtUp(health.ENDED)
        wanted = self._tokens(caller, freshness)
        await consistency.reached(self.views, self.pipeline.store, collection, wanted, freshness.wait_ms, caller.scope)

    async def _stored(self, function: Any, *given: Any) -> Any:
        try:
            async with asyncio.timeout(STORE_S):
                return await self.pipeline.store.read(function, *given)
        except TimeoutError:
            raise errors.StoreUnavailable(f"the store did not answer within {STORE_S:g} s") from None

    @asynccontextmanager
    async def _measured(self, kind: str) -> AsyncIterator[None]:
        started_s = time.perf_counter()
        try:
            yield
        finally:
            self.measures.search(kind, time.perf_counter() - started_s)
