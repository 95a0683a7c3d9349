"""A node that answers as it is told: for what is about HTTP alone. The real one is in `serving`."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import builders

from facetline.facets.backend import LOCAL, NOW, Caller, Check, Freshness, ReindexRequest
from facetline.facets.definitions import Definitions
from facetline.facets.search.selection import Selection

ROWS_A_PAGE = 100
DOCUMENT = {
    "uri": "tickets/t1",
    "key": "t1",
    "body": "I was charged twice",
    "state": {"title": "Charged"},
    "facets": {"topic": {"type": "choice", "choice": "billing", "confidence": 0.9}},
    "version": 2,
    "revision": 1,
    "indexed_as": 1,
    "status": "indexed",
    "reason": None,
    "evaluation": None,
    "calls": {"made": 1, "retries": 0, "crashes": 0},
    "token": "t-document",
}
WRITTEN = {name: DOCUMENT[name] for name in ("uri", "version", "revision", "indexed_as", "status", "facets", "reason")}
JOB = {"id": "j1", "state": "running", "progress": 0.5, "reindexed": [], "failed": []}

LETTER = {
    "id": 1,
    "reason": "not_json",
    "message": "send JSON",
    "uri": None,
    "topic": "local",
    "incarnation": 1,
    "partition": 0,
    "offset": 7,
    "stage": "decode",
    "attempts": 1,
    "state": "open",
    "handled_at": None,
    "created_at": "2026-01-01T00:00:00.000Z",
    "handled_by": None,
    "key": None,
}


class Rows:
    """Rows of one snapshot: `total` of them, each `width` characters."""

    columns = ("doc_uri", "topic", "state_title")
    token = "t-rows"

    def __init__(self, total: int, width: int = 10) -> None:
        self.total = total
        self._width = width
        self.given = 0
        self.closed = asyncio.Event()

    async def pages(self) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
        """Return the rows, page by page."""
        while self.given < self.total:
            await asyncio.sleep(0)  # as a page of a real snapshot comes from a thread
            page = range(self.given, min(self.total, self.given + ROWS_A_PAGE))
            self.given += len(page)
            yield [{"doc_uri": f"tickets/t{n}", "topic": "billing", "state_title": "x" * self._width} for n in page]

    async def aclose(self) -> None:
        """Give the snapshot up."""
        self.closed.set()


class Given:
    """These rows."""

    token = "t-rows"

    def __init__(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        self.columns = columns
        self.total = len(rows)
        self._rows = rows

    async def pages(self) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
        """Return the rows as one page."""
        yield self._rows

    async def aclose(self) -> None:
        """Do nothing."""


class ScriptedNode:
    """Answers with the same few documents.

    `fails` is raised by every method that reads or writes; `callers` are the tokens, none: everybody is `LOCAL`. While
    `hold` is set, what reads and writes waits for it; `held` counts who does, `canceled` who was told to stop.
    """

    def __init__(self) -> None:
        self.callers: dict[str, Caller] = {}
        self.fails: Exception | None = None
        self.hold: asyncio.Event | None = None
        self.held = 0
        self.most_held = 0
        self.canceled = 0
        self.asked: list[tuple[str, Any]] = []
        self.rows_: Rows | Given = Rows(3)
        self.written: dict[str, Any] = {}
        self.total = 1
        self.position = 0
        self.checks: list[Check] = [Check("store", "ok", "fine")]

    async def authenticate(self, token: str | None) -> Caller | None:
        """Return whose token it is."""
        if not self.callers:
            return LOCAL if token is None else None
        return self.callers.get(token or "")

    async def needs_tokens(self) -> bool:
        """Say whether there are tokens."""
        return bool(self.callers)

    async def definitions(self, caller: Caller) -> Definitions:
        """Return `tickets`."""
        return builders.definitions()

    async def collections(self, caller: Caller, *, agents: bool = False) -> list[dict[str, Any]]:
        """Return one collection."""
        return [await self.collection(caller, "tickets")]

    async def collection(self, caller: Caller, name: str) -> dict[str, Any]:
        """Return the collection."""
        await self._work("collection", name)
        return {"name": name, "pattern": "tickets/*", "scoped": False, "llm_readable": False, "questions": {},
                "fingerprint": "f", "counts": {}, "state": {}, "evaluator": "fake"}  # fmt: skip

    async def write(self, caller: Caller, uri: str, **given: Any) -> dict[str, Any]:
        """Return a write's reply."""
        await self._work("write", {"uri": uri, **given})
        if given["wait"] == "none":
            return {"uri": uri, "event_id": given["event_id"] or "e1", "token": "t-event"}
        return {**WRITTEN, "uri": uri, "token": "t-write", **self.written}

    async def delete(self, caller: Caller, uri: str, **given: Any) -> dict[str, Any]:
        """Return a delete's reply."""
        await self._work("delete", {"uri": uri, **given})
        return {"uri": uri, "version": 3, "indexed_as": 3, "status": "deleted", "token": "t-write"}

    async def get(self, caller: Caller, uri: str, freshness: Freshness = NOW) -> dict[str, Any]:
        """Return the document."""
        await self._work("get", {"uri": uri, "freshness": freshness})
        return {**DOCUMENT, "uri": uri, "token": self._token()}

    async def event(self, caller: Caller, event_id: str) -> dict[str, Any]:
        """Return an event."""
        await self._work("event", event_id)
        return {"event_id": event_id, "uri": "tickets/t1", "outcome": "applied", "reason": None, "version": 1,
                "revision": 1, "indexed_as": 1}  # fmt: skip

    async def search(self, caller: Caller, selection: Selection, freshness: Freshness = NOW) -> dict[str, Any]:
        """Return one hit."""
        await self._work("search", {"selection": selection, "freshness": freshness})
        hit = {name: DOCUMENT[name] for name in ("uri", "key", "version", "revision", "indexed_as", "status", "facets",
                                                 "state")}  # fmt: skip
        return {"keys": ["t1"], "hits": [hit], "total": self.total, "facets": [], "next_cursor": "c2",
                "as_of": {"token": self._token(), "pending": 0}, "took_ms": float(self.position)}  # fmt: skip

    async def grep(
        self, caller: Caller, selection: Selection, freshness: Freshness = NOW, *, limit: int, context: int = 0
    ) -> dict[str, Any]:
        """Return one line."""
        await self._work("grep", {"selection": selection, "freshness": freshness, "limit": limit, "context": context})
        line = {"uri": "tickets/t1", "line": 1, "snippet": "a line"}
        return {"lines": [line], "documents": 1, "truncated": False, "as_of": {"token": self._token()}}

    async def uris(self, caller: Caller, selection: Selection, freshness: Freshness = NOW, *, limit: int) -> list[str]:
        """Return one uri."""
        await self._work("uris", {"selection": selection, "freshness": freshness, "limit": limit})
        return ["tickets/t1"]

    async def rows(self, caller: Caller, selection: Selection, freshness: Freshness = NOW) -> Rows | Given:
        """Return the rows."""
        await self._work("rows", {"selection": selection, "freshness": freshness})
        return self.rows_

    async def sql_of(self, caller: Caller, selection: Selection) -> str:
        """Return a statement."""
        return "SELECT count(*) FROM tickets"

    async def reindex(self, caller: Caller, request: ReindexRequest, *, key: str | None = None) -> dict[str, Any]:
        """Return a job."""
        await self._work("reindex", {"request": request, "key": key})
        return JOB

    async def plan(self, caller: Caller, request: ReindexRequest) -> dict[str, Any]:
        """Return a plan."""
        await self._work("plan", request)
        return {"dry_run": True, "documents": 3, "calls": 3, "tokens": None, "cost_usd": None}

    async def jobs(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the job."""
        await self._work("jobs", None)
        return [JOB]

    async def job(self, caller: Caller, job_id: str) -> dict[str, Any]:
        """Return the job."""
        await self._work("job", job_id)
        return JOB

    async def job_items(
        self, caller: Caller, job_id: str, *, status: str, cursor: str | None, limit: int
    ) -> dict[str, Any]:
        """Return no item."""
        await self._work("job_items", {"status": status, "cursor": cursor, "limit": limit})
        return {"items": [], "next_cursor": None}

    async def cancel(self, caller: Caller, job_id: str) -> dict[str, Any]:
        """Return the job."""
        await self._work("cancel", job_id)
        return {**JOB, "state": "canceled"}

    async def dead_letters(
        self, caller: Caller, *, reason: str | None, cursor: str | None, limit: int
    ) -> dict[str, Any]:
        """Return the letter."""
        await self._work("dead_letters", {"reason": reason, "cursor": cursor, "limit": limit})
        return {"dead_letters": [LETTER], "counts": {"not_json": 1}, "next_cursor": None}

    async def dead_letter(self, caller: Caller, letter_id: str) -> dict[str, Any]:
        """Return the letter with its record."""
        await self._work("dead_letter", letter_id)
        return {**LETTER, "value": None, "headers": [], "headers_total": 0}

    async def redrive(self, caller: Caller, letter_id: str) -> dict[str, Any]:
        """Return an outcome."""
        await self._work("redrive", letter_id)
        return {"id": 1, "outcome": "applied", "reason": None}

    async def discard(self, caller: Caller, letter_id: str) -> dict[str, Any]:
        """Return the letter."""
        await self._work("discard", letter_id)
        return {**LETTER, "state": "discarded"}

    async def strip(self, caller: Caller, collection: str) -> dict[str, Any]:
        """Return nothing."""
        return {}

    async def beginnings(self, caller: Caller, uris: Sequence[str], *, chars: int) -> dict[str, tuple[int, str]]:
        """Return none."""
        return {}

    async def failures(self, caller: Caller, collection: str, *, limit: int) -> list[dict[str, Any]]:
        """Return none."""
        return []

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
        """Return one row."""
        await self._work("sql", {"text": text, "params": params, "limit": limit, "timeout_ms": timeout_ms})
        return {"columns": ["a", "b"], "rows": [["=1+1", None]], "truncated": False, "as_of": "t-sql"}

    async def alive(self) -> Sequence[Check]:
        """Return the checks."""
        return self.checks

    async def ready(self) -> Sequence[Check]:
        """Return the checks."""
        return self.checks

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return one metric."""
        return b"up 1\n", "text/plain; version=0.0.4; charset=utf-8"

    def _token(self) -> str:
        self.position += 1
        return f"t-{self.position}"

    async def _work(self, what: str, given: Any) -> None:
        self.asked.append((what, given))
        if self.fails is not None:
            raise self.fails
        if self.hold is None:
            return
        self.held += 1
        self.most_held = max(self.held, self.most_held)
        try:
            await self.hold.wait()
        except asyncio.CancelledError:
            self.canceled += 1
            raise
        finally:
            self.held -= 1
