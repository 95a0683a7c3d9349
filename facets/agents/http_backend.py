"""Backend of the tools over HTTP: a running `facetline serve`, through the Python client."""

import inspect
import time
from collections.abc import Awaitable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from facetline.facets.agents.backends import KNOWN_MS, SQL_TIMEOUT_MS, WRITE_TIMEOUT_S
from facetline.facets.backend import ReindexRequest
from facetline.facets.client.client import AsyncClient, Client
from facetline.facets.definitions import Definition, Definitions
from facetline.facets.job_replies import JobPlan, JobReply

T = TypeVar("T")
KNOWN_S = 1.0


def definition_of(shown: Mapping[str, Any]) -> Definition:
    """Return the definition of a collection as the API returns it."""
    names = ("name", "pattern", "scoped", "llm_readable", "questions", "evaluator", "kind", "model", "fingerprint")
    return Definition.model_validate({**{name: shown[name] for name in names}, "state_schema": shown["state"]})


class HttpToolBackend:
    """A server behind a client. With a (blocking) `Client` its coroutines never suspend, so no event loop is needed.

    Definitions are cached for a second, because one tool call needs them more than once. The server checks each call
    against the active ones.
    """

    rights: None = None
    scope: None = None

    def __init__(self, client: Client | AsyncClient) -> None:
        self.client = client
        self._known: tuple[float, Definitions] | None = None

    async def definitions(self) -> Definitions:
        """Return the definitions that agents may read."""
        now_s = time.monotonic()
        if self._known is None or now_s - self._known[0] > KNOWN_S:
            self._known = now_s, Definitions(definition_of(each) for each in await self.collections())
        return self._known[1]

    async def collections(self) -> list[dict[str, Any]]:
        """Return the collections that agents may read."""
        return [each for each in await _awaited(self.client.collections()) if each["llm_readable"]]

    async def search(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Search."""
        given = dict(fields)
        collection, facets = given.pop("collection"), given.pop("facets", None)
        return await _awaited(self.client.search(collection, facets, **given))

    async def get(self, uri: str) -> dict[str, Any]:
        """Return a document."""
        return await _awaited(self.client.get(uri))

    async def sql(self, text: str, limit: int) -> dict[str, Any]:
        """Run a statement."""
        return await _awaited(self.client.sql(text, limit=limit, timeout_ms=SQL_TIMEOUT_MS, agents=True))

    async def write(self, uri: str, body: str | None, state: dict[str, Any] | None) -> dict[str, Any]:
        """Write a document."""
        return await _awaited(self.client.write(uri, body=body, state=state, wait="applied", timeout_s=WRITE_TIMEOUT_S))

    async def delete(self, uri: str) -> dict[str, Any]:
        """Delete a document."""
        return await _awaited(self.client.delete(uri, timeout_s=WRITE_TIMEOUT_S))

    async def known(self, collection: str, token: str) -> None:
        """Wait until searches include the write of a token."""
        await _awaited(self.client.search(collection, limit=1, at_least=[token], wait_ms=KNOWN_MS))

    async def reindex(self, request: ReindexRequest, *, dry_run: bool) -> JobReply | JobPlan:
        """Start or join a job, or return the estimate of a dry run."""
        options = {name: value for name, value in asdict(request).items() if name != "collection"}
        found: Any = await _awaited(self.client.reindex(request.collection, wait=False, dry_run=dry_run, **options))
        reply: JobReply | JobPlan = found
        return reply

    async def job(self, job_id: str) -> JobReply:
        """Return a job."""
        return await _awaited(self.client.job(job_id))


async def _awaited(value: T | Awaitable[T]) -> T:
    return await value if inspect.isawaitable(value) else value
