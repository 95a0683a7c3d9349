"""The Python client, to be awaited. `facets.client.client` says what it does; the two have the same methods."""

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


class AsyncClient(Common):
    """Talks to one server, in one event loop. Closed by `aclose`, or at the end of an `async with`.

    Args:
        url: Such as `http://127.0.0.1:8080`.
        token: What `facetline token create` showed; None where the server has no tokens.
        timeout_s: How long a call is tried in all, beside what it asks the server to wait.
        remembers: Whether searches are to know this client's last 16 writes.
        transport: In place of httpx's own, for tests.

    Raises (every method): `errors.PipelineError`s alone, `errors.ServerUnavailable` when no answer comes.
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
        `wait_ms`, and
        the others of docs/api.md.
        """
        try:
            reply = await self._call(self.searching(collection, facets, options))
        except errors.InvalidCursor:
            if not self.memory.for_search(collection):
                raise
            # The caller's cursor, or our tokens? If it is right without them, the store is another one than it was.
            reply = await self._call(self.searching(collection, facets, options, remembered=False))
            self.memory.forget()
        return self.memory.found(collection, reply)

    async def rows(
        self, collection: str, facets: Facets | None = None, *, limit: int | None = None, **options: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Return the hits of a search, page after page, each as it then is: all of them, or the first `limit`.

        What is written meanwhile may be among them. A document whose place in the order changes meanwhile may come
        twice or not at all: sort by what does not change (as without `sort`) to have each once.
        """
        wanted = calls.wanted(limit, options)
        while wanted.page:
            page = await self.search(collection, facets, **{**options, "limit": wanted.page, "cursor": wanted.cursor})
            for hit in page["hits"]:
                yield hit
            wanted = wanted.after(page)

    async def get(self, uri: str) -> dict[str, Any]:
        """Return a document whole."""
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
        """Write a document; a body or state that is None stays as it is.

        With `wait="answered"` the reply has this write's facets, or `status: pending` after `timeout_s`.
        """
        call = calls.write(uri, body, state, event_id or str(uuid.uuid4()), Waiting(wait, timeout_s))
        return self.memory.written(uri, await self._call(call))

    async def delete(
        self, uri: str, *, event_id: str | None = None, wait: Wait = "applied", timeout_s: float = 10.0
    ) -> dict[str, Any]:
        """Delete a document; an absent one is no error."""
        waiting = Waiting(wait, timeout_s)
        key = event_id or str(uuid.uuid4())
        call = Call("DELETE", calls.document(uri), waiting.params, key=key, wait_s=timeout_s)
        return self.memory.written(uri, await self._call(call))

    async def event(self, event_id: str) -> dict[str, Any]:
        """Return what became of a write that was not waited for."""
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
        """Ask again about documents, and return the job when it has ended; at once with `wait=False`.

        Options: `outdated`, `force`, `filter`, `scope`; with `dry_run=True` nothing is started, and the reply says what
        it would take. After `timeout_s` the job is returned as it stands; it goes on.
        """
        job = await self._object(base.reindex(collection, key or str(uuid.uuid4()), options))
        ends = None if timeout_s is None else time.monotonic() + timeout_s
        while wait and not options.get("dry_run") and job["state"] not in ENDED:
            left = JOB_POLL_S if ends is None else min(JOB_POLL_S, ends - time.monotonic())
            if left <= 0:
                break
            await asyncio.sleep(left)
            job = await self.job(job["id"])
        return job

    async def jobs(self) -> list[dict[str, Any]]:
        """Return the newest jobs, the newest first."""
        found: list[dict[str, Any]] = (await self._object(Call("GET", "/v1/jobs")))["jobs"]
        return found

    async def job(self, job_id: str) -> dict[str, Any]:
        """Return a job with its progress."""
        return await self._object(Call("GET", f"/v1/jobs/{calls.part(job_id)}"))

    async def job_items(self, job_id: str, *, status: str = "failed") -> AsyncIterator[dict[str, Any]]:
        """Return the documents of a job that ended so, all of them."""
        cursor = None
        while True:
            page = await self._object(base.items(job_id, status, cursor))
            for item in page["items"]:
                yield item
            cursor = page["next_cursor"]
            if cursor is None:
                return

    async def cancel(self, job_id: str) -> dict[str, Any]:
        """Cancel a job; what was asked again stays."""
        return await self._object(Call("POST", f"/v1/jobs/{calls.part(job_id)}/cancel"))

    async def dead_letters(self, *, reason: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """Return the dead letters that wait, newest first, all of them."""
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
        """Send a dead letter again, and return what became of it."""
        return await self._object(base.dead_letter(letter_id, "redrive"))

    async def discard(self, letter_id: int) -> dict[str, Any]:
        """Close a dead letter for good without sending it, and return it."""
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
        """Run one SELECT; `agents`: over the collections that agents may see alone.

        With `fields="body"` the collections' tables have the texts of their documents, as `doc_body`.
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
