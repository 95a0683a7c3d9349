"""Callers, pipeline status, health and metrics of the node (`facets.backend.StatusBackend`)."""

import hmac
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from facetline.facets.backend import LOCAL, NOW, Caller, Check
from facetline.storage import credentials
from facetline.streams.serve import health, overview, rights
from facetline.streams.serve import metrics as node_metrics
from facetline.streams.serve.node_base import NodeBase

if TYPE_CHECKING:
    from facetline.streams.monitor.observer import Observer
    from facetline.streams.pipeline import Pipeline

TOKEN_CHARS_MAX = 512
NEW_TOKEN_S = 1.0
"""How long an unknown token waits for the next refresh of the views, which happens four times a second."""


class StatusNode(NodeBase):
    """Authenticates callers and reports on the pipeline and the process."""

    observer: "Observer | None" = None
    """Reads a worker's metrics from the store, where this process runs the side chain; set by `open_node`."""

    async def authenticate(self, token: str | None) -> Caller | None:
        """Return the caller of a token, or None. Tokens are compared by hash, so timing reveals nothing.

        An unknown token may have been created a moment ago: the next refresh of the views is waited for, which costs a
        guessing client a quarter of a second, and the store nothing.
        """
        if token is None:
            return LOCAL if self._loopback and not self.views.known.has_credentials else None
        given = credentials.digest(token[:TOKEN_CHARS_MAX])
        if hmac.compare_digest(given, self._secret):
            return rights.COMMAND
        found = self.views.known.by_digest.get(given)
        if found is None:
            await self.views.looked_since(NEW_TOKEN_S)
            found = self.views.known.by_digest.get(given)
        if found is None:
            return None
        return Caller(found.id, frozenset(found.rights), found.scope)  # type: ignore[arg-type]

    async def needs_tokens(self) -> bool:
        """Say whether requests without a token are refused."""
        return not self._loopback or self.views.known.has_credentials

    async def strip(self, caller: Caller, collection: str) -> dict[str, Any]:
        """Return the pipeline strip of one collection."""
        rights.need(caller, "read")
        definition = self._definition(caller, collection)
        await self._reached(caller, definition.name, NOW)
        return await overview.strip(self.pipeline, self.views, definition, caller)

    async def failures(self, caller: Caller, collection: str, *, limit: int) -> list[dict[str, Any]]:
        """Return failed documents, those written last first."""
        rights.need(caller, "read")
        definition = self._definition(caller, collection)
        await self._reached(caller, definition.name, NOW)
        return await overview.failures(self.pipeline, self.views, definition, caller, limit)

    async def alive(self) -> Sequence[Check]:
        """Return the checks of `/livez`."""
        work = self.pipeline.work
        dead = [] if work is None else [task.get_name() for task in work.tasks if task.done()]
        return health.alive(self.views, self._follows, [] if self.state.stopping else dead)

    async def ready(self) -> Sequence[Check]:
        """Return the checks of `/readyz`."""
        return await health.ready(self.pipeline, self.views, self.state, following=self._follows)

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics page and its content type."""
        found = {}
        for name, definition in self.views.known.definitions.by_name.items():
            if name not in self.views.unbuilt():
                found[name] = (await overview.counts(self.views, definition, None))["counts"]
        work = None if self.observer is None else (self.observer.members, await self.observer.look_closely())
        return node_metrics.rendered(node_metrics.page(self.views, self.measures, found, work), accept)


def observer_of(pipeline: "Pipeline") -> "Observer | None":
    """Return the observer for a worker's metrics, or None if this process does not run the side chain."""
    if pipeline.work is None or pipeline.project is None:
        return None
    from facetline.streams.monitor.observer import Observer
    from facetline.streams.monitor.worker_state import (
        Members,  # a worker's parts know Kafka's clients, which are slow to import
    )

    members = Members(pipeline.settings, pipeline.project, store=pipeline.store, work=pipeline.work)
    return Observer(members, documents=False)
