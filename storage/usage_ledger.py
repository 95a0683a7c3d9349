"""The ledger: what calls used up, folded by day, evaluator, collection and model.

A charge is written in the transaction that settles its call, whatever becomes of the answer: one that came too late
was paid for as well. It is written exactly once, although the transaction may run again after a commit without
a reply: a process numbers its calls, and the ledger keeps the last number applied.

Days are UTC, by the store's clock. What a provider did not report counts as unknown, never as 0. Locks are the
last ones of a transaction, after the tallies, in the order of the rows' keys.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from facetline.storage.db import engine, models

DAY_MS = 24 * 60 * 60 * 1000
MEAN_DAYS = 30
"""How far back a call's mean price is looked for: prices and questions change."""
MARK_DAYS = 2
"""How long the last number of a process is kept; processes write their calls within seconds."""

By = Literal["day", "collection", "evaluator", "model"]

_SPEND = models.SPEND
_MARKS = models.SPEND_MARKS
_S = _SPEND.c
_KEY = ("day", "evaluator", "collection", "model")
_SUMS = ("calls", "unpriced_calls", "input_tokens", "output_tokens", "cost_usd")


@dataclass(frozen=True, slots=True)
class UsageEntry:
    """What one call used up; `number` counts the calls of its process. `cost_usd` None: unknown."""

    number: int
    collection: str
    evaluator: str
    model: str
    input_tokens: int
    output_tokens: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class UsageBatch:
    """The charges that one transaction writes.

    Bills of one `owner` and `kind` hold ascending numbers: a later one holds all of an earlier one that was not
    applied, or only higher ones. No two processes may ever have the same `owner`.
    """

    owner: str
    kind: str
    charges: tuple[UsageEntry, ...]


NOTHING = UsageBatch("", "", ())


@dataclass(frozen=True, slots=True)
class Spent:
    """Sums. `cost_usd` is that of the calls whose cost is known: `calls` less `unpriced_calls`."""

    calls: int = 0
    unpriced_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    @property
    def known_usd(self) -> float | None:
        """The cost, None when that of no call is known."""
        return self.cost_usd if self.calls > self.unpriced_calls else None

    @property
    def mean_usd(self) -> float | None:
        """What a call costs on average, None when that of no call is known."""
        priced = self.calls - self.unpriced_calls
        return self.cost_usd / priced if priced else None

    @property
    def mean_tokens(self) -> float | None:
        """Tokens of a call on average, None when none were reported."""
        tokens = self.input_tokens + self.output_tokens
        return tokens / self.calls if tokens else None

    def __add__(self, other: "Spent") -> "Spent":
        """Return both together."""
        return Spent(
            self.calls + other.calls,
            self.unpriced_calls + other.unpriced_calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost_usd + other.cost_usd,
        )


def day_of(at_ms: int) -> str:
    """Return the day (UTC) of a moment, as the ledger writes it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()


def next_day_ms(at_ms: int) -> int:
    """Return when the next day (UTC) begins."""
    return (at_ms // DAY_MS + 1) * DAY_MS


def charge(tx: engine.Tx, bill: UsageBatch) -> None:
    """Add what has not been added yet. Call this last: the rows stay locked until the transaction ends."""
    if not bill.charges:
        return
    new: Sequence[UsageEntry] = bill.charges
    if not _mark(tx, bill, new):  # some of these were applied before
        applied = tx.execute(_finding_mark(), {"by": bill.owner, "of": bill.kind}).scalar_one()
        new = [each for each in bill.charges if each.number > applied]
        if not new:
            return
        _mark(tx, bill, new)
    tx.execute(_adding(tx.dialect), _folded(day_of(tx.now_ms), new))


def _mark(tx: engine.Tx, bill: UsageBatch, charges: Sequence[UsageEntry]) -> bool:
    """Record these as applied; False, and nothing is recorded, when one of them was already."""
    numbers = [each.number for each in charges]
    mark = {"owner": bill.owner, "kind": bill.kind, "heard": max(numbers), "at_ms": tx.now_ms, "first": min(numbers)}
    return tx.execute(_marking(tx.dialect), mark).first() is not None


def today(tx: engine.Tx, evaluator: str) -> Spent:
    """Return what an evaluator's calls of this day have used up, in all collections and by all processes."""
    return _spent(tx.execute(_finding_day(), {"day": day_of(tx.now_ms), "name": evaluator}).one())


def today_by_evaluator(tx: engine.Tx) -> dict[str, Spent]:
    """Return what the calls of this day have used up, by evaluator."""
    query = sa.select(_S.evaluator, *_sums()).where(_S.day == day_of(tx.now_ms)).group_by(_S.evaluator)
    return {row.evaluator: _spent(row) for row in tx.execute(query)}


def by_collection(tx: engine.Tx) -> dict[tuple[str, str], Spent]:
    """Return what all calls have ever used up, by collection and evaluator."""
    query = sa.select(_S.collection, _S.evaluator, *_sums()).group_by(_S.collection, _S.evaluator)
    return {(row.collection, row.evaluator): _spent(row) for row in tx.execute(query)}


def recent(tx: engine.Tx, evaluator: str, collection: str | None = None) -> Spent:
    """Return what the calls of the last `MEAN_DAYS` have used up: for estimates of the next ones."""
    since = date.fromisoformat(day_of(tx.now_ms)) - timedelta(days=MEAN_DAYS)
    of = sa.true() if collection is None else _S.collection == collection
    query = sa.select(*_sums()).where(_S.day >= since.isoformat(), _S.evaluator == evaluator, of)
    return _spent(tx.execute(query).one())


def totals(
    tx: engine.Tx, by: By, *, collection: str | None = None, evaluator: str | None = None, since: str | None = None
) -> list[tuple[str, Spent]]:
    """Return sums in the order of what they are grouped by; `since` is the first day (`2026-11-30`)."""
    given = {"collection": collection, "evaluator": evaluator}
    chosen = [_S[name] == value for name, value in given.items() if value is not None]
    if since is not None:
        chosen.append(_S.day >= since)
    query = sa.select(_S[by].label("what"), *_sums()).where(*chosen).group_by(_S[by]).order_by(_S[by])
    return [(row.what, _spent(row)) for row in tx.execute(query)]


def purge_marks(tx: engine.Tx) -> int:
    """Delete the last numbers of processes that wrote nothing for `MARK_DAYS`; return how many."""
    old = sa.delete(_MARKS).where(_MARKS.c.at_ms < tx.now_ms - MARK_DAYS * DAY_MS)
    return tx.execute(old.execution_options(preserve_rowcount=True)).rowcount


def _folded(day: str, charges: Iterable[UsageEntry]) -> list[dict[str, Any]]:
    """Return one row for each key, in the order of the keys: two processes then take their locks in one order."""
    rows: dict[tuple[str, str, str], Spent] = {}
    for each in charges:
        one = Spent(1, int(each.cost_usd is None), each.input_tokens, each.output_tokens, each.cost_usd or 0.0)
        key = (each.evaluator, each.collection, each.model)
        rows[key] = rows.get(key, Spent()) + one
    return [
        {**dict(zip(_KEY, (day, *key), strict=True)), **{name: getattr(rows[key], name) for name in _SUMS}}
        for key in sorted(rows)
    ]


def _spent(row: sa.Row[Any]) -> Spent:
    calls, unpriced, input_tokens, output_tokens = (int(getattr(row, name)) for name in _SUMS[:-1])
    return Spent(calls, unpriced, input_tokens, output_tokens, float(row.cost_usd))


def _sums() -> list[sa.Label[Any]]:
    return [sa.func.coalesce(sa.func.sum(_S[name]), 0).label(name) for name in _SUMS]


# Statements of every round of calls, each built once.


@functools.cache
def _finding_mark() -> sa.Select[Any]:
    return sa.select(_MARKS.c.heard).where(_MARKS.c.owner == sa.bindparam("by"), _MARKS.c.kind == sa.bindparam("of"))


@functools.cache
def _finding_day() -> sa.Select[Any]:
    return sa.select(*_sums()).where(_S.day == sa.bindparam("day"), _S.evaluator == sa.bindparam("name"))


@functools.cache
def _marking(dialect: engine.Dialect) -> sa.Executable:
    insert = sqlite.insert(_MARKS) if dialect == "sqlite" else postgresql.insert(_MARKS)
    moved = {name: insert.excluded[name] for name in ("heard", "at_ms")}
    columns: dict[str, sa.BindParameter[Any]] = {
        name: sa.bindparam(name) for name in ("owner", "kind", "heard", "at_ms")
    }
    marked = insert.values(columns).on_conflict_do_update(
        index_elements=["owner", "kind"], set_=moved, where=_MARKS.c.heard < sa.bindparam("first")
    )
    return marked.returning(_MARKS.c.heard)


@functools.cache
def _adding(dialect: engine.Dialect) -> sa.Executable:
    insert = sqlite.insert(_SPEND) if dialect == "sqlite" else postgresql.insert(_SPEND)
    more = {name: _S[name] + insert.excluded[name] for name in _SUMS}
    return insert.on_conflict_do_update(index_elements=list(_KEY), set_=more)
