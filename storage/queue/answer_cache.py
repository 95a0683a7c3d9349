"""Valid answers remembered by what they are about: (scope, body hash, fingerprint). Failures are never kept.

An entry's time is when its answer was asked for, not when it came: a forced reindex takes no answer that someone asked
for before it.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from facetline.storage.db import batch_parameters, engine, models

_MEMO = models.MEMO
_KEY: dict[str, batch_parameters.Kind] = {"scope": "text", "body_hash": "text", "fingerprint": "text"}


class Key(NamedTuple):
    """What an answer is about."""

    scope: str
    body_hash: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A remembered answer, as the JSON texts that a document's row holds."""

    key: Key
    facets: str
    evaluation: str
    asked_ms: int


def get(tx: engine.Tx, keys: Iterable[Key]) -> dict[Key, Entry]:
    """Return the entries that there are for `keys`; at most `batches.ROWS_MAX` keys are asked for at once."""
    found: dict[Key, Entry] = {}
    for chunk in batch_parameters.chunks(sorted(set(keys))):
        asked = batch_parameters.parameter("asked", [key._asdict() for key in chunk])
        for row in tx.execute(_finding(tx.dialect), asked):
            key = Key(row.scope, row.body_hash, row.fingerprint)
            found[key] = Entry(key, row.facets, row.evaluation, row.created_ms)
    return found


def put(tx: engine.Tx, entries: Iterable[Entry]) -> None:
    """Remember answers. Of two for one key the one asked for later stays, unless that lies in the future."""
    latest: dict[Key, Entry] = {}
    for entry in sorted(entries, key=lambda each: each.asked_ms):
        latest[entry.key] = entry
    if not latest:
        return
    # Sorted: two writers that remember the same keys take their locks in one order.
    tx.execute(_putting(tx.dialect), [{**_row(latest[key]), "now": tx.now_ms} for key in sorted(latest)])


def prune(tx: engine.Tx, rows_max: int, limit: int) -> int:
    """Forget the oldest entries beyond `rows_max`, at most `limit` in one transaction; return how many."""
    surplus = int(tx.execute(sa.select(sa.func.count()).select_from(_MEMO)).scalar_one()) - rows_max
    if surplus <= 0:
        return 0
    oldest = tx.lock_rows(
        sa.select(*(_MEMO.c[part] for part in _KEY)).order_by(_MEMO.c.created_ms).limit(min(surplus, limit)),
        skip_locked=True,
    )
    keys = [dict(row) for row in tx.execute(oldest).mappings()]
    if keys:
        tx.execute(sa.delete(_MEMO).where(*(_MEMO.c[part] == sa.bindparam(part) for part in _KEY)), keys)
    return len(keys)


@functools.cache
def _finding(dialect: engine.Dialect) -> sa.Select[Any]:
    """The query of every claim, built once."""
    asked = batch_parameters.shape(dialect, "asked", tuple(_KEY.items()))
    same = sa.and_(*(_MEMO.c[part] == asked.c[part] for part in _KEY))
    return sa.select(_MEMO).select_from(asked.join(_MEMO, same))


@functools.cache
def _putting(dialect: engine.Dialect) -> sa.Executable:
    """The statement of every batch of answers, built once."""
    insert = sqlite.insert(_MEMO) if dialect == "sqlite" else postgresql.insert(_MEMO)
    return insert.on_conflict_do_update(
        index_elements=list(_KEY),
        set_={column: insert.excluded[column] for column in ("facets", "evaluation", "created_ms")},
        where=sa.or_(insert.excluded.created_ms >= _MEMO.c.created_ms, _MEMO.c.created_ms > sa.bindparam("now")),
    )


def _row(entry: Entry) -> dict[str, object]:
    key = entry.key._asdict()
    return {**key, "facets": entry.facets, "evaluation": entry.evaluation, "created_ms": entry.asked_ms}


def cached(dialect: engine.Dialect) -> sa.ColumnElement[bool]:
    """Return the condition that a document's answer came from memory."""
    text: sa.Column[str] = models.DOCUMENTS.c.evaluation
    if dialect == "sqlite":
        found: sa.ColumnElement[bool] = sa.func.json_extract(text, "$.cached") == sa.literal(1)
    else:
        found = sa.cast(text, postgresql.JSON)["cached"].as_string() == sa.literal("true")
    return found
