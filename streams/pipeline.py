"""One open pipeline: what people do with documents, the same on both runtimes.

A write goes to the log first, through the runtime's `Writer`; what became of it is read from the store. Searching and
reading never touch a broker or a model.
"""

import asyncio
import contextlib
import functools
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import structlog

from facetline.facets import documents, errors, tokens
from facetline.facets.definitions import Definition, Definitions
from facetline.facets.documents import Document, EventReason, Status
from facetline.facets.search.selection import Selection, check_selection, selection_of
from facetline.facets.view import line_search
from facetline.storage import definitions as definitions_
from facetline.storage import usage_ledger
from facetline.storage.db.engine import Store
from facetline.storage.log import documents as documents_
from facetline.storage.log import events, outcomes
from facetline.streams.classify import availability, query_understanding, usage
from facetline.streams.project import Project
from facetline.streams.settings import Settings
from facetline.streams.views import texts
from facetline.streams.views.follower import Follower, unknown_collection
from facetline.streams.wire import codec as wire
from facetline.streams.wire.outgoing import Sent, Writer

if TYPE_CHECKING:
    from facetline.evaluators.contract import Evaluator
    from facetline.streams.classify.call import CallLimits
    from facetline.streams.classify.side_chain import SideChain
    from facetline.streams.local_server import Holder

log = structlog.get_logger(__name__)
T = TypeVar("T")
Wait = Literal["none", "applied", "answered"]
POLL_FIRST_S = 0.01
POLL_MAX_S = 0.5
LOOK_S = 2.0
"""How long one look at the store may take while a reply waits for what it says."""
LOOK_FIRST_S = 0.5
"""The same when the time is up already: one look is always made."""


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document to write; a body or state that is None stays as it is. `event_id` is new within its source.

    `facets`: answers of an earlier system, as facet values, which stay until the next reindex; `evaluation`
    says where they are from (`evaluator`, `model`, `classified_at`, `confidence_source`, all of them text).
    """

    uri: str
    body: str | None
    state: dict[str, Any] | None
    event_id: str
    facets: dict[str, Any] | None = None
    evaluation: dict[str, Any] | None = None


class BackgroundWork(Protocol):
    """What runs beside a pipeline in a process that asks evaluators (`streams.background`)."""

    @property
    def side_chain(self) -> "SideChain":
        """The side chain, with its lanes and counters."""
        ...

    @property
    def tasks(self) -> Sequence["asyncio.Task[None]"]:
        """The tasks that must run as long as the process does."""
        ...

    def wake_jobs(self) -> None:
        """Look for reindex jobs now."""


class Pipeline:
    """Write, read and search documents. Made by `streams.local.open_local` and `streams.wiring.open_pipeline`.

    `work` is the side chain, where this process runs it; `server` the process that serves the data folder, if any.
    """

    def __init__(self, store: Store, writer: Writer, settings: Settings, project: Project | None, source: str) -> None:
        self.store = store
        self.settings = settings
        self.project = project
        self.work: BackgroundWork | None = None
        self.server: Holder | None = None
        self._writer = writer
        self.source = source
        self._followers: dict[str, Follower] = {}
        self._follow: Callable[[str], Follower] = lambda name: Follower(store, name)

    async def close(self) -> None:
        """Close writer, views, evaluators and store, in this order."""
        await self._writer.close()
        for follower in self._followers.values():
            await follower.close()
        if self.project is not None:
            await self.project.close()
        await self.store.close()

    async def definitions(self) -> Definitions:
        """Return the active definitions."""
        _generation, active = await self.store.read(definitions_.active)
        return active

    async def definition(self, collection: str) -> Definition:
        """Return a collection's active definition.

        Raises:
            UnknownCollection: naming the ones there are.
        """
        active = await self.definitions()
        if collection not in active.by_name:
            raise unknown_collection(collection, active)
        return active.by_name[collection]

    async def write(
        self,
        uri: str,
        *,
        body: str | None = None,
        state: dict[str, Any] | None = None,
        event_id: str | None = None,
        wait: Wait = "answered",
        timeout_s: float = 60.0,
        source: str | None = None,
        active: Definitions | None = None,
    ) -> dict[str, Any]:
        """Write a document and return the object that docs/api.md has for `PUT`.

        A body or state that is None stays as it is. With `wait="answered"` the reply comes when this write's facets
        are there (or failed, or a later write has taken over), or with `status: pending` after `timeout_s`; sooner when
        its evaluator is known to be misconfigured or to have spent its budget (`unavailability`).

        `source` is whose event it is, within which `event_id` is new; `active` the definitions that it is judged by, if
        they are known already.

        Raises:
            InvalidEvent: the write was refused; `reason` says why. Nothing was changed.
            WriteInDoubt: not acknowledged in time; it will not be applied later, the same `event_id` may be sent again.
        """
        deadline_ms = await self._writer.deadline_ms()
        headers = Headers(source or self.source, event_id or new_id(), deadline_ms)
        sent = sent_write(active or await self.definitions(), NewDocument(uri, body, state, headers.event_id), headers)
        return await self._send_one(sent, wait, timeout_s)

    async def delete(
        self,
        uri: str,
        *,
        event_id: str | None = None,
        wait: Wait = "applied",
        timeout_s: float = 60.0,
        source: str | None = None,
        active: Definitions | None = None,
    ) -> dict[str, Any]:
        """Delete a document and return the object that docs/api.md has for `DELETE`; an absent one is no error."""
        deadline_ms = await self._writer.deadline_ms()
        headers = Headers(source or self.source, event_id or new_id(), deadline_ms)
        sent = sent_delete(active or await self.definitions(), uri, headers)
        return await self._send_one(sent, wait, timeout_s)

    async def write_many(
        self, active: Definitions, rows: Sequence[NewDocument], *, source: str, collection: str | None = None
    ) -> list[events.Outcome | errors.InvalidEvent | None]:
        """Write documents in one go; those that are stored just so are left alone, those not of `collection` refused.

        Returns one result each: its outcome, its refusal, or None where a worker will apply it.
        """
        results = judge_many(active, rows, source=source, collection=collection)
        sent = [each for each in results if isinstance(each, Sent)]
        outcomes_ = await self._writer.append(sent)
        return settled_many(results, outcomes_ or [None] * len(sent))

    async def append(self, sent: Sequence[Sent]) -> Sequence[events.Outcome] | None:
        """Append judged events to the log as they are; the outcomes, or None where a worker will apply them."""
        return await self._writer.append(sent)

    async def _send_one(self, sent: Sent, wait: Wait, timeout_s: float) -> dict[str, Any]:
        """Append an event and return what became of it.

        Once the log has it, a store that is away takes nothing back: the reply then says that it was acknowledged, at
        the latest when the write's deadline has passed.
        """
        waiting = _Waiting.of(timeout_s, self.settings.write_deadline_s)
        known = await self._writer.append([sent])
        event = sent.event
        outcome = known[0] if known else None if wait == "none" else await self._outcome(event, waiting)
        if outcome is None:
            token = tokens.EventToken(self.store.store_id, event.source, event.id)
            return {"uri": event.uri, "event_id": event.id, "token": tokens.encode(token)}
        refusal = _refusal(outcome)
        if refusal is not None:
            raise refusal
        reply = await self._written(outcome, event.collection or "", wait, waiting)
        return {**reply, "event_id": event.id}

    async def _outcome(self, event: events.Event, waiting: "_Waiting") -> events.Outcome | None:
        """Return the event's outcome; None when it has none in time, or the store does not say."""

        async def look() -> events.Outcome | None:
            return await self.store.read(outcomes.find, event.source, event.id, event.digest)

        try:
            return await poll(functools.partial(waiting.bounded, look), waiting.ends)
        except errors.StoreUnavailable as error:
            log.warning("outcome_not_known", id=event.id, uri=event.uri, reason=error.message)
            return None

    async def _written(
        self, outcome: events.Outcome, collection: str, wait: Wait, waiting: "_Waiting"
    ) -> dict[str, Any]:
        uri = outcome.uri or ""
        if outcome.version is None:  # a delete of what never was
            return {"uri": uri, "status": Status.DELETED.value}
        reply: dict[str, Any] = {
            "uri": uri,
            "version": outcome.version,
            "revision": outcome.revision,
            "indexed_as": outcome.indexed_as,
            "status": Status.PENDING.value,
            "facets": None,
            "reason": None,
        }
        with contextlib.suppress(errors.StoreUnavailable):  # it is applied, whatever else is unknown
            if wait == "answered":
                await self._wait_settled(uri, outcome.indexed_as or 0, collection, waiting)
            document = await waiting.bounded(functools.partial(self.store.read, documents_.get, uri))
            if document is None or document.indexed_as != outcome.indexed_as:
                reply["status"] = "superseded"
            else:
                reply.update(_shown(document))
        version = max(outcome.version, int(reply["version"]))
        if reply["status"] == Status.DELETED.value:
            reply = {name: reply[name] for name in ("uri", "version", "indexed_as", "status")}
        return {**reply, "token": tokens.encode(tokens.WriteToken(self.store.store_id, uri, version))}

    async def _wait_settled(self, uri: str, indexed_as: int, collection: str, waiting: "_Waiting") -> None:
        """Wait until `indexed_as` is settled or passed, or its evaluator stays unavailable for long."""

        async def look() -> object:
            if await self.store.read(documents_.settled, uri, indexed_as):
                return True
            stands = await self.unavailability(collection)
            return True if stands is not None and stands.is_permanent else None

        await poll(functools.partial(waiting.bounded, look), waiting.ends)

    async def get(self, uri: str) -> dict[str, Any]:
        """Return a document whole; `"outdated": true` is there where it was answered under another definition.

        Raises:
            NotFound: there is none, or it was deleted.
        """
        documents.parse_uri(uri)
        found = await self.store.read(documents_.get, uri)
        if found is None or found.status is Status.DELETED:
            raise errors.NotFound(f"no document '{uri}'")
        return shown(found, await self.definitions())

    async def search(
        self,
        collection: str,
        facets: Mapping[str, str | bool | int | Sequence[str | bool | int]] | None = None,
        *,
        ask: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Return the reply (docs/search.md): `pipeline.search("tickets", {"topic": ["billing"]}, min_confidence=0.8)`.

        With `ask`, a sentence, one call is made to the collection's evaluator (see `ask`), and the reply has what the
        sentence was taken for as `asked`; questions in `facets` go by those. Without it no model runs.

        Raises:
            InvalidQuery: naming what is wrong, what is allowed and the nearest match; or the sentence says nothing
                that the questions ask.
        """
        chosen = _tuples(facets)
        if ask is not None:
            understood = await self.ask(collection, ask)
            taken = {name: (each.value,) for name, each in understood.taken.items()}
            if not {**taken, **chosen}:
                raise query_understanding.nothing(understood)
            reply = await self.search(collection, {**taken, **chosen}, **options)
            return {**reply, "asked": understood.shown()}
        for name in ("sort", "counts", "fields"):
            if isinstance(options.get(name), str):
                options[name] = tuple(part.strip() for part in options[name].split(",") if part.strip())
        return await self._search(selection_of({**options, "collection": collection, "facets": chosen}))

    async def _search(self, selection: Selection) -> dict[str, Any]:
        if self.server is not None:
            from facetline.streams import local_server

            check_selection(selection, await self.definition(selection.collection))  # in our words, not HTTP's
            reply = await local_server.search(self.server, self.store, selection)
            if reply is not None:
                return reply
        with_texts = texts.wanted(selection)
        reply = await self.follower(selection.collection).search(selection)
        return await texts.beside_hits(reply, self._texts) if with_texts else reply

    async def grep(
        self,
        collection: str,
        pattern: str,
        facets: Mapping[str, str | bool | int | Sequence[str | bool | int]] | None = None,
        *,
        limit: int = line_search.LINES,
        context: int = 0,
        **options: Any,
    ) -> dict[str, Any]:
        """Return lines with a pattern (docs/text-search.md); `options` are those of `search` that select documents.

        Raises:
            InvalidQuery: naming what is wrong, what is allowed and the nearest match.
        """
        line_search.check(limit, context)
        given = {**options, "grep": pattern, "collection": collection, "facets": _tuples(facets)}
        view = await self.follower(collection).caught_up(texts=True)
        return await asyncio.to_thread(view.grep, selection_of(given), limit=limit, context=context)

    async def glob(
        self,
        pattern: str | None = None,
        *,
        collection: str | None = None,
        scope: str | None = None,
        limit: int = line_search.URIS,
    ) -> dict[str, Any]:
        """Return the first uris whose path without scope fits a pattern, in order; of one collection or of all.

        Raises:
            InvalidQuery: naming what is wrong.
        """
        line_search.check_uris(limit)
        names = [collection] if collection is not None else sorted((await self.definitions()).by_name)
        found: list[str] = []
        for name in names:
            definition = await self.definition(name)
            if collection is None and scope is not None and not definition.scoped:
                continue
            selection = selection_of({"collection": name, "glob": pattern, "scope": scope})
            found += await self.follower(name).uris(selection, after="", limit=limit + 1)
        found.sort()
        return {"uris": found[:limit], "truncated": len(found) > limit}

    async def _texts(self, uris: Sequence[str]) -> Mapping[str, tuple[int, str]]:
        return await self.store.read(documents_.bodies, uris)

    async def ask(self, collection: str, sentence: str) -> query_understanding.Understood:
        """Return what a sentence looks for, by the collection's choice questions; one call to its evaluator, charged.

        Raises:
            InvalidQuery: there is no such collection, or nothing that could be asked.
            EvaluatorUnavailable, EvaluatorMisconfigured, EvaluationFailed: the evaluator gives no answer, or has spent
                what it may in a day.
        """
        definition = await self.definition(collection)
        evaluator, limits = self.asked_by(definition)
        await self.store.read(availability.check_spent, definition.evaluator, limits.max_usd_per_day)
        try:
            understood = await query_understanding.understand(sentence, definition, evaluator, limits)
        except (errors.EvaluatorUnavailable, errors.EvaluatorMisconfigured, errors.EvaluationFailed) as error:
            if error.spent is not None:
                await self.store.write(usage_ledger.charge, usage.one_call(definition, evaluator, error.spent))
            raise
        spent = errors.Spent(understood.model, understood.usage, understood.cost_usd)
        await self.store.write(usage_ledger.charge, usage.one_call(definition, evaluator, spent))
        return understood

    def asked_by(self, definition: Definition) -> "tuple[Evaluator, CallLimits]":
        """Return the evaluator of a collection, with its limits.

        Raises:
            InvalidSettings: this process knows none by that name: its configuration file is missing or another one.
        """
        name = definition.evaluator
        if self.project is None or name not in self.project.evaluators:
            raise errors.InvalidSettings(
                f"evaluator '{name}' of collection '{definition.name}' is not in {self.settings.config}; pass --config"
            )
        return self.project.evaluators[name], self.project.limits[name]

    async def unavailability(self, collection: str) -> availability.Unavailability | None:
        """Return why a collection's evaluator is not called now; None when nothing is known to prevent it."""
        if self.work is not None:
            return availability.in_process(self.work.side_chain, collection)
        return await self.store.read(availability.in_store, collection, self._limits)

    async def last_unavailability(self, collection: str) -> str | None:
        """Return the same as a line; also what was so when the last process that asks evaluators ended."""
        found = await self.unavailability(collection)
        if found is not None:
            return found.says(None, workers=self.settings.runtime == "kafka")
        active = (await self.definitions()).by_name.get(collection)
        return None if active is None else await self.store.read(availability.last_known, active.evaluator)

    @property
    def _limits(self) -> Mapping[str, "CallLimits"]:
        return self.project.limits if self.project is not None else {}

    def follower(self, collection: str) -> Follower:
        """Return what keeps a collection's view."""
        if collection not in self._followers:
            self._followers[collection] = self._follow(collection)
        return self._followers[collection]

    def follow_by(self, make: Callable[[str], Follower]) -> None:
        """Have what keeps a collection's view made by `make` from now on: for a process that has views already."""
        self._follow = make

    async def warnings(self, collection: str) -> list[str]:
        """Return how this file's definition differs from the active one, if it does."""
        own = self.project.by_name.get(collection) if self.project else None
        active = (await self.definitions()).by_name.get(collection)
        if own is None or active is None or own == active:
            return []
        what = "set of questions or the evaluator" if own.fingerprint != active.fingerprint else "definition"
        message = f"collection '{collection}': the {what} in {self.settings.config} differs from the active one"
        return [f"{message}; 'facetline collections apply' makes it active"]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """How long a write's reply may wait, in monotonic seconds: until `ends`, for a silent store until `deadline`."""

    ends: float
    deadline: float

    @classmethod
    def of(cls, timeout_s: float, deadline_s: float) -> "_Waiting":
        """Return it for a write that begins now."""
        now = time.monotonic()
        return cls(now + timeout_s, now + deadline_s)

    async def bounded(self, look: Callable[[], Awaitable[T]]) -> T:
        """Look at the store, for as long as a reply may still wait for it.

        Raises:
            StoreUnavailable: it did not answer in time. The look itself may go on in its thread.
        """
        now = time.monotonic()
        limit_s = max(min(self.ends, max(self.deadline, now + LOOK_S)) - now, LOOK_FIRST_S)
        try:
            async with asyncio.timeout(limit_s):
                return await look()
        except TimeoutError as error:
            raise errors.StoreUnavailable(f"the store did not answer within {limit_s:.1f} s") from error


def new_id() -> str:
    """Return an id for an event whose writer gave none."""
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class Headers:
    """What goes with a write besides its content."""

    source: str
    event_id: str
    deadline_ms: int | None = None
    unless_equal: bool = False


def sent_write(active: Definitions, row: NewDocument, headers: Headers) -> Sent:
    """Return a write, judged and ready to be sent.

    Raises:
        InvalidEvent: a worker would reject it.
    """
    try:
        message = wire.encode_write(
            row.uri,
            body=row.body,
            state=row.state,
            facets=row.facets,
            evaluation=row.evaluation,
            source=headers.source,
            event_id=headers.event_id,
            deadline_ms=headers.deadline_ms,
            unless_equal=headers.unless_equal,
        )
    except UnicodeEncodeError as error:
        raise _no_text() from error
    except (TypeError, ValueError) as error:
        raise errors.InvalidEvent(EventReason.INVALID_STATE, f"state or facets are not JSON: {error}") from error
    return judged(message, active, headers.deadline_ms)


def sent_delete(active: Definitions, uri: str, headers: Headers) -> Sent:
    """Return a delete, judged and ready to be sent.

    Raises:
        InvalidEvent: a worker would reject it.
    """
    named = {"source": headers.source, "event_id": headers.event_id}
    try:
        message = wire.encode_delete(uri, **named, deadline_ms=headers.deadline_ms)
    except UnicodeEncodeError as error:
        raise _no_text() from error
    return judged(message, active, headers.deadline_ms)


def _no_text() -> errors.InvalidEvent:
    return errors.InvalidEvent(EventReason.INVALID_TEXT, "half a surrogate pair; send valid Unicode")


def judged(message: wire.Message, active: Definitions, deadline_ms: int | None = None) -> Sent:
    """Return the event as a worker would judge it.

    Raises:
        InvalidEvent: a worker would reject it, so it is not sent.
    """
    raw = events.Raw(message.key, message.value, message.headers, None)
    event = wire.decode(raw, events.Position("", 0, 0, 0), active)
    if event.content is None:
        raise errors.InvalidEvent(event.reason or "", event.message or "")
    return Sent(message, event, deadline_ms)


def judge_many(
    active: Definitions, rows: Sequence[NewDocument], *, source: str, collection: str | None = None
) -> list[Sent | errors.InvalidEvent]:
    """Return each write, ready to be sent (those that are stored just so will be left alone), or why it is refused."""
    found: list[Sent | errors.InvalidEvent] = []
    for row in rows:
        try:
            made = sent_write(active, row, Headers(source, row.event_id, unless_equal=True))
            _check_collection(made.event, collection)
            found.append(made)
        except errors.InvalidEvent as refused:
            found.append(refused)
    return found


def settled_many(
    judged_: Sequence[Sent | errors.InvalidEvent], outcomes_: Sequence[events.Outcome | None]
) -> list[events.Outcome | errors.InvalidEvent | None]:
    """Return what became of each: `outcomes_` are those of the ones that were sent, None where it is not known yet."""
    came = iter(outcomes_)
    found: list[events.Outcome | errors.InvalidEvent | None] = []
    for each in judged_:
        if isinstance(each, errors.InvalidEvent):
            found.append(each)
            continue
        outcome = next(came)
        found.append(None if outcome is None else _refusal(outcome) or outcome)
    return found


def _check_collection(event: events.Event, collection: str | None) -> None:
    if collection not in {None, event.collection}:
        raise errors.InvalidEvent(
            EventReason.INVALID_URI,
            f"uri {(event.uri or '')[:80]!r} belongs to collection '{event.collection}', not to '{collection}'",
        )


def _refusal(outcome: events.Outcome) -> errors.InvalidEvent | None:
    if outcome.outcome != "rejected":
        return None
    return errors.InvalidEvent(outcome.reason or "", outcome.message or "")


def shown(document: Document, active: Definitions) -> dict[str, Any]:
    """Return a document as `get` shows it."""
    message = document.model_dump(mode="json", exclude={"collection", "scope"})
    definition = active.by_name.get(document.collection)
    by, now = document.evaluation, None if definition is None else definition.fingerprint
    return message | {"outdated": True} if by is not None and by.fingerprint != now else message


def _shown(document: Document) -> dict[str, Any]:
    return document.model_dump(mode="json", include={"version", "revision", "indexed_as", "status", "facets", "reason"})


async def poll(look: Callable[[], Awaitable[T | None]], ends: float) -> T | None:
    """Call `look` until it returns something, ever less often, and return that; None after `ends`."""
    pause_s = POLL_FIRST_S
    while True:
        found = await look()
        left_s = ends - time.monotonic()
        if found is not None or left_s <= 0:
            return found
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 1.5, POLL_MAX_S)


def _tuples(
    facets: Mapping[str, str | bool | int | Sequence[str | bool | int]] | None,
) -> dict[str, tuple[str | bool | int, ...]]:
    return {
        name: (values,) if isinstance(values, str | bool | int) else tuple(values)
        for name, values in (facets or {}).items()
    }
