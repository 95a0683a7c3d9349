"""The end of a run: followers that read the feed all the while, and what must hold when everything has healed."""

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simulation.log import PARTITIONS, TOPIC
from simulation.promises import Broken, holds
from simulation.store import SimStore, database

from facetline.facets.search.selection import Selection
from facetline.storage import feed
from facetline.streams.views.follower import Follower

if TYPE_CHECKING:
    from simulation.world import World

FOLLOW_S = 1.5
QUIET_WITHIN_S = 120.0


async def follow(world: "World", keeper: SimStore) -> None:
    """Read the feed now and then, as a view would."""
    while True:
        await asyncio.sleep(FOLLOW_S)
        await read_feed(world, keeper)


async def read_feed(world: "World", keeper: SimStore) -> None:
    """Number, read on, and compare each record with what the store has held; no document goes back."""
    await keeper.write(feed.number)
    for record in await keeper.read(feed.read, world.feed_at, 1000):
        held = world.promises.history.get((record.uri, record.version))
        shown = (record.version, record.revision, record.indexed_as, record.status.value, record.facets)
        before = world.feed_view.get(record.uri)
        if held is None or _told(held) != shown:
            world.broke(f"the feed says {shown} of {record.uri}, the store held {held}")
        if before and (before[0] > record.version or before[2] > record.indexed_as):
            world.broke(f"the feed went back from {before} to {shown} for {record.uri}")
        if record.feed_seq <= world.feed_at:
            world.broke(f"feed_seq {record.feed_seq} came after {world.feed_at}")
        world.feed_view[record.uri] = shown
        world.feed_at = record.feed_seq


def _told(row: dict[str, Any]) -> tuple[Any, ...]:
    facets = None if row["facets"] is None else json.loads(row["facets"])
    return (row["version"], row["revision"], row["indexed_as"], row["status"], facets)


async def finish(world: "World", keeper: SimStore) -> None:
    """Heal: writes end although no model answers; then everything ends."""
    world.faulty = False
    world.trouble = 0.0
    world.armed.clear()
    if world.failure is None and not all(each.definitions == world.active for each in world.processes.values()):
        for process in list(world.processes.values()):
            if process.definitions != world.active:
                world.kill(process)
    if world.seed % 5 == 1:
        world.silent = True
        await _until(world, lambda: _positions() == _ends(world), "applied while no model answers")
        world.silent = False
    await _until(world, lambda: is_quiet(world), "quiet")
    if world.failure:
        return
    await read_feed(world, keeper)
    if world.publishes:
        await _published(world)
    world.check(lambda: _compare(world))
    if world.views:
        await _compare_views(world, keeper)


async def _until(world: "World", condition: Callable[[], bool], what: str) -> None:
    until_s = world.loop.time() + QUIET_WITHIN_S
    while not world.failure and not condition():
        if world.loop.time() > until_s:
            world.broke(f"not {what} after {QUIET_WITHIN_S:g} s: {_waiting(world)}")
        await asyncio.sleep(0.25)


def _waiting(world: "World") -> str:
    data = database()
    pending = data.rows("SELECT uri, indexed_as, owner, due_ms, lease_until_ms FROM documents WHERE status = 'pending'")
    jobs = data.rows("SELECT id, state, owner FROM jobs WHERE state IN ('queued', 'running')")
    return f"pending {pending}, jobs {jobs}, positions {_positions()}, ends {_ends(world)}"


def _positions() -> dict[int, tuple[int, int]]:
    rows = database().rows(f"SELECT * FROM positions WHERE topic = '{TOPIC}' ORDER BY incarnation")
    return {row["partition"]: (row["incarnation"], row["next_offset"]) for row in rows}


def _ends(world: "World") -> dict[int, tuple[int, int]]:
    return {each: (world.log.now(each).incarnation, world.log.now(each).end) for each in PARTITIONS}


def is_quiet(world: "World") -> bool:
    """Say whether all records are applied, all documents settled and all jobs over."""
    data = database()
    if data.rows("SELECT 1 FROM documents WHERE status = 'pending' LIMIT 1"):
        return False
    if data.rows("SELECT 1 FROM jobs WHERE state IN ('queued', 'running') LIMIT 1"):
        return False
    return _positions() == _ends(world)


def _compare(world: "World") -> None:
    """Outcomes and letters are the model's; the feed's reader has what the store has."""
    promises, model, data = world.promises, world.promises.model, database()
    rows = data.rows("SELECT * FROM outcomes WHERE outcome <> 'rejected'")
    settled = {(row["source"], row["event_id"]): (row["outcome"], row["version"]) for row in rows}
    wanted = {key: (said, version) for key, (_, said, version) in model.settled.items()}
    holds(settled == wanted, f"outcomes differ: {sorted(set(settled.items()) ^ set(wanted.items()), key=str)}")
    rows = data.rows("SELECT * FROM dead_letters WHERE reason <> 'log_truncated'")
    letters = {
        (row["incarnation"], row["partition"], row["offset"]): (
            row["reason"],
            "open" if row["state"] == "redriving" else row["state"],
            row["attempts"],
        )
        for row in rows
    }
    expected = {place: (each.reason, each.state, each.attempts) for place, each in model.letters.items()}
    holds(letters == expected, f"letters differ: {sorted(set(letters.items()) ^ set(expected.items()), key=str)}")
    stored = {uri: _told(row) for uri, row in promises.rows.items()}
    holds(world.feed_view == stored, f"the feed's reader has {world.feed_view}, the store {stored}")
    rows = data.rows("SELECT model, sum(calls) AS calls FROM spend WHERE model LIKE 'call-%' GROUP BY model")
    charged = {int(row["model"].removeprefix("call-")): row["calls"] for row in rows}
    holds(set(charged.values()) <= {1}, f"calls were charged more than once: {charged}")
    holds(promises.paid <= set(charged), f"answers of calls {sorted(promises.paid - set(charged))} were not charged")
    for (uri, indexed_as), begun in promises.begun.items():
        most = 1 + promises.allowed.get((uri, indexed_as), 0)
        holds(begun <= most, f"{uri}/{indexed_as}: {begun} calls, {most} allowed")


async def _published(world: "World") -> None:
    """The facets topic ends with every document's newest version."""
    wanted = {uri: row["version"] for uri, row in world.promises.rows.items()}
    until_s = world.loop.time() + 30.0
    while world.facets_topic != wanted and world.loop.time() < until_s:  # noqa: ASYNC110 (simulated)
        await asyncio.sleep(0.5)
    if world.facets_topic != wanted:
        world.broke(f"published {world.facets_topic}, stored {wanted}")


async def _compare_views(world: "World", keeper: SimStore) -> None:
    """Searching the real view finds what the store says, by each value and by none."""
    for definition in world.sets[world.active]:
        follower = Follower(keeper, definition.name)
        rows = [row for row in world.promises.rows.values() if row["collection"] == definition.name]
        try:
            for value in ("billing", "outage", "other", "__missing__"):
                selection = Selection(collection=definition.name, facets={"topic": (value,)}, limit=100)
                reply = await follower.search(selection)
                found = sorted(hit["uri"] for hit in reply["hits"])
                wanted = sorted(row["uri"] for row in rows if row["status"] != "deleted" and _value(row) == value)
                if found != wanted:
                    raise Broken(f"{definition.name} topic={value} finds {found}, must find {wanted}")
        finally:
            await follower.close()


def _value(row: dict[str, Any]) -> str:
    return "__missing__" if row["facets"] is None else str(json.loads(row["facets"])["topic"]["choice"])
