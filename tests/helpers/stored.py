"""Small builders for tests of the store: a store with a clock, definitions, documents, and what to say about them."""

import hashlib
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from facetline.facets.definitions import Definition
from facetline.facets.documents import Evaluation, parse_uri
from facetline.facets.questions import choice
from facetline.facets.schema.states import schema_of_types
from facetline.storage import definitions
from facetline.storage.db import engine, models, opening
from facetline.storage.log import apply
from facetline.storage.log.events import Content, Event, Position, Raw
from facetline.storage.publications import SetAside
from facetline.storage.queue import queue

TOPIC = "documents"
FIRST = "f1"
"""The fingerprint that `defined` gives unless told otherwise."""
DOCUMENTS = models.DOCUMENTS
ASIDE = models.SET_ASIDE
ITEMS = models.JOB_ITEMS
QUESTIONS = {"topic": choice(ask="What is it about?", options={"billing": "Money", "outage": "Something is down"})}


class Clock:
    """What is added to the store's clock, in milliseconds."""

    def __init__(self) -> None:
        self.shift_ms = 0

    def __call__(self) -> int:
        """Return the shift."""
        return self.shift_ms


@asynccontextmanager
async def opened(url: str, clock: Clock | None = None) -> AsyncIterator[engine.Store]:
    """Open a store, and close it."""
    store = await opening.open_store(url, clock_shift=clock or Clock())
    try:
        yield store
    finally:
        await store.close()


def aside(tx: engine.Tx, topic: str) -> list[SetAside]:
    """Return what is set aside, due or not, by uri."""
    columns = ASIDE.c.uri, ASIDE.c.message, ASIDE.c.attempts, ASIDE.c.due_ms
    query = sa.select(*columns).where(ASIDE.c.topic == topic).order_by(ASIDE.c.uri)
    return [SetAside(*tuple(row)) for row in tx.execute(query)]


def defined(tx: engine.Tx, *names: str, fingerprint: str = FIRST) -> None:
    """Make collections `name/*` (and, by the name `scoped`, one with scopes) active under a fingerprint."""
    definitions.activate(
        tx,
        [
            Definition(
                name=name,
                pattern=f"{name}/*",
                scoped=name == "scoped",
                llm_readable=False,
                state_schema=schema_of_types({}),
                questions=QUESTIONS,
                evaluator="fake",
                kind="fake",
                model="fake",
                fingerprint=fingerprint,
            )
            for name in names
        ],
    )


def event(uri: str, content: Content) -> Event:
    """Return a valid event about a uri of a collection `name/*`."""
    parsed = parse_uri(uri)
    collection, _, key = parsed.path.partition("/")
    return Event(
        position=Position(TOPIC, 1, 0, 0),
        redriven=False,
        source="test",
        id=uuid.uuid4().hex,
        digest="d",
        uri=uri,
        collection=collection,
        scope=parsed.scope,
        key=key,
        content=content,
        reason=None,
        message=None,
        stage="apply",
        raw=Raw(uri.encode(), b"{}", (), None),
        traceparent=None,
    )


def hash_of(body: str) -> str:
    """Return the hash that the store keeps of a body."""
    return hashlib.sha256(body.encode()).hexdigest()


def written(uri: str, body: str) -> Event:
    """Return the event of writing a body."""
    blank = not body.strip()
    return event(uri, Content(body, hash_of(body), blank=blank, state=None, deleted=False, unless_equal=False))


def write(tx: engine.Tx, bodies: dict[str, str]) -> dict[str, int]:
    """Write documents; return their `indexed_as` by uri."""
    applied = apply.append(tx, TOPIC, [written(uri, body) for uri, body in bodies.items()])
    return {str(outcome.uri): int(outcome.indexed_as or 0) for outcome in applied.outcomes}


def delete(tx: engine.Tx, *uris: str) -> None:
    """Delete documents."""
    gone = Content(None, None, blank=False, state=None, deleted=True, unless_equal=False)
    apply.append(tx, TOPIC, [event(uri, gone) for uri in uris])


def claimed(tx: engine.Tx, *, slots: int = 100, owner: str = "one", **options: Any) -> queue.ClaimResult:
    """Claim with plain options: every collection of the store, its active fingerprint, a minute's lease."""
    _, active = definitions.active(tx)
    plain: dict[str, Any] = {
        "reindex_slots_min": 0,
        "fingerprints": {name: each.fingerprint for name, each in active.by_name.items()},
        "lease_ms": 60_000,
        "busy_keys": (),
    }
    return queue.claim(tx, owner, slots=slots, **{**plain, **options})


def answer_to(claim: queue.Claim, said: str = "billing") -> queue.Answered:
    """Return a valid answer to a claim."""
    evaluation = Evaluation(
        evaluator="fake",
        kind="fake",
        model="fake",
        fingerprint=claim.fingerprint,
        classified_at=datetime(2000, 1, 1, tzinfo=UTC),
        usage={"tokens": 7},
        cost_usd=0.5,
    )
    return queue.Answered(
        uri=claim.uri,
        indexed_as=claim.indexed_as,
        attempt=claim.attempt,
        fingerprint=claim.fingerprint,
        facets={"topic": {"type": "choice", "choice": said, "confidence": None}},
        evaluation=evaluation,
        scope=claim.scope,
        body_hash=claim.body_hash,
        asked_ms=claim.asked_ms,
    )


def answer_all(tx: engine.Tx, claims: Iterable[queue.Claim], said: str = "billing") -> queue.Settled:
    """Answer claims, all alike."""
    return queue.answer(tx, [answer_to(claim, said) for claim in claims])


def row(tx: engine.Tx, uri: str) -> dict[str, Any]:
    """Return a document's row as it is."""
    return dict(tx.execute(sa.select(DOCUMENTS).where(DOCUMENTS.c.uri == uri)).mappings().one())


def rows(tx: engine.Tx) -> dict[str, dict[str, Any]]:
    """Return all documents' rows by uri."""
    return {found["uri"]: dict(found) for found in tx.execute(sa.select(DOCUMENTS)).mappings()}
