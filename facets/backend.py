"""Protocols of a running pipeline as used by the HTTP API, the page and the agents' tools.

The first argument of each method is the `Caller`: results, counts and refusals are limited to what the caller may see.
Anything outside the caller's scope is treated as nonexistent.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from facetline.facets.definitions import Definitions
from facetline.facets.job_replies import JobItemsPage, JobPlan, JobReply
from facetline.facets.search.selection import Selection

Right = Literal["read", "write", "admin", "sql"]
RIGHTS: tuple[Right, ...] = ("read", "write", "admin", "sql")
Wait = Literal["none", "applied", "answered"]
Level = Literal["ok", "degraded", "failed"]


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated caller: `name` is the credential's id (never its secret); `scope` None: all scopes.

    Without tokens in the store, callers on this machine are `LOCAL`, with all rights.
    """

    name: str
    rights: frozenset[Right]
    scope: str | None = None


LOCAL = Caller("local", frozenset(RIGHTS))


@dataclass(frozen=True, slots=True)
class Check:
    """One check of liveness or readiness."""

    name: str
    level: Level
    detail: str


@dataclass(frozen=True, slots=True)
class Freshness:
    """Required freshness: the reply includes the writes of these tokens; `wait_ms` is the maximum wait."""

    at_least: tuple[str, ...] = ()
    wait_ms: int = 2_000


NOW = Freshness()


@dataclass(frozen=True, slots=True)
class ReindexRequest:
    """The request of `POST …/reindex`."""

    collection: str
    force: bool = False
    outdated: bool = False
    filter: str | None = None
    scope: str | None = None


class Rows(Protocol):
    """All hits of one search from one snapshot, read in pages and closed at the end."""

    columns: Sequence[str]
    """The columns of the collection's table, in its order."""
    total: int
    token: str

    def pages(self) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
        """Return the hits, each a mapping of column to value, a bounded number at a time."""

    async def aclose(self) -> None:
        """Release the snapshot."""


class DocumentBackend(Protocol):
    """Documents, the events that wrote them, and dead letters."""

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
        """Write a document: `Pipeline.write` under the caller's source `facetline/api/<credential>`."""

    async def delete(
        self, caller: Caller, uri: str, *, event_id: str | None, wait: Wait, timeout_s: float
    ) -> dict[str, Any]:
        """Delete a document."""

    async def get(self, caller: Caller, uri: str, freshness: Freshness = NOW) -> dict[str, Any]:
        """Return a document whole: with `body`, `state`, `evaluation`, `calls` and a `token`."""

    async def event(self, caller: Caller, event_id: str) -> dict[str, Any]:
        """Return what became of an event of this caller: the object of `GET /v1/events/{event_id}`."""

    async def dead_letters(
        self, caller: Caller, *, reason: str | None, cursor: str | None, limit: int
    ) -> dict[str, Any]:
        """Return waiting dead letters, newest first, and their numbers: `GET /v1/dead-letters`.

        `{"dead_letters": [...], "counts": {reason: n}, "next_cursor"}`.
        """

    async def dead_letter(self, caller: Caller, letter_id: str) -> dict[str, Any]:
        """Return one dead letter with its record, within bounds."""

    async def redrive(self, caller: Caller, letter_id: str) -> dict[str, Any]:
        """Send a dead letter again: `{"id", "outcome", "reason"}`; one that is closed or cannot be is a `Conflict`."""

    async def discard(self, caller: Caller, letter_id: str) -> dict[str, Any]:
        """Discard a dead letter and return it; one that was applied or superseded is a `Conflict`."""


class SearchBackend(Protocol):
    """Collections, searches and SQL."""

    async def definitions(self, caller: Caller) -> Definitions:
        """Return the active definitions that the caller sees: one with a scope sees scoped collections alone."""

    async def collections(self, caller: Caller, *, agents: bool = False) -> list[dict[str, Any]]:
        """Return every collection as `GET /v1/collections/{c}` shows it; with `agents` the `llm_readable` ones."""

    async def collection(self, caller: Caller, name: str) -> dict[str, Any]:
        """Return name, pattern, scoped, llm_readable, state, questions, evaluator, fingerprint and counts by status."""

    async def search(self, caller: Caller, selection: Selection, freshness: Freshness = NOW) -> dict[str, Any]:
        """Return a search's reply (docs/search.md) without its links. No model runs."""

    async def grep(
        self, caller: Caller, selection: Selection, freshness: Freshness = NOW, *, limit: int, context: int = 0
    ) -> dict[str, Any]:
        """Return the first lines with the selection's pattern, and how many documents have such lines."""

    async def uris(self, caller: Caller, selection: Selection, freshness: Freshness = NOW, *, limit: int) -> list[str]:
        """Return the first selected uris, in order."""

    async def beginnings(self, caller: Caller, uris: Sequence[str], *, chars: int) -> dict[str, tuple[int, str]]:
        """Return of each document its `revision` and how its body begins; those that are not there are left out."""

    async def rows(self, caller: Caller, selection: Selection, freshness: Freshness = NOW) -> Rows:
        """Return all that a selection finds, for a stream; its limit and cursor are of no account."""

    async def sql_of(self, caller: Caller, selection: Selection) -> str:
        """Return the SQL text, values inside, that counts what the selection finds, for `links.sql`."""

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
        """Run one read-only statement in a child process: `{"columns", "rows", "truncated", "as_of"}`.

        `with_texts`: the collections' tables have the column `doc_body`.

        With `agents` it runs over the `llm_readable` collections alone: neither the tables of the others nor their
        rows in `answers` are there.
        """


class JobBackend(Protocol):
    """Reindex jobs."""

    async def reindex(self, caller: Caller, request: ReindexRequest, *, key: str | None = None) -> JobReply:
        """Start or join a job and return it; `key` is the request's `Idempotency-Key`."""

    async def plan(self, caller: Caller, request: ReindexRequest) -> JobPlan:
        """Return the estimate of a dry run."""

    async def jobs(self, caller: Caller) -> list[JobReply]:
        """Return the caller's jobs, newest first, a bounded number."""

    async def job(self, caller: Caller, job_id: str) -> JobReply:
        """Return one job."""

    async def job_items(
        self, caller: Caller, job_id: str, *, status: str, cursor: str | None, limit: int
    ) -> JobItemsPage:
        """Return a page of a job's documents with one status."""

    async def cancel(self, caller: Caller, job_id: str) -> JobReply:
        """Cancel a job and return it; one that has ended stays as it is."""


class StatusBackend(Protocol):
    """Callers, the state of pipeline and process, and metrics."""

    async def authenticate(self, token: str | None) -> Caller | None:
        """Return the caller of this token; None: invalid. Without any token in the store, None is `LOCAL`."""

    async def needs_tokens(self) -> bool:
        """Say whether the store holds tokens, so that requests without one are refused."""

    async def strip(self, caller: Caller, collection: str) -> dict[str, Any]:
        """Return the pipeline strip of one collection.

        `{"counts": {status: n}, "failed": {reason: n}, "outdated": n, "lag": {"events": n, "seconds": s},
        "oldest_pending_s": s or null, "evaluator": {"name", "kind", "model", "state", "message"},
        "spend": {"calls", "tokens", "usd", "usd_max"} of today}`; `state` is `ok`, `paused`, `stopped`,
        `absent` (documents wait and no process asks the evaluator) or `unknown` (no process asks it, and none waits).
        """

    async def failures(self, caller: Caller, collection: str, *, limit: int) -> list[dict[str, Any]]:
        """Return failed documents, newest first: `uri`, `reason`, `message`, `at`."""

    async def alive(self) -> Sequence[Check]:
        """Return the checks of `/livez`."""

    async def ready(self) -> Sequence[Check]:
        """Return the checks of `/readyz`."""

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics page and its content type."""


class Backend(DocumentBackend, SearchBackend, JobBackend, StatusBackend, Protocol):
    """A running pipeline, as its clients see it. Methods return the JSON objects of docs/api.md.

    Raises (all): `errors.PipelineError`s alone. `NotFound` and `UnknownCollection`: 404; `InvalidQuery`: 400;
    `InvalidEvent`: 422 (413 for `too_large`); `Conflict`: 409; `Forbidden`: 403; `NotCaughtUp`, `WriteInDoubt`,
    `StoreUnavailable`, `BrokerUnavailable`: 503.
    """
