"""Backends of the tools, each for one caller: the protocol, and the one in this process (`http_backend`: over HTTP)."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from facetline.facets import errors
from facetline.facets.agents.tools import Extra
from facetline.facets.backend import Backend, Caller, Freshness, ReindexRequest, Right
from facetline.facets.definitions import Definitions
from facetline.facets.job_replies import JobPlan, JobReply
from facetline.facets.search.selection import selection_of

NEEDS: Mapping[Extra, Right] = {"sql": "sql", "write": "write", "delete": "write", "reindex": "admin"}
"""The right that each optional tool requires."""
SQL_TIMEOUT_MS = 5_000
WRITE_TIMEOUT_S = 10.0
KNOWN_MS = 5_000
PATIENCE_S = 2.0
"""How long to wait for a view that is being built; short, because the call holds a slot. A local agent waits longer."""
LOOK_EVERY_S = 0.1
T = TypeVar("T")


class ToolBackend(Protocol):
    """What tools need of a backend. Raises only `errors.PipelineError`s; returns the JSON objects of docs/api.md.

    `rights` None: unknown here, the server checks them. `scope` None: none, or unknown.
    """

    @property
    def rights(self) -> frozenset[Right] | None:
        """The caller's rights."""

    @property
    def scope(self) -> str | None:
        """The caller's scope."""

    async def definitions(self) -> Definitions:
        """Return the definitions that agents may read: those with `llm_readable`."""

    async def collections(self) -> list[dict[str, Any]]:
        """Return the collections that agents may read."""

    async def search(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Search; the fields are a `Selection`'s."""

    async def get(self, uri: str) -> dict[str, Any]:
        """Return a document."""

    async def sql(self, text: str, limit: int) -> dict[str, Any]:
        """Run a statement over the collections that agents may read."""

    async def write(self, uri: str, body: str | None, state: dict[str, Any] | None) -> dict[str, Any]:
        """Write a document and wait until it is applied."""

    async def delete(self, uri: str) -> dict[str, Any]:
        """Delete a document."""

    async def known(self, collection: str, token: str) -> None:
        """Wait until searches include the write of a token.

        Raises:
            NotCaughtUp: they do not within `KNOWN_MS`.
        """

    async def reindex(self, request: ReindexRequest, *, dry_run: bool) -> JobReply | JobPlan:
        """Start or join a job, or return the estimate of a dry run."""

    async def job(self, job_id: str) -> JobReply:
        """Return a job."""


def readable(definitions: Definitions) -> Definitions:
    """Return the definitions that agents may read."""
    return Definitions(each for each in definitions.by_name.values() if each.llm_readable)


@dataclass(frozen=True, slots=True)
class LocalToolBackend:
    """A backend in this process, for one caller; waits up to `patience_s` seconds for views that are being built."""

    node: Backend
    caller: Caller
    patience_s: float = PATIENCE_S

    @property
    def rights(self) -> frozenset[Right]:
        """The caller's rights."""
        return self.caller.rights

    @property
    def scope(self) -> str | None:
        """The caller's scope."""
        return self.caller.scope

    async def definitions(self) -> Definitions:
        """Return the definitions that agents may read."""
        return readable(await self.node.definitions(self.caller))

    async def collections(self) -> list[dict[str, Any]]:
        """Return the collections that agents may read."""
        return await self._when_built(lambda: self.node.collections(self.caller, agents=True))

    async def search(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Search."""
        selection = selection_of(fields)
        return await self._when_built(lambda: self.node.search(self.caller, selection))

    async def get(self, uri: str) -> dict[str, Any]:
        """Return a document."""
        return await self.node.get(self.caller, uri)

    async def sql(self, text: str, limit: int) -> dict[str, Any]:
        """Run a statement."""
        return await self._when_built(
            lambda: self.node.sql(self.caller, text, {}, limit=limit, timeout_ms=SQL_TIMEOUT_MS, agents=True)
        )

    async def write(self, uri: str, body: str | None, state: dict[str, Any] | None) -> dict[str, Any]:
        """Write a document."""
        return await self.node.write(
            self.caller, uri, body=body, state=state, event_id=None, wait="applied", timeout_s=WRITE_TIMEOUT_S
        )

    async def delete(self, uri: str) -> dict[str, Any]:
        """Delete a document."""
        return await self.node.delete(self.caller, uri, event_id=None, wait="applied", timeout_s=WRITE_TIMEOUT_S)

    async def known(self, collection: str, token: str) -> None:
        """Wait until searches include the write of a token."""
        await self.node.search(
            self.caller, selection_of({"collection": collection, "limit": 1}), Freshness((token,), KNOWN_MS)
        )

    async def reindex(self, request: ReindexRequest, *, dry_run: bool) -> JobReply | JobPlan:
        """Start or join a job, or return the estimate of a dry run."""
        if dry_run:
            return await self.node.plan(self.caller, request)
        return await self.node.reindex(self.caller, request)

    async def job(self, job_id: str) -> JobReply:
        """Return a job."""
        return await self.node.job(self.caller, job_id)

    async def _when_built(self, ask: Callable[[], Awaitable[T]]) -> T:
        ends = time.monotonic() + self.patience_s
        while True:
            try:
                return await ask()
            except errors.NotCaughtUp:
                if time.monotonic() >= ends:
                    raise
            await asyncio.sleep(LOOK_EVERY_S)
