"""The node over a real pipeline: what the API, the page and the agents' tools are made on (`facets.backend`).

A read comes from views that are kept current behind its back and asks the store nothing; documents whole, events and
jobs come from the store. Every method judges its caller first: rights, then what the caller can see. Definitions and
credentials are as new as the last look at the store, a fraction of a second.
"""

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import structlog

from facetline.facets import documents, errors, tokens
from facetline.facets.backend import LOCAL, NOW, Caller, Check, Freshness, ReindexRequest, Rows, Wait
from facetline.facets.definitions import Definition, Definitions
from facetline.facets.search.selection import Selection
from facetline.storage import credentials
from facetline.storage.jobs import jobs
from facetline.storage.log import documents as documents_
from facetline.storage.log import outcomes
from facetline.streams.pipeline import shown
from facetline.streams.reindex import requests
from facetline.streams.replay import dead_letters as letters
from facetline.streams.serve import health, overview, rights
from facetline.streams.serve import jobs as node_jobs
from facetline.streams.serve import metrics as node_metrics
from facetline.streams.serve.metrics import Measures
from facetline.streams.serve.row_streams import RowStreams
from facetline.streams.serve.sql import Kind, Statements, lent
from facetline.streams.views import consistency as freshness_
from facetline.streams.views import exports as exporting
from facetline.streams.views import texts
from facetline.streams.views.live_views import LiveFollower, LiveViews

if TYPE_CHECKING:
    from facetline.streams.monitor.observer import Observer
    from facetline.streams.pipeline import Pipeline

log = structlog.get_logger(__name__)

VIEWS = "views"
TOKEN_CHARS_MAX = 512
SQL_FOLDER = "sql"
"""In the data folder: snapshots for statements, while they are needed."""
NEW_TOKEN_S = 1.0
"""How long a token that is not known waits for a look at the store; those come four times a second."""
STORE_S = 5.0
"""How long a read of the store may take; the store itself tries for longer."""


class PipelineNode:
    """Serves an open pipeline. Made by `open_node`."""

    def __init__(
        self,
        pipeline: "Pipeline",
        views: LiveViews,
        statements: Statements,
        *,
        loopback: bool = True,
        secret: str = "",
    ) -> None:
        """`loopback` False: no caller is `LOCAL`. `secret` is the token of local commands; "" matches none."""
        self.pipeline = pipeline
        self.views = views
        self.measures = Measures()
        self.state = health.ProcessState()
        self.observer = _observer(pipeline)
        self._statements = statements
        self._loopback = loopback
        self._secret = credentials.digest(secret) if secret else ""
        self._following: asyncio.Task[None] | None = None
        self._row_streams = RowStreams(views)

    def followed_by(self, task: "asyncio.Task[None]") -> None:
        """Name the task that keeps the views, for health."""
        self._following = task

    @property
    def _follows(self) -> bool:
        """Whether the views are kept as new as the store; if not, nothing but a new start will."""
        return self._following is None or not self._following.done()

    # Who asks

    async def authenticate(self, token: str | None) -> Caller | None:
        """Return whose token this is; see `Node`. Tokens are compared by their hashes, so timing reveals nothing.

        A token that is not known may have been made a moment ago: the next look at the store is waited for, which
        costs the client that guesses a quarter of a second, and the store nothing.
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

    # Collections

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

    def _definition(self, caller: Caller, name: str) -> Definition:
        return rights.definition_of(self.views.known.definitions, caller, name)

    # Documents

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
        await freshness_.applied(self.pipeline.store, wanted, freshness.wait_ms)
        found = await self._stored(documents_.get, uri)
        if found is None or found.status is documents.Status.DELETED:
            raise rights.no_document(uri)
        token = tokens.WriteToken(self.pipeline.store.store_id, uri, found.version)
        return {**shown(found, self.views.known.definitions), "token": tokens.encode(token)}

    async def beginnings(self, caller: Caller, uris: Sequence[str], *, chars: int) -> dict[str, tuple[int, str]]:
        """Return how documents begin, in one read of the store; those of other scopes are not there."""
        rights.need(caller, "read")
        seen = [uri for uri in uris if caller.scope is None or documents.parse_uri(uri).scope == caller.scope]
        found: dict[str, tuple[int, str]] = await self._stored(documents_.beginnings, seen, chars)
        return found

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

    # Search

    async def search(self, caller: Caller, selection: Selection, freshness: Freshness = NOW) -> dict[str, Any]:
        """Return a search's reply (docs/search.md) without its links, from the latest snapshot that is new enough."""
        selection = self._selection(caller, selection)
        await self._reached(caller, selection.collection, freshness)
        with_texts = texts.wanted(selection)
        async with self._measured("search"), self.views.using(selection.collection) as live:
            reply = await self.views.read(live.view.search, selection)
        return await texts.beside_hits(reply, self._texts) if with_texts else reply

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

    # Jobs

    async def reindex(self, caller: Caller, request: ReindexRequest, *, key: str | None = None) -> dict[str, Any]:
        """Start or join a job and return it."""
        self._check_admin(caller, request.collection)
        return await node_jobs.start(self.pipeline, caller, request, key)

    async def plan(self, caller: Caller, request: ReindexRequest) -> dict[str, Any]:
        """Return the reply of a dry run."""
        self._check_admin(caller, request.collection)
        return await node_jobs.plan(self.pipeline, request)

    async def jobs(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the newest jobs, newest first."""
        self._check_admin(caller)
        return await node_jobs.listed(self.pipeline)

    async def job(self, caller: Caller, job_id: str) -> dict[str, Any]:
        """Return one job."""
        self._check_admin(caller)
        return await requests.result(self.pipeline, job_id)

    async def job_items(
        self, caller: Caller, job_id: str, *, status: str, cursor: str | None, limit: int
    ) -> dict[str, Any]:
        """Return a page of a job's documents."""
        self._check_admin(caller)
        return await node_jobs.items(self.pipeline, job_id, status=status, cursor=cursor, limit=limit)

    async def cancel(self, caller: Caller, job_id: str) -> dict[str, Any]:
        """Cancel a job and return it."""
        self._check_admin(caller)
        await self.pipeline.store.write(jobs.cancel, job_id)
        return await requests.result(self.pipeline, job_id)

    # Dead letters

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

    # How it stands

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

    # Inside

    def _source(self, caller: Caller) -> str:
        return rights.source_of(caller, self.pipeline.source)

    def _check_admin(self, caller: Caller, collection: str | None = None) -> None:
        rights.need(caller, "admin", everywhere=True)
        if collection is not None:
            self._definition(caller, collection)

    def _selection(self, caller: Caller, selection: Selection) -> Selection:
        rights.need(caller, "read")
        definition = self._definition(caller, selection.collection)
        return rights.narrowed(selection, caller) if definition.scoped else selection

    def _tokens(self, caller: Caller, freshness: Freshness) -> list[tokens.Token]:
        return freshness_.check(freshness, caller, self._source(caller), self.pipeline.store.store_id)

    async def _reached(self, caller: Caller, collection: str, freshness: Freshness) -> None:
        if not self._follows:
            raise errors.NotCaughtUp(health.ENDED)
        wanted = self._tokens(caller, freshness)
        await freshness_.reached(self.views, self.pipeline.store, collection, wanted, freshness.wait_ms, caller.scope)

    async def _stored(self, function: Any, *given: Any) -> Any:
        try:
            async with asyncio.timeout(STORE_S):
                return await self.pipeline.store.read(function, *given)
        except TimeoutError:
            raise errors.StoreUnavailable(f"the store did not answer within {STORE_S:g} s") from None

    @asynccontextmanager
    async def _measured(self, kind: str) -> AsyncIterator[None]:
        started_s = time.perf_counter()
        try:
            yield
        finally:
            self.measures.search(kind, time.perf_counter() - started_s)


def _log_failure(task: "asyncio.Task[None]") -> None:
    """Log that the views are no longer updated (`/livez` fails from now on), or that exports ended."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        event = "views_ended" if task.get_name() == VIEWS else "exports_ended"
        log.error(event, error=type(error).__name__)  # a message may quote what a document holds


def _observer(pipeline: "Pipeline") -> "Observer | None":
    """Return what asks the store for a worker's metrics, where this process runs the side chain."""
    if pipeline.work is None or pipeline.project is None:
        return None
    from facetline.streams.monitor.observer import Observer
    from facetline.streams.monitor.worker_state import (
        Members,  # a worker's parts know Kafka's clients, which are slow to import
    )

    members = Members(pipeline.settings, pipeline.project, store=pipeline.store, work=pipeline.work)
    return Observer(members, documents=False)


@asynccontextmanager
async def open_node(pipeline: "Pipeline", *, loopback: bool = True, secret: str = "") -> AsyncIterator[PipelineNode]:
    """Serve an open pipeline while the body runs: its views are kept current until then.

    Raises:
        StoreUnavailable: the store cannot be seen now.
    """
    folder = (pipeline.settings.data_folder / SQL_FOLDER).resolve()
    exports = pipeline.settings.export_folder
    views = LiveViews(pipeline.store, exports=[folder, *([exports.absolute()] if exports else [])])
    statements = Statements(pipeline.store, views, folder)
    pipeline.follow_by(lambda name: LiveFollower(views, pipeline.store, name))
    node = PipelineNode(pipeline, views, statements, loopback=loopback, secret=secret)
    stop = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()
    try:
        await views.look()
        following = asyncio.create_task(views.run(stop), name=VIEWS)
        following.add_done_callback(_log_failure)
        tasks.add(following)
        node.followed_by(following)
        if exports is not None:
            every_s = pipeline.settings.export_every_s
            again = exporting.export_every(lambda: lent(views, agents=False), exports.absolute(), every_s, stop)
            exporting_ = asyncio.create_task(again, name="exports")
            exporting_.add_done_callback(_log_failure)
            tasks.add(exporting_)
        yield node
    finally:
        if node.observer is not None:
            await node.observer.close()
        await statements.close()
        stop.set()
        views.wake()
        if tasks:
            await asyncio.wait(tasks)
        await views.close()
