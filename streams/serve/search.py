"""Collections and searches of the node (`facets.backend.SearchBackend`)."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from facetline.facets import documents
from facetline.facets.backend import NOW, Caller, Freshness, Rows
from facetline.facets.definitions import Definition, Definitions
from facetline.facets.search.selection import Selection
from facetline.storage.log import documents as documents_
from facetline.streams.serve import overview, rights
from facetline.streams.serve.node_base import NodeBase
from facetline.streams.serve.row_streams import RowStreams
from facetline.streams.serve.sql import Kind
from facetline.streams.views import texts


class SearchNode(NodeBase):
    """Answers searches and SQL from the views; only texts come from the store."""

    @cached_property
    def _row_streams(self) -> RowStreams:
        return RowStreams(self.views)

    async def definitions(self, caller: Caller) -> Definitions:
        """Return the active definitions that the caller sees."""
        return rights.visible(self.views.known.definitions, caller)

    async def collections(self, caller: Caller, *, agents: bool = False) -> list[dict[str, Any]]:
        """Return every collection that the caller sees, with `agents` those that agents may."""
        rights.need(caller, "read")
        seen = rights.visible(self.views.known.definitions, caller).by_name
        return [await self._collection(caller, each) for each in seen.values() if each.llm_readable or not agents]

    async def collection(self, caller: Caller, name: str) -> dict[str, Any]:
        """Return a collection with its counts."""
        rights.need(caller, "read")
        return await self._collection(caller, self._definition(caller, name))

    async def _collection(self, caller: Caller, definition: Definition) -> dict[str, Any]:
        await self._reached(caller, definition.name, NOW)
        async with self._measured("counts"):
            found = await overview.counts(self.views, definition, caller.scope)
        return {**overview.shown(definition), **found}

    async def search(self, caller: Caller, selection: Selection, freshness: Freshness = NOW) -> dict[str, Any]:
        """Return a search's reply (docs/search.md) without its links, from the latest snapshot that is new enough."""
        selection = self._selection(caller, selection)
        await self._reached(caller, selection.collection, freshness)
        with_texts = texts.wanted(selection)
        async with self._measured("search"), self.views.using(selection.collection) as live:
            reply = await self.views.read(live.view.search, selection)
        return await texts.beside_hits(reply, self._texts) if with_texts else reply

    async def grep(
        self, caller: Caller, selection: Selection, freshness: Freshness = NOW, *, limit: int, context: int = 0
    ) -> dict[str, Any]:
        """Return the first lines with the selection's pattern, and how many documents have such lines."""
        selection = self._selection(caller, selection)
        await self._reached(caller, selection.collection, freshness)
        async with self._measured("grep"), self.views.using(selection.collection) as live:
            return await self.views.read(live.view.grep, selection, limit=limit, context=context)

    async def uris(self, caller: Caller, selection: Selection, freshness: Freshness = NOW, *, limit: int) -> list[str]:
        """Return the first selected uris, in order."""
        selection = self._selection(caller, selection)
        await self._reached(caller, selection.collection, freshness)
        async with self._measured("glob"), self.views.using(selection.collection) as live:
            return await self.views.read(live.view.uris, selection, limit=limit)

    async def beginnings(self, caller: Caller, uris: Sequence[str], *, chars: int) -> dict[str, tuple[int, str]]:
        """Return how documents begin, in one read of the store; those of other scopes are not there."""
        rights.need(caller, "read")
        seen = [uri for uri in uris if caller.scope is None or documents.parse_uri(uri).scope == caller.scope]
        found: dict[str, tuple[int, str]] = await self._stored(documents_.beginnings, seen, chars)
        return found

    async def rows(self, caller: Caller, selection: Selection, freshness: Freshness = NOW) -> Rows:
        """Return all that a selection finds, of one snapshot; its view stays until the rows are closed."""
        selection = self._selection(caller, selection)
        await self._reached(caller, selection.collection, freshness)
        async with self._measured("rows"):
            rows = await self._row_streams.open(selection)
        return texts.RowsWithTexts(rows, self._texts) if "body" in selection.fields else rows

    async def _texts(self, uris: Sequence[str]) -> Mapping[str, tuple[int, str]]:
        found: dict[str, tuple[int, str]] = await self._stored(documents_.bodies, uris)
        return found

    async def sql_of(self, caller: Caller, selection: Selection) -> str:
        """Return the statement that counts what the selection finds."""
        selection = self._selection(caller, selection)
        await self._reached(caller, selection.collection, NOW)
        async with self.views.using(selection.collection) as live:
            return await self.views.read(live.view.sql_of, selection)

    async def sql(
        self,
        caller: Caller,
        text: str,
        params: Mapping[str, Any],
        *,
        limit: int,
        timeout_ms: int,
        agents: bool = False,
        with_texts: bool = False,
    ) -> dict[str, Any]:
        """Run one read-only statement in a child process."""
        rights.need(caller, "sql", everywhere=True)
        for name in self.views.known.definitions.by_name:
            await self._reached(caller, name, NOW)
        async with self._measured("sql"):
            kind = Kind(agents=agents, texts=with_texts)
            return await self._statements.run(text, params, limit=limit, timeout_ms=timeout_ms, kind=kind)
