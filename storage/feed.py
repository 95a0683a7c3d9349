"""The feed: every document's newest state, in an order without gaps, from 0 or from anywhere.

A visible change sets a row's `feed_seq` to null. A reader numbers such rows first, each with a number above all
that were ever given; the counter's row is locked for it, so a number that is higher was also committed later. A reader
that takes `feed_seq > position` in order therefore misses nothing and never goes back. Bodies are never read here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from facetline.facets.documents import Record, Shown
from facetline.storage.db import batch_parameters, engine, json_rows, models
from facetline.storage.generations import Generation

NUMBERED_MAX = 5_000
"""Rows numbered in one transaction: some tens of milliseconds under the counter's lock."""

_STORES = models.STORE
_DOCUMENTS = models.DOCUMENTS
UNNUMBERED = _DOCUMENTS.c.feed_seq.is_(None)
"""The condition that a document has changed since it was last numbered."""
_NUMBERED = _DOCUMENTS.c.feed_seq.is_not(None)
_ANY_UNNUMBERED = sa.select(_DOCUMENTS.c.uri).where(UNNUMBERED).exists()
_SHOWN = (
    *(_DOCUMENTS.c[name] for name in ("feed_seq", "uri", "collection", "scope", "key", "version", "revision")),
    *(_DOCUMENTS.c[name] for name in ("indexed_as", "status", "reason", "facets", "state", "fingerprint")),
    _DOCUMENTS.c.written_ms * 1_000,
    _DOCUMENTS.c.classified_ms * 1_000,
)
"""What `Shown` consists of, in its order."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store stands: its feed's end, whether changes wait for a number, and the generations of the rest."""

    store_id: str
    definitions: Generation
    credentials: Generation
    end: int
    unnumbered: bool


def place(tx: engine.Tx) -> Place:
    """Return where the store stands; it costs the same however much the store holds."""
    row = tx.execute(sa.select(_STORES, _ANY_UNNUMBERED.label("unnumbered"))).one()
    return Place(
        store_id=row.store_id,
        definitions=Generation(row.definitions_generation, row.definitions_mark),
        credentials=Generation(row.credentials_generation, row.credentials_mark),
        end=row.feed_seq,
        unnumbered=bool(row.unnumbered),
    )


def page(tx: engine.Tx, after: int, limit: int, collection: str) -> tuple[list[Shown], int, frozenset[str]]:
    """Return what `shown` does, the feed's end at that moment, and what of the collection had no number then.

    A page that is shorter than `limit` is the last one: who has taken it holds every document of the collection at
    least as it was numbered up to that end, apart from those without a number. They have changed since they were
    numbered, and are read neither as they were nor as they are. Of them there are at most `NUMBERED_MAX + 1`.
    """
    query = sa.select(_DOCUMENTS.c.uri).where(
        UNNUMBERED, batch_parameters.unindexed(_DOCUMENTS.c.collection) == collection
    )
    changed = frozenset(tx.execute(query.limit(NUMBERED_MAX + 1)).scalars())
    return shown(tx, after, limit, collection), end(tx), changed


def number(tx: engine.Tx, limit: int = NUMBERED_MAX) -> int:
    """Number at most `limit` changed documents; return how many. Call again until fewer than `limit` are left.

    A row that someone is changing just now is left to the next call.
    """
    if tx.execute(sa.select(_DOCUMENTS.c.uri).where(UNNUMBERED).limit(1)).first() is None:
        return 0
    # 1. The counter's lock: no one else numbers until this transaction has committed.
    base = int(tx.execute(tx.lock_rows(sa.select(_STORES.c.feed_seq))).scalar_one())
    # 2. Changed rows, without waiting for any: the counter is never held while waiting for a document.
    changed = sa.select(_DOCUMENTS.c.uri).where(UNNUMBERED).order_by(_DOCUMENTS.c.uri).limit(limit)
    picked = tx.lock_rows(changed, skip_locked=True).cte("picked")
    place = sa.func.row_number().over(order_by=picked.c.uri).label("place")
    numbered = sa.select(picked.c.uri, place).cte("numbered")
    given = sa.update(_DOCUMENTS).where(_DOCUMENTS.c.uri == numbered.c.uri).values(feed_seq=base + numbered.c.place)
    tx.execute(given)
    # 3. The counter itself. (A driver's row count cannot be had: sqlite3 gives none for a statement with a CTE.)
    numbers = sa.select(sa.func.max(_DOCUMENTS.c.feed_seq)).where(_NUMBERED)
    highest = int(tx.execute(numbers).scalar_one() or 0)
    if highest <= base:  # whatever has changed is locked by someone
        return 0
    tx.execute(sa.update(_STORES).values(feed_seq=highest))
    return highest - base


def newest(tx: engine.Tx, after: int, limit: int, collection: str) -> tuple[list[Shown], set[str]] | None:
    """Number what has changed, and return what `shown` does with what could not be numbered.

    All of a collection as it stands, if neither is there to the limit: between numbering and reading in two
    transactions a document may change once more, and would be seen neither as it was nor as it is. None: there is more
    to number than one transaction should; read by pages first. What could not be numbered was locked by someone.
    """
    tx.execute(tx.lock_rows(sa.select(_STORES.c.feed_seq)))  # what is without a number below stays so to the end
    if number(tx) >= NUMBERED_MAX:
        return None
    records = shown(tx, after, limit, collection)
    passed_over = sa.select(_DOCUMENTS.c.uri).where(
        UNNUMBERED, batch_parameters.unindexed(_DOCUMENTS.c.collection) == collection
    )
    return records, set(tx.execute(passed_over.limit(limit)).scalars())


def read(tx: engine.Tx, after: int, limit: int) -> list[Record]:
    """Return the next records with `feed_seq > after`, in order; deleted documents are among them."""
    query = sa.select(_DOCUMENTS).where(_DOCUMENTS.c.feed_seq > after).order_by(_DOCUMENTS.c.feed_seq).limit(limit)
    return [json_rows.record(row) for row in tx.execute(query)]


def shown(tx: engine.Tx, after: int, limit: int, collection: str) -> list[Shown]:
    """Return the next records of a collection as `read` does, as much of them as a view takes."""
    query = sa.select(*_SHOWN).where(_DOCUMENTS.c.feed_seq > after).order_by(_DOCUMENTS.c.feed_seq).limit(limit)
    # By the order of the feed, however small the collection is: a page never sorts more than itself.
    query = query.where(batch_parameters.unindexed(_DOCUMENTS.c.collection) == collection)
    return list(map(Shown._make, tx.execute(query)))


def records(tx: engine.Tx, uris: Sequence[str]) -> list[Record]:
    """Return the records of some documents, in feed order; one that has changed since it was numbered is left out."""
    query = sa.select(_DOCUMENTS).where(_DOCUMENTS.c.uri.in_(uris), _NUMBERED).order_by(_DOCUMENTS.c.feed_seq)
    return [json_rows.record(row) for row in tx.execute(query)]


def end(tx: engine.Tx) -> int:
    """Return the highest number ever given. A reader whose position is above it has read another store."""
    return int(tx.execute(sa.select(_STORES.c.feed_seq)).scalar_one())
