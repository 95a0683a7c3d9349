"""The work queue: documents that wait for an answer, who asks for it now, and what came of it.

The queue is the `pending` rows themselves; no event held in memory is ever the reason for a call. A claim is a lease by
the store's clock. An answer is stored by one statement that names uri, `indexed_as` and `pending`: the first valid one
wins, whichever process holds the claim by then. A failure, a retry and a release also name the claim's own attempt.
What changes no row was about something past; it is discarded and counted.

Locks are taken on documents in the order of their uris, then on items and memo entries, then on tallies, last of all on
the ledger (`storage.usage_ledger`), so writers never wait for each other in a circle; claims wait for no lock.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from facetline.facets.answers import FacetValue
from facetline.facets.documents import Evaluation
from facetline.storage import counters, usage_ledger
from facetline.storage.db import batch_parameters, engine, json_rows, models
from facetline.storage.queue import answer_cache, claiming, completion, due_documents

REMEMBERED_MAX = 500
"""Documents answered from the memo in one claim; a tenth of them on behalf of the reindex lane's share."""
WAIT_MAX_MS = 330_000
"""The longest wait before a retry unless configured: a Retry-After that is taken up, with its spread."""
NO_TURNS: claiming.Turns = MappingProxyType({})
MESSAGE_CHARS_MAX = 1_000
"""What is kept of a failure's message."""

_DEFINITIONS = models.DEFINITIONS
_BODIES = models.BODIES
_DOCUMENTS = models.DOCUMENTS
_C = _DOCUMENTS.c
_OUTCOMES = models.OUTCOMES


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to ask once about a body, until the lease ends. `asked_ms` is when it was claimed.

    `tries` and `retry_wait_ms` are what the bounds of retrying look at; `retries` and `crashes` are the account.
    """

    uri: str
    collection: str
    scope: str
    key: str
    body: str
    body_hash: str
    indexed_as: int
    attempt: int
    fingerprint: str
    lane: int
    lease_until_ms: int
    tries: int
    retry_wait_ms: int
    retries: int
    crashes: int
    asked_ms: int


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """Claims, how many documents the memo answered instead, and when to look again.

    `next_due_ms` (store's clock): something becomes due then, or now when it is past; None: nothing is waited for, or
    all slots were filled, so that there is no reason to wait. `remembered_as` are the (uri, indexed_as) that the memo
    answered. `clock_corrections` documents were due, or leased, further ahead than any wait.
    """

    claims: tuple[Claim, ...]
    remembered: int
    next_due_ms: int | None
    remembered_as: tuple[completion.Identity, ...] = ()
    clock_corrections: int = 0
    turns: claiming.Turns = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answered:
    """A valid full set of answers. `asked_ms` is the claim's; without it a stale answer is not remembered.

    The evaluation's `classified_at` is set by the store's clock.
    """

    uri: str
    indexed_as: int
    attempt: int
    fingerprint: str
    facets: Mapping[str, FacetValue]
    evaluation: Evaluation
    scope: str
    body_hash: str
    asked_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer will come; `reason` is a document reason."""

    uri: str
    indexed_as: int
    attempt: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Retried:
    """Ask again after `delay_ms`; `counted` says whether the bounds of retrying take note."""

    uri: str
    indexed_as: int
    attempt: int
    delay_ms: int
    counted: bool


@dataclass(frozen=True, slots=True)
class Released:
    """Given up, due now; `called` says whether the call had begun, which makes it a crash."""

    uri: str
    indexed_as: int
    attempt: int
    called: bool


@dataclass(frozen=True, slots=True)
class Settled:
    """Which (uri, indexed_as) were stored, and which were about something past."""

    stored: tuple[tuple[str, int], ...]
    discarded: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class PendingCounts:
    """Pending documents: due now, due later (retries), and claimed; when the oldest due one became due."""

    due: int
    later: int
    claimed: int
    oldest_due_ms: int | None

    @property
    def total(self) -> int:
        """All pending documents."""
        return self.due + self.later + self.claimed


def claim(
    tx: engine.Tx,
    owner: str,
    *,
    slots: int,
    reindex_slots_min: int,
    fingerprints: Mapping[str, str],
    lease_ms: int,
    busy_keys: Collection[tuple[str, str, str]],
    paused: Collection[str] = (),
    wait_max_ms: int = WAIT_MAX_MS,
    turns: claiming.Turns = NO_TURNS,
) -> ClaimResult:
    """Claim at most `slots` documents, live lane first; the reindex lane has `reindex_slots_min` if it has work.

    `fingerprints` are the process's own by collection: one that is not the active one claims nothing there.
    `busy_keys` are the (scope, body hash, fingerprint) that this process is asking about: equal bodies wait for that
    answer and delay no others. Where more is due than there are slots, collections and scopes take turns, beginning
    after those of `turns`, which the last claim returned. Nothing waits longer than `wait_max_ms` for its time to come,
    whatever the clock does.
    Steps of the one transaction:

    0. What lies further ahead than that, because the clock went back, is brought back.
    1. Expired leases are freed, each recorded as a crash.
    2. Due documents with a remembered answer get it, as if it had come just now, at no call.
    3. Of the others each gets attempt, owner and lease; none is about the same key as another.
    """
    corrected = due_documents.correct_clock(tx, fingerprints, wait_max_ms=wait_max_ms, lease_ms=lease_ms)
    active = _active(tx, {name: own for name, own in fingerprints.items() if name not in paused})
    if slots <= 0 or not active:
        _count(tx, counters.CLOCK_CORRECTIONS, corrected)
        return ClaimResult((), 0, None, clock_corrections=corrected)
    crashed = due_documents.take_over(tx, active)
    round_ = claiming.Picking(tx, owner, lease_ms, active, {answer_cache.Key(*key) for key in busy_keys}, turns)
    share = min(reindex_slots_min, slots)
    if share > 0:
        round_.pick(due_documents.REINDEX, share, remembered_max=REMEMBERED_MAX // 10)
    for lane in due_documents.LANES:
        round_.pick(lane, slots - len(round_.picked), remembered_max=REMEMBERED_MAX - round_.remembered)
    next_due_ms = round_.next_due_ms() if len(round_.picked) < slots else None
    _count(tx, counters.CLOCK_CORRECTIONS, corrected)  # after everything else, as all tallies
    _count(tx, counters.CRASHES, crashed)
    claims = _claims(tx, round_.picked, active, tx.now_ms + lease_ms)
    return ClaimResult(claims, round_.remembered, next_due_ms, tuple(round_.remembered_as), corrected, round_.turns)


def answer(tx: engine.Tx, results: Sequence[Answered]) -> Settled:
    """Store answers whose document still waits for them under that `indexed_as`; remember all for equal bodies."""
    first: dict[completion.Identity, Answered] = {}
    for result in results:
        first.setdefault((result.uri, result.indexed_as), result)
    locked = completion.lock(tx, (uri for uri, _ in first))
    now = json_rows.timestamp(tx.now_ms)
    rows = {identity: _answer_row(result, now) for identity, result in first.items()}
    stored = completion.store(tx, rows.values())
    asked = {identity: _asked_ms(result, locked.get(result.uri)) for identity, result in first.items()}
    answer_cache.put(
        tx, [_entry(rows[identity], first[identity], at) for identity, at in asked.items() if at is not None]
    )
    return _result(tx, results, stored, "answers_discarded")


def fail(tx: engine.Tx, failures: Sequence[Failed], bill: usage_ledger.UsageBatch = usage_ledger.NOTHING) -> Settled:
    """Give documents up whose claim is still the one that failed; charge what those calls used up."""
    rows = [{**_claim_of(each), "reason": each.reason, "message": _storable(each.message)} for each in failures]

    def changes(given: sa.FromClause) -> dict[str, Any]:
        failed = {"status": "failed", "reason": given.c.reason, "reason_message": given.c.message}
        return {**completion.SETTLED, **failed, "version": _C.version + 1}

    stored = completion.settle(tx, rows, {"reason": "text", "message": "text"}, changes)
    completion.close_items(tx, stored, "failed")
    result = _result(tx, failures, stored, "failures_discarded")
    usage_ledger.charge(tx, bill)
    return result


def retry(tx: engine.Tx, retries: Sequence[Retried], bill: usage_ledger.UsageBatch = usage_ledger.NOTHING) -> Settled:
    """Make documents due again after a delay, if their claim is still the one that asks for it."""
    rows = [{**_claim_of(each), "delay_ms": each.delay_ms, "counted": int(each.counted)} for each in retries]

    def changes(given: sa.FromClause) -> dict[str, Any]:
        return {
            **completion.UNCLAIMED,
            "due_ms": tx.now_ms + given.c.delay_ms,
            "retries": _C.retries + 1,
            "tries": _C.tries + given.c.counted,
            "retry_wait_ms": _C.retry_wait_ms + given.c.delay_ms * given.c.counted,
        }

    stored = completion.settle(tx, rows, {"delay_ms": "bigint", "counted": "bigint"}, changes)
    result = _result(tx, retries, stored, "retries_discarded")
    usage_ledger.charge(tx, bill)
    return result


def release(tx: engine.Tx, claims: Sequence[Released], bill: usage_ledger.UsageBatch = usage_ledger.NOTHING) -> Settled:
    """Make documents due now, if their claim is still this one."""
    rows = [{**_claim_of(each), "called": int(each.called)} for each in claims]

    def changes(given: sa.FromClause) -> dict[str, Any]:
        return {
            **completion.UNCLAIMED,
            "due_ms": tx.now_ms,
            "crashes": _C.crashes + given.c.called,
            "calls_made": _C.calls_made - (1 - given.c.called),
        }

    stored = completion.settle(tx, rows, {"called": "bigint"}, changes)
    crashed = {(each.uri, each.indexed_as) for each in claims if each.called} & stored
    if crashed:
        counters.add(tx, counters.CRASHES, len(crashed))
    result = _result(tx, claims, stored, "releases_discarded")
    usage_ledger.charge(tx, bill)
    return result


def pending(tx: engine.Tx, collections: Collection[str] | None = None) -> PendingCounts:
    """Count what waits for an answer, in some collections or in all."""
    named = None if collections is None else sorted(collections)
    only = sa.true() if named is None else _C.collection.in_(named)
    is_due = _C.due_ms <= tx.now_ms
    free = sa.select(
        sa.func.count().filter(is_due).label("due"),
        sa.func.count().filter(~is_due).label("later"),
        sa.func.min(_C.due_ms).filter(is_due).label("oldest"),
    ).where(due_documents.PENDING, _C.owner.is_(None), only)
    row = tx.execute(free).one()
    leased = sa.true() if named is None else batch_parameters.unindexed(_C.collection).in_(named)
    claimed = sa.select(sa.func.count()).where(due_documents.PENDING, _C.owner.is_not(None), leased)
    return PendingCounts(row.due, row.later, tx.execute(claimed).scalar_one(), row.oldest)


def unanswered(tx: engine.Tx, source: str) -> int:
    """Count the documents that still wait for an answer to what an event of this source wrote; cost: its events."""
    wrote = sa.and_(_C.uri == _OUTCOMES.c.uri, _C.indexed_as == _OUTCOMES.c.indexed_as)
    waiting = sa.select(sa.func.count(sa.distinct(_C.uri))).select_from(_OUTCOMES.join(_DOCUMENTS, wrote))
    return int(tx.execute(waiting.where(_OUTCOMES.c.source == source, due_documents.PENDING)).scalar_one())


def remembered(tx: engine.Tx, source: str) -> int:
    """Count the documents whose answer to what an event of this source wrote came from memory; cost: its events."""
    wrote = sa.and_(_C.uri == _OUTCOMES.c.uri, _C.indexed_as == _OUTCOMES.c.indexed_as)
    found = sa.select(sa.func.count(sa.distinct(_C.uri))).select_from(_OUTCOMES.join(_DOCUMENTS, wrote))
    applied = sa.and_(_OUTCOMES.c.source == source, _OUTCOMES.c.outcome == "applied")
    return int(tx.execute(found.where(applied, answer_cache.cached(tx.dialect))).scalar_one())


def _count(tx: engine.Tx, tally: str, count: int) -> None:
    if count:
        counters.add(tx, tally, count)


def _active(tx: engine.Tx, own: Mapping[str, str]) -> dict[str, str]:
    active = tx.execute(_finding_active(), {"names": sorted(own)})
    return {row.name: row.fingerprint for row in active if own[row.name] == row.fingerprint}


@functools.cache
def _finding_active() -> sa.Select[Any]:
    query = sa.select(_DEFINITIONS.c.name, _DEFINITIONS.c.fingerprint).order_by(_DEFINITIONS.c.name)
    return query.where(_DEFINITIONS.c.name.in_(sa.bindparam("names", expanding=True)))


@functools.cache
def _finding_bodies() -> sa.Select[Any]:
    return sa.select(_BODIES.c.uri, _BODIES.c.body).where(_BODIES.c.uri.in_(sa.bindparam("uris", expanding=True)))


def _claims(
    tx: engine.Tx, picked: Sequence[due_documents.Candidate], active: Mapping[str, str], lease_until_ms: int
) -> tuple[Claim, ...]:
    found = tx.execute(_finding_bodies(), {"uris": [each.uri for each in picked]}) if picked else ()
    bodies = {row.uri: row.body for row in found}
    return tuple(
        Claim(
            uri=each.uri,
            collection=each.collection,
            scope=each.scope,
            key=each.key,
            body=bodies[each.uri],
            body_hash=each.body_hash,
            indexed_as=each.indexed_as,
            attempt=each.attempt + 1,
            fingerprint=active[each.collection],
            lane=each.lane,
            lease_until_ms=lease_until_ms,
            tries=each.tries,
            retry_wait_ms=each.retry_wait_ms,
            retries=each.retries,
            crashes=each.crashes,
            asked_ms=tx.now_ms,
        )
        for each in sorted(picked, key=lambda each: each.lane)  # within a lane: due longest first
    )


def _claim_of(each: Failed | Retried | Released) -> dict[str, Any]:
    return {"uri": each.uri, "indexed_as": each.indexed_as, "attempt": each.attempt}


def _answer_row(result: Answered, now: str) -> dict[str, Any]:
    # Checked when it was made: only its time is another.
    evaluation = {**result.evaluation.model_dump(mode="json"), "classified_at": now}
    return {
        "uri": result.uri,
        "indexed_as": result.indexed_as,
        "fingerprint": result.fingerprint,
        "facets": json_rows.dumps(result.facets),
        "evaluation": json_rows.dumps(evaluation),
    }


def _asked_ms(result: Answered, row: sa.Row[Any] | None) -> int | None:
    """When the answer was asked for: the time of the claim, or of the row if it is still about this claim."""
    if result.asked_ms is not None or row is None:
        return result.asked_ms
    ours = (row.indexed_as, row.attempt) == (result.indexed_as, result.attempt)
    return None if not ours or row.claimed_ms is None else int(row.claimed_ms)


def _entry(row: Mapping[str, Any], result: Answered, asked_ms: int) -> answer_cache.Entry:
    key = answer_cache.Key(result.scope, result.body_hash, result.fingerprint)
    return answer_cache.Entry(key, row["facets"], row["evaluation"], asked_ms)


def _storable(message: str) -> str:
    """What providers say may hold what a database refuses: NUL, half a surrogate pair."""
    clean = message[:MESSAGE_CHARS_MAX].encode("utf-8", "replace").decode()
    return clean.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _result(
    tx: engine.Tx,
    given: Sequence[Answered | Failed | Retried | Released],
    stored: set[completion.Identity],
    tally: str,
) -> Settled:
    """Tell stored from discarded; a second one for one identity in the same batch is discarded too."""
    kept: list[completion.Identity] = []
    discarded: list[completion.Identity] = []
    left = set(stored)
    for each in given:
        identity = (each.uri, each.indexed_as)
        (kept if identity in left else discarded).append(identity)
        left.discard(identity)
    completion.count_discarded(tx, tally, len(discarded))
    return Settled(tuple(kept), tuple(discarded))


def failed(tx: engine.Tx, source: str) -> list[tuple[str, int, str]]:
    """Return why documents have no answer to what an event of this source wrote: reason, how many, one's message.

    The most frequent first; cost: its events.
    """
    wrote = sa.and_(_C.uri == _OUTCOMES.c.uri, _C.indexed_as == _OUTCOMES.c.indexed_as)
    many = sa.func.count(sa.distinct(_C.uri)).label("many")
    found = sa.select(_C.reason, many, sa.func.min(_C.reason_message).label("message"))
    found = found.select_from(_OUTCOMES.join(_DOCUMENTS, wrote))
    found = found.where(_OUTCOMES.c.source == source, _C.status == "failed")
    rows = tx.execute(found.group_by(_C.reason).order_by(many.desc(), _C.reason))
    return [(row.reason or "", int(row.many), row.message or "") for row in rows]
