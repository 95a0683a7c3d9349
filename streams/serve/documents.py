"""Documents, events and dead letters of the node (`facets.backend.DocumentBackend`)."""

from collections.abc import Awaitable, Callable
from typing import Any

from facetline.facets import documents, errors, tokens
from facetline.facets.backend import NOW, Caller, Freshness, Wait
from facetline.storage.log import documents as documents_
from facetline.storage.log import outcomes
from facetline.streams.pipeline import shown
from facetline.streams.replay import dead_letters as letters
from facetline.streams.serve import rights
from facetline.streams.serve.node_base import NodeBase
from facetline.streams.views import consistency


class DocumentNode(NodeBase):
    """Writes and reads documents; reads come from the store of record."""

    async def write(
        self,
        caller: Caller,
        uri: str,
        *,
        body: str | None,
        state: dict[str, Any] | None,
        event_id: str | None,
        wait: Wait,
        timeout_s: float,
    ) -> dict[str, Any]:
        """Write a document under the caller's source."""
        write = self.pipeline.write
        return await self._sent(
            caller, uri, write, body=body, state=state, event_id=event_id, wait=wait, timeout_s=timeout_s
        )

    async def delete(
        self, caller: Caller, uri: str, *, event_id: str | None, wait: Wait, timeout_s: float
    ) -> dict[str, Any]:
        """Delete a document under the caller's source."""
        return await self._sent(caller, uri, self.pipeline.delete, event_id=event_id, wait=wait, timeout_s=timeout_s)

    async def _sent(
        self, caller: Caller, uri: str, send: Callable[..., Awaitable[dict[str, Any]]], **given: Any
    ) -> dict[str, Any]:
        """Have the pipeline send a caller's event; the views look at what came of it at once."""
        rights.need(caller, "write")
        rights.check_uri(uri, caller)
        active = rights.visible(self.views.known.definitions, caller)
        try:
            return await send(uri, **given, source=self._source(caller), active=active)
        finally:
            self.views.wake()

    async def get(self, caller: Caller, uri: str, freshness: Freshness = NOW) -> dict[str, Any]:
        """Return a document whole, from the store of record: nothing is newer."""
        rights.need(caller, "read")
        rights.check_uri(uri, caller)
        wanted = self._tokens(caller, freshness)
        await consistency.applied(self.pipeline.store, wanted, freshness.wait_ms)
        found = await self._stored(documents_.get, uri)
        if found is None or found.status is documents.Status.DELETED:
            raise rights.no_document(uri)
        token = tokens.WriteToken(self.pipeline.store.store_id, uri, found.version)
        return {**shown(found, self.views.known.definitions), "token": tokens.encode(token)}

    async def event(self, caller: Caller, event_id: str) -> dict[str, Any]:
        """Return what became of an event of this caller's source."""
        found = await self._stored(outcomes.find, self._source(caller), event_id)
        if found is None:
            if self.pipeline.settings.runtime == "local":  # an event that was logged has its outcome
                raise errors.NotFound(f"no event {event_id[:80]!r} of this token")
            return {"event_id": event_id, "uri": None, "outcome": "pending"}
        numbers = {"version": found.version, "revision": found.revision, "indexed_as": found.indexed_as}
        fields = {"reason": found.reason, "message": found.message}
        return {"event_id": event_id, "uri": found.uri, "outcome": found.outcome, **fields, **numbers}

    async def dead_letters(
        self, caller: Caller, *, reason: str | None, cursor: str | None, limit: int
    ) -> dict[str, Any]:
        """Return a page of the letters that wait, the newest first."""
        self._check_admin(caller)
        return await letters.page(self.pipeline.store, reason=reason, cursor=cursor, limit=limit)

    async def dead_letter(self, caller: Caller, letter_id: str) -> dict[str, Any]:
        """Return one letter with its record."""
        self._check_admin(caller)
        return letters.shown(await letters.one(self.pipeline.store, letter_id))

    async def redrive(self, caller: Caller, letter_id: str) -> dict[str, Any]:
        """Send a letter again; the views look at what came of it at once."""
        self._check_admin(caller)
        try:
            return await letters.redrive(self.pipeline, letter_id, caller.name)
        finally:
            self.views.wake()

    async def discard(self, caller: Caller, letter_id: str) -> dict[str, Any]:
        """Discard a letter: close it without sending it."""
        self._check_admin(caller)
        return await letters.discard(self.pipeline.store, letter_id, caller.name)
