"""Streams of rows as CSV and NDJSON: page by page from one snapshot, in bounded memory.

CSV is safe for spreadsheets (`facets.export.spreadsheet`); NDJSON has the exact values.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from facetline.facets.api import problems
from facetline.facets.api.routing import Service
from facetline.facets.backend import NOW, Caller, Freshness, Rows
from facetline.facets.export import spreadsheet
from facetline.facets.search.selection import Selection

CSV = "text/csv"
NDJSON = "application/x-ndjson"

Page = Sequence[Mapping[str, Any]]


async def opened(
    service: Service,
    caller: Caller,
    selection: Selection,
    freshness: Freshness = NOW,
    *,
    media: str = CSV,
    most: int | None = None,
) -> tuple[Rows, AsyncIterator[bytes]]:
    """Return all hits of a selection and their text (see `chunks`); a slot is held until the text ends.

    Raises:
        Problem: `busy`.
    """
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(service.streams.one(caller.name))
        rows = await service.node.rows(caller, selection, freshness)
        held = stack.pop_all()

    async def text() -> AsyncIterator[bytes]:
        async with held:
            async for chunk in chunks(rows, media, most=most, limit_s=service.limits.stream_s):
                yield chunk

    return rows, text()


async def chunks(rows: Rows, media: str, *, most: int | None, limit_s: float) -> AsyncIterator[bytes]:
    """Yield at most `most` rows as text; release the snapshot at the end, or after `limit_s` seconds.

    Raises:
        TimeoutError: the time limit is reached; the reply ends early, which the client detects.
    """
    write = _csv_page(rows.columns) if media == CSV else _ndjson_page
    ends = asyncio.get_running_loop().time() + limit_s
    left = rows.total if most is None else most
    try:
        if media == CSV:
            yield csv_text([rows.columns])
        pages = rows.pages()
        while left > 0:
            async with asyncio.timeout_at(ends):
                page = await anext(pages, None)
            if page is None:
                break
            yield write(page[:left])
            left -= len(page)
    finally:
        await rows.aclose()


def csv_text(rows: Iterable[Iterable[Any]]) -> bytes:
    """Return rows as CSV (RFC 4180), safe for spreadsheets."""
    return spreadsheet.csv_text(map(plain, row) for row in rows).encode(errors="replace")


def plain(value: Any) -> Any:
    """Return a value for JSON; a timestamp as RFC 3339 in UTC."""
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return moment.isoformat().replace("+00:00", "Z")
    return value


def _csv_page(columns: Sequence[str]) -> Callable[[Page], bytes]:
    return lambda page: csv_text([row.get(name) for name in columns] for row in page)


def _ndjson_page(page: Page) -> bytes:
    return b"".join(problems.encoded({name: plain(value) for name, value in row.items()}) + b"\n" for row in page)
