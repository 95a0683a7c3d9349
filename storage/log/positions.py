"""How far each partition of a log has been applied: the position of record, whatever a consumer group says.

A partition that was created again is a new incarnation with its own row. Rows are locked in the order of topic,
incarnation and partition, so that no two workers wait for each other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from facetline.facets import errors
from facetline.storage.db import engine, models

_POSITIONS = models.POSITIONS
_TOPICS = models.TOPICS

PartitionKey = tuple[str, int, int]
"""Topic, incarnation, partition."""


class PositionGap(errors.PipelineError):
    """Records before these have not been applied yet: read the log from `expected` on, then go on.

    `expected` is None when the store has never seen the partition: call `first_seen` first.
    """

    def __init__(self, topic: str, incarnation: int, partition: int, expected: int | None) -> None:
        super().__init__(f"{topic}/{partition} (incarnation {incarnation}): the next offset to apply is {expected}")
        self.topic = topic
        self.incarnation = incarnation
        self.partition = partition
        self.expected = expected


@dataclass(frozen=True, slots=True)
class PositionState:
    """Where a partition stands; timestamp and hash are of the last record below it, None where none was seen."""

    incarnation: int
    next_offset: int
    last_timestamp_ms: int | None
    last_hash: str | None


def first_seen(tx: engine.Tx, topic: str, partition: int, start_offset: int) -> PositionState:
    """Record that a partition's log begins at `start_offset`, unless it is known; return where it stands."""
    known = _newest(tx, topic, partition)
    return known or _create(tx, topic, partition, 1, start_offset)


def new_incarnation(tx: engine.Tx, topic: str, partition: int, *, after: int, start_offset: int) -> PositionState:
    """Record that the log was created again since incarnation `after`; return its position.

    A second process, or a second call, gets the incarnation that is there already.
    """
    return _create(tx, topic, partition, after + 1, start_offset)


def get(tx: engine.Tx, topic: str) -> dict[int, PositionState]:
    """Return the newest incarnation of each partition of a topic."""
    rows = tx.execute(sa.select(_POSITIONS).where(_POSITIONS.c.topic == topic).order_by(_POSITIONS.c.incarnation)).all()
    return {row.partition: _state(row) for row in rows}


def lock(tx: engine.Tx, keys: Iterable[PartitionKey]) -> dict[PartitionKey, PositionState]:
    """Lock the rows of these partitions until the transaction ends, in sorted order; unknown ones are left out."""
    columns = (_POSITIONS.c.topic, _POSITIONS.c.incarnation, _POSITIONS.c.partition)
    found = {}
    for key in sorted(set(keys)):  # a worker owns few partitions; one by one, the order is certain
        which = [column == value for column, value in zip(columns, key, strict=True)]
        row = tx.execute(tx.lock_rows(sa.select(_POSITIONS).where(*which))).first()
        if row is not None:
            found[key] = _state(row)
    return found


def advance(tx: engine.Tx, states: Mapping[PartitionKey, PositionState]) -> None:
    """Store where these partitions, locked before, stand now."""
    if not states:
        return
    moved = (
        sa.update(_POSITIONS)
        .where(
            _POSITIONS.c.topic == sa.bindparam("its_topic"),
            _POSITIONS.c.incarnation == sa.bindparam("its_incarnation"),
            _POSITIONS.c.partition == sa.bindparam("its_partition"),
        )
        .values({name: sa.bindparam(name) for name in ("next_offset", "last_timestamp_ms", "last_hash")})
    )
    rows = [
        {
            "its_topic": topic,
            "its_incarnation": incarnation,
            "its_partition": partition,
            "next_offset": state.next_offset,
            "last_timestamp_ms": state.last_timestamp_ms,
            "last_hash": state.last_hash,
        }
        for (topic, incarnation, partition), state in sorted(states.items(), key=lambda item: item[0])
    ]
    tx.execute(moved, rows)


def moved(state: PositionState, end: int, timestamp_ms: int | None, record_hash: str | None) -> PositionState:
    """Return the state after everything below `end` has been applied."""
    return replace(state, next_offset=end, last_timestamp_ms=timestamp_ms, last_hash=record_hash)


def record_topic(tx: engine.Tx, topic: str, partitions: int) -> int:
    """Record a topic's partition count at first use; return the recorded one, which may be another."""
    insert = sqlite.insert(_TOPICS) if tx.dialect == "sqlite" else postgresql.insert(_TOPICS)
    tx.execute(insert.on_conflict_do_nothing(), {"topic": topic, "partitions": partitions})
    return topic_partitions(tx, topic) or partitions


def topic_partitions(tx: engine.Tx, topic: str) -> int | None:
    """Return the recorded partition count; None when the topic has not been used."""
    return tx.execute(sa.select(_TOPICS.c.partitions).where(_TOPICS.c.topic == topic)).scalar_one_or_none()


def _newest(tx: engine.Tx, topic: str, partition: int) -> PositionState | None:
    query = (
        sa.select(_POSITIONS)
        .where(_POSITIONS.c.topic == topic, _POSITIONS.c.partition == partition)
        .order_by(_POSITIONS.c.incarnation.desc())
        .limit(1)
    )
    row = tx.execute(query).first()
    return None if row is None else _state(row)


def _create(tx: engine.Tx, topic: str, partition: int, incarnation: int, start_offset: int) -> PositionState:
    insert = sqlite.insert(_POSITIONS) if tx.dialect == "sqlite" else postgresql.insert(_POSITIONS)
    row = {
        "topic": topic,
        "incarnation": incarnation,
        "partition": partition,
        "next_offset": start_offset,
        "created_ms": tx.now_ms,
    }
    tx.execute(insert.on_conflict_do_nothing(), row)
    created = _newest(tx, topic, partition)
    assert created is not None  # noqa: S101 (inserted just now, here or by someone else)
    return created


def _state(row: sa.Row[tuple[object, ...]]) -> PositionState:
    return PositionState(row.incarnation, row.next_offset, row.last_timestamp_ms, row.last_hash)
