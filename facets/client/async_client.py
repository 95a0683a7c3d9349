"""Asynchronous Python client, with the same methods as `facets.client.client.Client`."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Literal, Self

import httpx

from facetline.facets import errors
from facetline.facets.client import base, calls
from facetline.facets.client.base import ENDED, JOB_POLL_S, TIMEOUT_S, Common, Facets, Wait, made
from facetline.facets.client.calls import Call, Lost, Pause, Reply, Waiting
from facetline.facets.client.memory import is_loopback
from facetline.facets.job_replies import JobItem, JobReply


class AsyncClient(Common):
    """Asynchronous client of one server, for one event loop. Close it with `aclose`, or use `async with`.

    Args:
        url: Such as `http://127.0.0.1:8080`.
        token: A token of `facetline token create`; None if the server has no tokens.
        timeout_s: Total time of a call with its retries, in addition to the time that the server is asked to wait.
        remembers: Whether searches include this client's last 15 writes.
        transport: Replaces httpx's transport, for tests.

    Raises (all methods): only `errors.PipelineError`s; `errors.ServerUnavailable` if the server does not answer.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        remembers: bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(url, token, timeout_s, remembers=remembers)
        self._http = httpx.AsyncClient(transport=transport, trust_env=not is_loopback(self.url))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def search(self, collection: str, facets: Facets | None = None, **options: Any) -> dict[str, Any]:
        """Search: `await client.search("tickets", {"topic": ["billing"]}, min_confidence=0.8)`.

        Options: `min_confidence`, `filter`, `sort`, `limit`, `cursor`, `counts`, `scope`, `fields`, `at_least`,
        `wait_ms`, and others of docs/api.md.
        """
        try:
            reply = await self._call(self.searching(collection, facets, options))
        except errors.InvalidCursor:
            if not self.memory.for_search(collection):
                raise
            # The caller's cursor or our tokens may be wrong. If it works without our tokens, the store was replaced.
            reply = await self._call(self.searching(collection, facets, options, remembered=False))
            self.memory.forget()
        return self.memory.found(collection, reply)

    async def grep(self, collection: str, pattern: str, facets: Facets | None = None, **options: Any) -> dict[str, Any]:
        r"""Find lines: `await client.grep("tickets", r"ORD-\d+", {"topic": ["billing"]}, context=1)`.

        Options: `ignore_case`, `glob`, `filter`, `scope`, `limit`, `context`, and others of docs/text-search.md.
        """
        return dict(await self._call(self.over_texts(collection, "grep", pattern, facets, options)))

    async def glob(
        self, collection: str, pattern: str | None = None, facets: Facets | None = None, **options: Any
    ) -> dict[str, Any]:
        """List uris: `await client.glob("docs", "guides/**/*.md", limit=1000)`."""
        return dict(await self._call(self.over_texts(collection, "glob", pattern, facets, options)))

    async def rows(
        self, collection: str, facets: Facets | None = None, *, limit: int | None = None, **options: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Iterate over all hits of a search, or the first `limit`, page by page, each page in its current state.

        Documents written meanwhile may be included. A document whose sort key changes meanwhile may appear twice or not
        at all: sort by a column that does not change (the default order) to get each once.
        """
        wanted = calls.wanted(limit, options)
        while wanted.page:
            page = await self.search(collection, facets, **{**options, "limit": wanted.page, "cursor": wanted.cursor})
            for hit in page["hits"]:
                yield hit
            wanted = wanted.after(page)

    async def get(self, uri: str) -> dict[str, Any]:
        """Return a document with its text, state and answers."""
        call = Call("GET", calls.document(uri), self.memory.params_of(uri))
        return self.memory.written(uri, await self._call(call))

    async def write(
        self,
        uri: str,
        *,
        body: str | None = None,
        state: Mapping[str, Any] | None = None,
        event_id: str | None = None,
        wait: Wait = "answered",
        timeout_s: float = 60.0,
    ) -> dict[str, Any]:
        """Write a document; a body or state that is None stays unchanged.

        With `wait="answered"` the reply has this write's facets, or `status: pending` after `timeout_s` seconds.
        """
        call = calls.write(uri, body, state, event_id or str(uuid.uuid4()), Waiting(wait, timeout_s))
        return self.memory.written(uri, await self._call(call))

    async def delete(
        self, uri: str, *, event_id: str | None = None, wait: Wait = "applied", timeout_s: float = 10.0
    ) -> dict[str, Any]:
        """Delete a document; succeeds if it does not exist."""
        waiting = Waiting(wait, timeout_s)
        key = event_id or str(uuid.uuid4())
        call = Call("DELETE", calls.document(uri), waiting.params, key=key, wait_s=timeout_s)
        return self.memory.written(uri, await self._call(call))

    async def event(self, event_id: str) -> dict[str, Any]:
        """Return the outcome of a write."""
        return await self._object(Call("GET", f"/v1/events/{calls.part(event_id)}"))

    async def collections(self) -> list[dict[str, Any]]:
        """Return the collections with their questions and counts."""
        found: list[dict[str, Any]] = (await self._object(Call("GET", "/v1/collections")))["collections"]
        return found

    async def collection(self, name: str) -> dict[str, Any]:
        """Return one collection."""
        return await self._object(Call("GET", f"/v1/collections/{calls.part(name)}"))

    async def reindex(
        self,
        collection: str,
        *,
        wait: bool = True,
        timeout_s: float | None = None,
        key: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Classify documents again in a job, and return it when it has ended; immediately with `wait=False`.

        Options: `outdated`, `force`, `filter`, `scope`; with `dry_run=True` nothing is started, and the reply is an
        estimate. After `timeout_s` seconds the job is returned in its current state and continues.
        """
        job = await self._object(base.reindex(collection, key or str(uuid.uuid4()), options))
        ends = None if timeout_s is None else time.monotonic() + timeout_s
        while wait and not options.get("dry_run") and job["state"] not in ENDED:
            left = JOB_POLL_S if ends is None else min(JOB_POLL_S, ends - time.monotonic())
            if left <= 0:
                break
            await asyncio.sleep(left)
            job = await self._object(base.job(job["id"]))
        return job

    async def jobs(self) -> list[JobReply]:
        """Return the newest jobs, newest first."""
        found: list[JobReply] = (await self._object(Call("GET", "/v1/jobs")))["jobs"]
        return found

    async def job(self, job_id: str) -> JobReply:
        """Return a job with its progress."""
        found: JobReply = await self._call(base.job(job_id))
        return found

    async def job_items(self, job_id: str, *, status: str = "failed") -> AsyncIterator[JobItem]:
        """Iterate over all documents of a job with this status."""
        cursor = None
        while True:
            page = await self._object(base.items(job_id, status, cursor))
            for item in page["items"]:
                yield item
            cursor = page["next_cursor"]
            if cursor is None:
                return

    async def cancel(self, job_id: str) -> JobReply:
        """Cancel a job; answers made so far are kept."""
        found: JobReply = await self._call(Call("POST", f"/v1/jobs/{calls.part(job_id)}/cancel"))
        return found

    async def dead_letters(self, *, reason: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """Iterate over all open dead letters, newest first."""
        cursor = None
        while True:
            page = await self._object(base.dead_letters(reason, cursor))
            for letter in page["dead_letters"]:
                yield letter
            cursor = page["next_cursor"]
            if cursor is None:
                return

    async def dead_letter(self, letter_id: int) -> dict[str, Any]:
        """Return a dead letter with its record."""
        return await self._object(base.dead_letter(letter_id))

    async def redrive(self, letter_id: int) -> dict[str, Any]:
        """Send a dead letter again, and return the outcome."""
        return await self._object(base.dead_letter(letter_id, "redrive"))

    async def discard(self, letter_id: int) -> dict[str, Any]:
        """Close a dead letter permanently without sending it, and return it."""
        return await self._object(base.dead_letter(letter_id, "discard"))

    async def sql(
        self,
        text: str,
        params: Mapping[str, Any] | None = None,
        *,
        limit: int = 1_000,
        timeout_ms: int = 5_000,
        agents: bool = False,
        fields: Literal["body"] | None = None,
    ) -> dict[str, Any]:
        """Run one SELECT; `agents`: only over collections that agents may read.

        With `fields="body"` the tables of collections include the texts of documents as `doc_body`.
        """
        return await self._object(base.sql(text, params, limit, timeout_ms, agents=agents, fields=fields))

    async def _object(self, call: Call) -> dict[str, Any]:
        found: dict[str, Any] = await self._call(call)
        return found

    async def _call(self, call: Call) -> Any:
        steps = calls.talk(call, self.patience(call), time.monotonic)
        step = next(steps)
        while True:
            try:
                step = steps.send(await self._done(step))
            except StopIteration as ended:
                return ended.value

    async def _done(self, step: Call | Pause) -> Reply | Lost | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            return made(await self._http.request(**self.request(step)))
        except httpx.TransportError as error:
            return self.lost(error)
