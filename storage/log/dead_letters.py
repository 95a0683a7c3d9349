"""Events that could not be applied, byte for byte, with the reason and a way back.

One row for each original position, made in the transaction that rejected the event. The bytes stay those of the first
time; reason, message and state are of the last. The dead-letter topic is fed from these rows.
"""

import base64
import functools
from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from facetline.storage.db import bulk_insert, engine, json_rows, models
from facetline.storage.log.events import DeadLetter, Position, Raw
from facetline.storage.log.folding import Letter

_LETTERS = models.DEAD_LETTERS
_POSITION = ("topic", "incarnation", "partition", "offset")
_SAID = ("uri", "stage", "reason", "message", "attempts")
WAITING = ("open", "redriving")
"""States of letters that are not closed."""
_IS_WAITING = sa.text("state IN ('open', 'redriving')")  # as the index says it, which is used for nothing else
ID_MAX = 2**31 - 1
"""Beyond every letter's id."""
KEY_BYTES_MAX = 1_000
"""Of a letter's key in lists."""


def store(tx: engine.Tx, letters: Iterable[Letter]) -> None:
    """Keep rejected events; one that was rejected before gets its attempts added and the new reason.

    A superseded one is closed, and keeps the reason for which it was rejected first; a discarded one stays so.
    """
    latest = {_place(each.event.position): each for each in letters}
    _insert().run(tx, [_row(latest[place], tx.now_ms) for place in sorted(latest)])


@functools.cache
def _insert() -> bulk_insert.Insert:
    kept = "CASE WHEN excluded.state = 'superseded' THEN dead_letters.{0} ELSE {1} END"
    fields = {name: kept.format(name, f"excluded.{name}") for name in ("stage", "reason", "message")}
    counted = {"attempts": "dead_letters.attempts + excluded.attempts", "sent_ms": kept.format("sent_ms", "NULL")}
    state = {"state": "CASE WHEN dead_letters.state = 'discarded' THEN dead_letters.state ELSE excluded.state END"}
    return bulk_insert.Insert(
        _LETTERS,
        (*_POSITION, *_SAID, "key", "value", "headers", "timestamp_ms", "state", "created_ms"),
        conflict=bulk_insert.replacing(_POSITION, [], {**fields, **counted, **state}),
        rows_max=50,  # each may hold 4 MiB
    )


def close(tx: engine.Tx, positions: Iterable[Position]) -> None:
    """Close the letters at these positions, if any, as redriven: their events have been applied after all."""
    places = sorted({_place(position) for position in positions})
    if not places:
        return
    closed = (
        sa.update(_LETTERS)
        .where(
            *(_LETTERS.c[name] == sa.bindparam(f"its_{name}") for name in _POSITION),
            sa.or_(*(_LETTERS.c.state == state for state in WAITING)),  # IN cannot run for many rows
        )
        .values(state="redriven")
    )
    tx.execute(closed, [{f"its_{name}": part for name, part in zip(_POSITION, place, strict=True)} for place in places])


def find(  # the one list that people page through
    tx: engine.Tx,
    *,
    states: Sequence[str] = WAITING,
    reason: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[DeadLetter]:
    """Return the next letters with an id above `after`, by id; for the next page pass the last one's id."""
    query = sa.select(_LETTERS).where(_LETTERS.c.id > after, _in(states))
    if reason is not None:
        query = query.where(_LETTERS.c.reason == reason)
    return [_letter(row) for row in tx.execute(query.order_by(_LETTERS.c.id).limit(limit))]


def listed(
    tx: engine.Tx, *, reason: str | None = None, after: int = 0, before: int | None = None, limit: int = 100
) -> list[DeadLetter]:
    """Return waiting letters without values and headers, and the beginning of their keys alone: those are small.

    By id, from `after` on; with `before`, which no id reaches, backwards from there: the newest first.
    """
    small = [each for each in _LETTERS.c if each.name not in {"key", "value", "headers"}]
    key = sa.func.substr(_LETTERS.c.key, 1, KEY_BYTES_MAX, type_=sa.LargeBinary()).label("key")
    query = sa.select(*small, key, sa.null().label("value"), sa.literal("[]").label("headers"))
    if before is None:
        query = query.where(_LETTERS.c.id > min(after, ID_MAX)).order_by(_LETTERS.c.id)
    else:
        query = query.where(_LETTERS.c.id < before).order_by(_LETTERS.c.id.desc())
    if reason is not None:
        query = query.where(_LETTERS.c.reason == reason)
    return [_letter(row) for row in tx.execute(query.where(_IS_WAITING).limit(limit))]


def get(tx: engine.Tx, letter_id: int) -> DeadLetter | None:
    """Return one letter."""
    if not 0 < letter_id <= ID_MAX:  # a database refuses a larger number, and no letter has one
        return None
    row = tx.execute(sa.select(_LETTERS).where(_LETTERS.c.id == letter_id)).first()
    return None if row is None else _letter(row)


def counts(tx: engine.Tx) -> dict[str, int]:
    """Return how many letters are open, by reason."""
    query = (
        sa.select(_LETTERS.c.reason, sa.func.count().label("letters"))
        .where(_IS_WAITING)
        .group_by(_LETTERS.c.reason)
        .order_by(_LETTERS.c.reason)
    )
    return {row.reason: row.letters for row in tx.execute(query)}


def oldest_open_ms(tx: engine.Tx) -> int | None:
    """Return since when the oldest open letter has been there; None without any."""
    found: int | None = tx.execute(sa.select(sa.func.min(_LETTERS.c.created_ms)).where(_IS_WAITING)).scalar_one()
    return found


def mark_redriven(tx: engine.Tx, letter: DeadLetter, by: str | None = None) -> bool:
    """Note that the event was sent again; False when the letter has changed since it was read.

    It is closed by the event's coming back, not by this: `redriving` only shows that it was sent.
    """
    unchanged = (
        _LETTERS.c.id == letter.id,
        _LETTERS.c.attempts == letter.attempts,
        _LETTERS.c.state.in_(WAITING),
    )
    marked = sa.update(_LETTERS).where(*unchanged).values(state="redriving", handled_ms=tx.now_ms, handled_by=by)
    return tx.execute(marked).rowcount == 1


def discard(tx: engine.Tx, letter_ids: Sequence[int], by: str | None = None) -> list[int]:
    """Close waiting letters permanently, with who did it and when; return the ids of those that were waiting."""
    closed = sa.update(_LETTERS).values(state="discarded", handled_ms=tx.now_ms, handled_by=by)
    known = [each for each in letter_ids if 0 < each <= ID_MAX]
    return [each for each in known if tx.execute(closed.where(_LETTERS.c.id == each, _IS_WAITING)).rowcount]


def unsent(tx: engine.Tx, limit: int = 500) -> list[DeadLetter]:
    """Return the next letters that the dead-letter topic does not have as they now are, by id."""
    query = sa.select(_LETTERS).where(_LETTERS.c.sent_ms.is_(None)).order_by(_LETTERS.c.id).limit(limit)
    return [_letter(row) for row in tx.execute(query)]


def mark_sent(tx: engine.Tx, letters: Iterable[DeadLetter]) -> int:
    """Note that these letters are on the dead-letter topic; one rejected again since stays unsent."""
    sent = (
        sa.update(_LETTERS)
        .where(_LETTERS.c.id == sa.bindparam("its_id"), _LETTERS.c.attempts == sa.bindparam("its_attempts"))
        .values(sent_ms=tx.now_ms)
    )
    rows = sorted((each.id, each.attempts) for each in letters)
    if not rows:
        return 0
    return tx.execute(sent, [{"its_id": letter_id, "its_attempts": attempts} for letter_id, attempts in rows]).rowcount


def _in(states: Sequence[str]) -> sa.ColumnElement[bool] | sa.TextClause:
    return _IS_WAITING if tuple(states) == WAITING else _LETTERS.c.state.in_(states)


def _place(position: Position) -> tuple[str, int, int, int]:
    return position.topic, position.incarnation, position.partition, position.offset


def _row(letter: Letter, now_ms: int) -> tuple[object, ...]:
    raw = letter.event.raw
    parts = (letter.event.uri, letter.stage, letter.reason, letter.message, letter.attempts)
    record = (raw.key, raw.value, _headers_text(raw.headers), raw.timestamp_ms)
    return (*_place(letter.event.position), *parts, *record, letter.state, now_ms)


def _headers_text(headers: Iterable[tuple[str, bytes]]) -> str:
    """Return headers as JSON text; names are escaped, since they need not be valid Unicode."""
    return json_rows.escaped([[name, base64.b64encode(value).decode("ascii")] for name, value in headers])


def _letter(row: sa.Row[tuple[object, ...]]) -> DeadLetter:
    headers = tuple((name, base64.b64decode(value)) for name, value in json_rows.loads(row.headers))
    return DeadLetter(
        id=row.id,
        position=Position(row.topic, row.incarnation, row.partition, row.offset),
        uri=row.uri,
        stage=row.stage,
        reason=row.reason,
        message=row.message,
        attempts=row.attempts,
        raw=Raw(key=row.key, value=row.value, headers=headers, timestamp_ms=row.timestamp_ms),
        state=row.state,
        created_ms=row.created_ms,
        handled_ms=row.handled_ms,
        handled_by=row.handled_by,
    )
