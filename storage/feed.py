"""The feed: every document's newest state, in an order without gaps, from 0 or from anywhere.

A visible change sets a row's `feed_seq` to null. A reader numbers such rows first, each with a number above all
that were ever given; the counter's row is locked for it, so a number that is higher was also committed later. A reader
that takes `feed_seq > position` in order therefore misses nothing and never goes back. Bodies are read for those who
ask for them, and in the same transaction: a body never belongs to another write than its record.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa

from facetline.facets.documents import Record, Shown
from facetline.storage.db import batch_parameters, engine, json_rows, models
from facetline.storage.generations import Generation

NUMBERED_MAX = 5_000
"""Rows numbered in one transaction: some tens of milliseconds under the counter's lock."""

BODIES_AT_ONCE = 100
"""Bodies read by one statement: 50 MB, where each is as long as it may be."""
BODY_CHARS_MAX = 32 * 1024 * 1024
"""Of the bodies of one page, about."""

_STORES = models.STORE
_BODIES = models.BODIES
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


Lacking = Callable[[Sequence[Shown]], Collection[str]]
"""Returns the uris of those of these records whose bodies are wanted."""


class Page(NamedTuple):
    """Records in the order of the feed; `last`: no more were there."""

    records: list[Shown]
    last: bool


class End(NamedTuple):
    """A page, the feed's end at that moment, and what of the collection had no number then."""

    records: list[Shown]
    last: bool
    end: int
    changed: frozenset[str]


class Newest(NamedTuple):
    """A page of all there is, and what could not be numbered, because someone had locked it."""

    records: list[Shown]
    last: bool
    passed_over: set[str]


def page(tx: engine.Tx, after: int, limit: int, collection: str, lacking: Lacking | None = None) -> Page:
    """Return what `shown` does, with the bodies of those that are lacking: fewer records where bodies are long."""
    found = shown(tx, after, limit, collection)
    if lacking is None:
        return Page(found, len(found) < limit)
    records = _with_bodies(tx, found, lacking(found))
    return Page(records, len(records) == len(found) < limit)


def page_and_end(tx: engine.Tx, after: int, limit: int, collection: str, lacking: Lacking | None = None) -> End:
    """Return what `page` does, the feed's end at that moment, and what of the collection had no number then.

    Who has taken the last page holds every document of the collection at least as it was numbered up to that end, apart
    from those without a number. They have changed since they were numbered, and are read neither as they were nor as
    they are. Of them there are at most `NUMBERED_MAX + 1`.
    """
    query = sa.select(_DOCUMENTS.c.uri).where(
        UNNUMBERED, batch_parameters.unindexed(_DOCUMENTS.c.collection) == collection
    )
    changed = frozenset(tx.execute(query.limit(NUMBERED_MAX + 1)).scalars())
    found = page(tx, after, limit, collection, lacking)
    return End(found.records, found.last, end(tx), changed)


def _with_bodies(tx: engine.Tx, records: list[Shown], wanted: Collection[str]) -> list[Shown]:
    """Return the records, with the bodies of those that are wanted; fewer of them where bodies are long.

    A record that has changed since it was read is left out: it comes again with its new number.
    """
    if not wanted:
        return records
    names, found, chars = set(wanted), [], 0
    for start in range(0, len(records), BODIES_AT_ONCE):
        part = records[start : start + BODIES_AT_ONCE]
        bodies = _bodies(tx, [each.uri for each in part if each.uri in names])
        for record in part:
            revision, body = bodies.get(record.uri) or (record.revision, None)
            if revision == record.revision:
                found.append(record if body is None else record._replace(body=body))
                chars += len(body or "")
        if chars > BODY_CHARS_MAX:
            break
    return found


def _bodies(tx: engine.Tx, uris: Sequence[str]) -> dict[str, tuple[int, str]]:
    query = sa.select(_DOCUMENTS.c.uri, _DOCUMENTS.c.revision, _BODIES.c.body)
    joined = query.join(_BODIES, _BODIES.c.uri == _DOCUMENTS.c.uri).where(_DOCUMENTS.c.uri.in_(uris))
    return {row.uri: (row.revision, row.body or "") for row in tx.execute(joined)}


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


def newest(tx: engine.Tx, after: int, limit: int, collection: str, lacking: Lacking | None = None) -> Newest | None:
    """Number what has changed, and return what `page` does with what could not be numbered.

    All of a collection as it stands, if neither is there to the limit: between numbering and reading in two
    transactions a document may change once more, and would be seen neither as it was nor as it is. None: there is more
    to number than one transaction should; read by pages first. What could not be numbered was locked by someone.
    """
    tx.execute(tx.lock_rows(sa.select(_STORES.c.feed_seq)))  # what is without a number below stays so to the end
    if number(tx) >= NUMBERED_MAX:
        return None
    found = page(tx, after, limit, collection, lacking)
    passed_over = sa.select(_DOCUMENTS.c.uri).where(
        UNNUMBERED, batch_parameters.unindexed(_DOCUMENTS.c.collection) == collection
    )
    return Newest(found.records, found.last, set(tx.execute(passed_over.limit(limit)).scalars()))


def read(tx: engine.Tx, after: int, limit: int) -> list[Record]:
    """Return the next records with `feed_seq > after`, in order; deleted documents are among them."""
    query = sa.select(_DOCUMENTS).where(_DOCUMENTS.c.feed_seq > after).order_by(_DOCUMENTS.c.feed_seq).limit(limit)
    return [json_rows.record(row) for row in tx.execute(query)]


def shown(tx: engine.Tx, after: int, limit: int, collection: str) -> list[Shown]:
    """Return the next records of a collection as `read` does, as much of them as a view takes."""
    query = sa.select(*_SHOWN).where(_DOCUMENTS.c.feed_seq > after).order_by(_DOCUMENTS.c.feed_seq).limit(limit)
    # By the order of the feed, however small the collection is: a page never sorts more than itself.
    query = query.where(batch_parameters.unindexed(_DOCUMENTS.c.collection) == collection)
    return [Shown._make((*row, None)) for row in tx.execute(query)]


def records(tx: engine.Tx, uris: Sequence[str]) -> list[Record]:
    """Return the records of some documents, in feed order; one that has changed since it was numbered is left out."""
    query = sa.select(_DOCUMENTS).where(_DOCUMENTS.c.uri.in_(uris), _NUMBERED).order_by(_DOCUMENTS.c.feed_seq)
    return [json_rows.record(row) for row in tx.execute(query)]


def end(tx: engine.Tx) -> int:
    """Return the highest number ever given. A reader whose position is above it has read another store."""
    return int(tx.execute(sa.select(_STORES.c.feed_seq)).scalar_one())
