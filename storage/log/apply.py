"""Applying writes: a batch of events becomes outcomes, documents and dead letters, in one transaction.

A body write and the clearing of its old answers happen together here or not at all. The position of the log moves in
the same transaction, so that an event is applied once however often it is delivered.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import sqlalchemy as sa
import structlog
from sqlalchemy import exc

from facetline.facets import errors
from facetline.facets.documents import EventReason
from facetline.storage import counters
from facetline.storage.db import engine, models
from facetline.storage.db.batch_parameters import chunks
from facetline.storage.log import dead_letters, documents, folding, outcomes, positions
from facetline.storage.log.events import LOCAL_INCARNATION, LOCAL_PARTITION, Applied, Batch, Event, Outcome, Position
from facetline.storage.log.positions import PartitionKey, PositionGap, PositionState
from facetline.storage.queue import completion

RACES_MAX = 5
"""How often the same rows are tried again because another transaction had just made one of them."""
MESSAGE_CHARS_MAX = 300

log = structlog.get_logger(__name__)


def apply(tx: engine.Tx, batches: Sequence[Batch]) -> Applied:
    """Apply what these batches hold above the positions of record, in the given order.

    1. Lock the positions. 2. Skip what was applied before, at any age. 3. Apply the rest. 4. Move the positions.

    Raises:
        PositionGap: a batch begins above its position; nothing was changed.
    """
    states = positions.lock(tx, (_partition(batch) for batch in batches))  # 1
    moved: dict[PartitionKey, PositionState] = {}
    fresh: list[Event] = []
    for batch in batches:
        state = moved.get(_partition(batch)) or states.get(_partition(batch))
        if state is None or batch.start > state.next_offset:
            raise PositionGap(*_partition(batch), None if state is None else state.next_offset)
        fresh += [event for event, at in zip(batch.events, batch.offsets, strict=True) if at >= state.next_offset]  # 2
        if batch.end > state.next_offset:
            moved[_partition(batch)] = positions.moved(state, batch.end, batch.last_timestamp_ms, batch.last_hash)
    found = _store(tx, fresh)  # 3
    positions.advance(tx, moved)  # 4
    _count_duplicates(tx, found)
    return Applied(tuple(found), sum(len(batch.events) for batch in batches) - len(fresh))


def append(tx: engine.Tx, topic: str, events: Sequence[Event]) -> Applied:
    """Append events to the local log and apply them at once; a redriven one keeps its original position."""
    positions.first_seen(tx, topic, LOCAL_PARTITION, 0)
    partition = (topic, LOCAL_INCARNATION, LOCAL_PARTITION)
    state = positions.lock(tx, [partition])[partition]
    offsets = range(state.next_offset, state.next_offset + len(events))
    placed = [
        event if event.redriven else replace(event, position=Position(*partition, offset))
        for event, offset in zip(events, offsets, strict=True)
    ]
    found = _store(tx, placed)
    positions.advance(tx, {partition: positions.moved(state, offsets.stop, None, None)})
    _count_duplicates(tx, found)
    return Applied(tuple(found), 0)


def _partition(batch: Batch) -> PartitionKey:
    return batch.topic, batch.incarnation, batch.partition


def _count_duplicates(tx: engine.Tx, found: Sequence[Outcome]) -> None:
    """Count last of all: the tally's row stays locked until the transaction ends."""
    duplicates = sum(outcome.duplicate for outcome in found)
    if duplicates:
        counters.add(tx, counters.DUPLICATES, duplicates)


def _store(tx: engine.Tx, events: Sequence[Event]) -> list[Outcome]:
    """Apply all together; when the data of one is refused, one by one, so that its neighbours are applied."""
    if not events:
        return []
    try:
        return _isolated(tx, lambda: _together(tx, events))
    except (exc.SQLAlchemyError, UnicodeError, OverflowError) as error:
        if not engine.is_data_error(error):
            raise
        log.warning("batch_redone", events=len(events), error=type(error).__name__)
    found: list[Outcome] = []
    for event in events:
        found += _alone(tx, event)
    return found


def _isolated(tx: engine.Tx, work: Callable[[], list[Outcome]]) -> list[Outcome]:
    """Run `work` under a savepoint, and again when another transaction has made one of its rows meanwhile."""
    for _ in range(RACES_MAX):
        try:
            with tx.savepoint():
                return work()
        except exc.IntegrityError as error:
            if not engine.is_race(error):
                raise
    raise errors.StoreUnavailable("other workers keep writing the same documents; try again")


def _alone(tx: engine.Tx, event: Event) -> list[Outcome]:
    try:
        return _isolated(tx, lambda: _together(tx, [event]))
    except (exc.SQLAlchemyError, UnicodeError, OverflowError) as error:
        if not engine.is_data_error(error):
            raise
        poison = _poisoned(event, error)
    try:
        return _isolated(tx, lambda: _together(tx, [poison]))
    except (exc.SQLAlchemyError, UnicodeError, OverflowError) as error:
        if not engine.is_data_error(error):
            raise
    # Its very names cannot be stored, so its outcome cannot be asked for; the letter alone keeps it.
    nameless = folding.fold({}, {}, [replace(poison, uri=None, position=_storable(poison.position))])
    dead_letters.store(tx, nameless.letters.values())
    return [replace(outcome, uri=event.uri) for outcome in nameless.outcomes]


def _poisoned(event: Event, error: Exception) -> Event:
    state = getattr(getattr(error, "orig", None), "sqlstate", None) or ""
    reason = EventReason.INVALID_TEXT
    if isinstance(error, OverflowError) or state == "22003":
        reason = EventReason.INVALID_STATE
    elif state[:2] == "54":
        reason = EventReason.TOO_LARGE
    text = " ".join(str(getattr(error, "orig", None) or error).split())[:MESSAGE_CHARS_MAX]
    message = f"the store refused it: {text.encode(errors='backslashreplace').decode()}"
    return replace(event, content=None, reason=reason.value, message=message.replace("\0", "\\0"), stage="apply")


def _together(tx: engine.Tx, events: Sequence[Event]) -> list[Outcome]:
    # Outcomes are read after the documents are locked: the same event in another transaction has ended by then.
    known = documents.standing(tx, {event.uri for event in events if event.uri is not None and event.content})
    settled = outcomes.settled(tx, {(event.source, event.id) for event in events})
    folded = folding.fold(known, settled, events)
    changes = [folded.changes[uri] for uri in sorted(folded.changes)]
    documents.store(tx, changes)
    _supersede_items(tx, [change.after.uri for change in changes if change.cleared and change.before is not None])
    outcomes.store(tx, folded.outcomes)
    dead_letters.store(tx, folded.letters.values())
    dead_letters.close(tx, folded.redriven)
    return folded.outcomes


def _storable(position: Position) -> Position:
    """Return a position that any database takes: that of a redriven event is given by its sender."""
    return Position(
        topic=position.topic.encode("ascii", "backslashreplace").decode().replace("\0", "\\0"),
        incarnation=min(max(position.incarnation, 0), 2**31 - 1),
        partition=min(max(position.partition, 0), 2**31 - 1),
        offset=min(max(position.offset, 0), 2**63 - 1),
    )


def _supersede_items(tx: engine.Tx, uris: list[str]) -> None:
    items = models.JOB_ITEMS
    for chunk in chunks(uris):
        passed = sa.update(items).where(tx.among(items.c.uri, chunk), completion.OPEN_ITEM)
        tx.execute(passed.values(state="superseded"))
