"""Put the texts of documents beside what a search found of them: into hits, rows and exports, when they are asked for.

A view holds no texts, so they come from the store, which may be newer. A text is shown only with the answers to it: of
a document that was written again meanwhile it is null.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from facetline.facets.backend import Rows
from facetline.facets.errors import InvalidQuery
from facetline.facets.export.parquet import BODY, Text
from facetline.facets.search.selection import Selection
from facetline.storage.db.engine import Store
from facetline.storage.log import documents

HITS_MAX = 50
"""Hits of a page with texts: 25 MiB, where each is as long as it may be."""
ROWS_AT_ONCE = 100
"""Texts that are held at once while all rows of a search are read."""

Read = Callable[[Sequence[str]], Awaitable[Mapping[str, tuple[int, str]]]]
"""Returns revision and body of the documents with these uris, out of the store."""


def wanted(selection: Selection) -> bool:
    """Whether hits carry their texts.

    Raises:
        InvalidQuery: with so long a page they would be too long a reply.
    """
    if "body" not in selection.fields:
        return False
    if selection.limit > HITS_MAX:
        raise InvalidQuery(f"limit is {selection.limit}; with fields=body it goes from 1 to {HITS_MAX}")
    return True


async def beside_hits(reply: dict[str, Any], read: Read) -> dict[str, Any]:
    """Return a search's reply with the text of each hit as its `body`."""
    found = await read([hit["uri"] for hit in reply["hits"]])
    hits = [{**hit, "body": _body(found.get(hit["uri"]), hit["revision"])} for hit in reply["hits"]]
    return {**reply, "hits": hits}


class RowsWithTexts:
    """Rows of a search with one column more, `doc_body`."""

    def __init__(self, rows: Rows, read: Read) -> None:
        self._rows = rows
        self._read = read
        self.columns: Sequence[str] = (*rows.columns, BODY)
        self.total = rows.total
        self.token = rows.token

    async def pages(self) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
        """Yield the rows in small pages: texts may be long."""
        async for page in self._rows.pages():
            for start in range(0, len(page), ROWS_AT_ONCE):
                rows = page[start : start + ROWS_AT_ONCE]
                found = await self._read([row["doc_uri"] for row in rows])
                yield [{**row, BODY: _body(found.get(row["doc_uri"]), row["doc_revision"])} for row in rows]

    async def aclose(self) -> None:
        """Give the snapshot up."""
        await self._rows.aclose()


def stored(store: Store, collections: Sequence[str]) -> Iterator[Text]:
    """Return the texts of collections one by one, for a thread to read while this event loop runs."""
    loop = asyncio.get_running_loop()

    def read(after: str) -> list[tuple[str, str, int, str]]:
        reading = store.read(documents.bodies_behind, collections, after, ROWS_AT_ONCE)
        return asyncio.run_coroutine_threadsafe(reading, loop).result()

    return _paged(read)


def _paged(read: Callable[[str], list[tuple[str, str, int, str]]]) -> Iterator[Text]:
    after = ""
    while page := read(after):
        for row in page:
            yield Text(*row)
        after = page[-1][1]


def _body(found: tuple[int, str] | None, revision: int) -> str | None:
    return found[1] if found is not None and found[0] == revision else None
