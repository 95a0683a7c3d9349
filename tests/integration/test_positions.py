"""Positions of record: made once, never moved by asking twice, one incarnation for whoever finds a log made anew."""

import asyncio

import applied
import judged

from facetline.storage.db import engine
from facetline.storage.log import apply, positions
from facetline.storage.log.events import Batch
from facetline.storage.log.positions import PositionState


async def test_a_partition_begins_where_its_log_does(store: engine.Store):
    """First sight records the log's start; seeing it again, also with another start, changes nothing."""
    first = await store.write(positions.first_seen, "t", 3, 40)
    again = await store.write(positions.first_seen, "t", 3, 90)

    assert first == again == PositionState(1, 40, None, None)
    assert await store.read(positions.get, "t") == {3: first}


async def test_a_log_made_anew_is_a_new_incarnation(store: engine.Store):
    """The new incarnation begins at its own start, and the newest one is what is told."""
    await store.write(positions.first_seen, "t", 0, 40)

    made = await store.write(positions.new_incarnation, "t", 0, after=1, start_offset=0)

    assert made == PositionState(2, 0, None, None)
    assert await store.read(positions.get, "t") == {0: made}
    assert await store.write(positions.first_seen, "t", 0, 7) == made


async def test_two_who_find_a_log_made_anew_make_one_incarnation(store: engine.Store):
    """Asking twice, at once or after a commit in doubt, gives the incarnation that is there."""
    await store.write(positions.first_seen, "t", 0, 40)

    made = await asyncio.gather(
        *(store.write(positions.new_incarnation, "t", 0, after=1, start_offset=at) for at in (5, 5, 5))
    )
    late = await store.write(positions.new_incarnation, "t", 0, after=1, start_offset=9)

    assert {state.incarnation for state in (*made, late)} == {2}
    assert late.next_offset == 5


async def test_incarnations_of_a_partition_are_applied_separately(store: engine.Store):
    """The same offsets of a log made anew are new records, not redelivery."""
    await store.write(positions.first_seen, judged.TOPIC, 0, 0)
    await applied.apply(store, judged.write("tickets/a", "x"))
    await store.write(positions.new_incarnation, judged.TOPIC, 0, after=1, start_offset=0)

    event = judged.write("tickets/a", "y", event_id="other")
    done = await store.write(apply.apply, [Batch(judged.TOPIC, 2, 0, 0, 1, (event,), (0,))])

    assert [outcome.version for outcome in done.outcomes] == [2]


async def test_topics_are_told_apart(store: engine.Store):
    """A topic's positions are its own."""
    await store.write(positions.first_seen, "one", 0, 1)
    await store.write(positions.first_seen, "two", 0, 2)

    assert (await store.read(positions.get, "two"))[0].next_offset == 2
    assert await store.read(positions.get, "three") == {}


async def test_a_topic_keeps_the_partition_count_of_its_first_use(store: engine.Store):
    """The recorded count is told to whoever comes with another one."""
    unknown = await store.read(positions.topic_partitions, "t")
    first = await store.write(positions.record_topic, "t", 6)
    other = await store.write(positions.record_topic, "t", 12)

    assert (unknown, first, other) == (None, 6, 6)
    assert await store.read(positions.topic_partitions, "t") == 6
