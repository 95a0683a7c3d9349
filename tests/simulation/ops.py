"""What an operation of the plan does to the world."""

import functools
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from simulation.log import PARTITIONS, Intent
from simulation.plan import URIS, WRITES, Op
from simulation.process import WORKER_PACE, Process
from simulation.store import SimStore

from facetline.facets import errors
from facetline.storage import definitions
from facetline.storage.db.engine import Tx
from facetline.storage.jobs import jobs, model
from facetline.storage.log import dead_letters
from facetline.storage.log.events import Raw
from facetline.streams.kafka.write_worker import QUIET_S
from facetline.streams.wire import codec
from facetline.streams.wire.codec import Message

if TYPE_CHECKING:
    from simulation.world import World

REMADE_AFTER_S = 1.2 * QUIET_S / WORKER_PACE
"""A topic that is made anew is away for longer than the write worker trusts what it knows of a log."""


async def do(world: "World", keeper: SimStore, op: Op) -> None:
    """Do it."""
    if op.kind in WRITES:
        _write(world, op)
    elif op.kind in _FAULTS:
        _FAULTS[op.kind](world, op.what)
    else:
        await _OTHERS[op.kind](world, keeper, op)


def _write(world: "World", op: Op) -> None:
    uri, second, *rest = op.what
    number = len(world.sent_ids)
    intent = Intent("write", uri, "sim", f"e{number}")
    if op.kind == "bad":
        intent = replace(intent, bad=second, body="x")
    elif op.kind == "delete":
        intent = replace(intent, kind="delete")
    else:
        intent = replace(intent, body=second, state=rest[0], unless_equal=op.kind == "unless_equal")
    earlier = [each for each in world.sent_ids if each.uri == uri and each.bad is None]
    if op.kind == "again" and earlier:
        intent = earlier[-1]
    if op.kind == "reused" and earlier:
        intent = replace(intent, id=earlier[-1].id)
    if send(world, intent) and op.kind == "twice":
        send(world, intent)


def partition_of(uri: str) -> int:
    """Return the partition of a uri."""
    return URIS.index(uri) % len(PARTITIONS)


def send(world: "World", intent: Intent) -> bool:
    """Append an event, if the log takes it."""
    partition = partition_of(intent.uri)
    if world.loop.time() < world.log.down_until_s[partition]:
        return False
    message = _message(world, intent)
    life = world.log.now(partition)
    if not any(name == "ce_id" for name, _ in message.headers):  # its place is its name
        intent = replace(intent, source="log:documents", id=f"{life.incarnation}/{partition}/{life.end}")
    world.log.append(partition, Raw(message.key, message.value, message.headers, world.now_ms()), intent)
    world.sent_ids.append(intent)
    return True


def _message(world: "World", intent: Intent) -> Message:
    named: dict[str, Any] = {"source": intent.source, "event_id": intent.id}
    if intent.kind == "delete":
        return codec.encode_delete(intent.uri, **named)
    state = None if intent.state is None else json.loads(intent.state)
    deadline_ms = world.now_ms() - 1000 if intent.bad == "expired" else None
    message = codec.encode_write(
        intent.uri, body=intent.body, state=state, unless_equal=intent.unless_equal, deadline_ms=deadline_ms, **named
    )
    match intent.bad:
        case "not_json":
            return replace(message, value=b"{")
        case "unknown_collection":
            return replace(message, key=b"nowhere/x")
        case "null_key":
            return replace(message, key=None)
        case "invalid_state":
            return replace(message, value=b'{"state":{"n":"x"}}')
    return message


async def _burst(world: "World", keeper: SimStore, op: Op) -> None:
    for number, uri in enumerate(URIS):
        body = f"{op.what[0]}/{number}" if op.what[0].startswith("text") else op.what[0]
        send(world, Intent("write", uri, "sim", f"e{len(world.sent_ids)}", body=body))


async def _redrive(world: "World", keeper: SimStore, op: Op) -> None:
    letters = await keeper.read(dead_letters.find)
    letters = [each for each in letters if each.reason != "log_truncated"]
    if not letters:
        return
    letter = world.chance("ops").choice(letters)
    at = letter.position
    partition, place = at.partition, (at.incarnation, at.partition, at.offset)
    if world.loop.time() < world.log.down_until_s[partition]:
        return
    message = codec.redrive(letter)
    intent = world.log.lives[partition][at.incarnation - 1].intents[at.offset]
    await keeper.write(dead_letters.mark_redriven, letter)
    again = replace(intent, origin=place)
    world.log.append(partition, Raw(message.key, message.value, message.headers, world.now_ms()), again)


async def _job(world: "World", keeper: SimStore, op: Op) -> None:
    collection, mode = op.what
    number = len(world.until)
    try:
        await keeper.write(jobs.create, f"job{op.at_s}-{number}", model.JobRequest(collection, mode=mode))
    except errors.Conflict:
        world.note("plan", "another job is active")


async def _cancel(world: "World", keeper: SimStore, op: Op) -> None:
    """Cancel a job now, or (True) as soon as one has given a turn."""
    if op.what[0]:
        world.after_turn = functools.partial(_cancel, world, keeper, replace(op, what=(False,)))
        return
    active = [each for each in await keeper.read(jobs.list_jobs) if each.state in model.ACTIVE]
    if active:
        await keeper.write(jobs.cancel, active[0].id)


async def _activate(world: "World", keeper: SimStore, op: Op) -> None:
    world.active = op.what[0]
    await keeper.write(definitions.activate, world.sets[world.active])


async def _tamper(world: "World", keeper: SimStore, op: Op) -> None:
    """Break a promise, past all product code; no plan draws this."""
    await keeper.write(_TAMPERING[op.what[0]])


def _answers_kept(tx: Tx) -> None:
    tx.execute(sa.text("UPDATE documents SET facets = '{}' WHERE status <> 'indexed'"))
    tx.execute(sa.text("UPDATE documents SET status = 'pending' WHERE status = 'indexed'"))


def _version_lost(tx: Tx) -> None:
    tx.execute(sa.text("UPDATE documents SET version = version - 1"))


def _claim_stolen(tx: Tx) -> None:
    tx.execute(sa.text("UPDATE documents SET owner = 'nobody', lease_until_ms = 1, status = 'pending', facets = NULL"))


_TAMPERING = {"answers kept": _answers_kept, "a version lost": _version_lost, "a claim stolen": _claim_stolen}
_OTHERS = {
    "burst": _burst,
    "redrive": _redrive,
    "job": _job,
    "cancel": _cancel,
    "activate": _activate,
    "tamper": _tamper,
}


def _process(world: "World", slot: int) -> Process:
    return world.processes[slot % world.slots]


def _crash(world: "World", what: tuple[Any, ...]) -> None:
    """Kill whoever comes to a point next, or next but one."""
    point, nth = what
    world.armed[point] = nth


def _kill(world: "World", what: tuple[Any, ...]) -> None:
    world.kill(_process(world, what[0]))


def _stop(world: "World", what: tuple[Any, ...]) -> None:
    world.loop.create_task(world.stop(_process(world, what[0])))


def _slow(world: "World", what: tuple[Any, ...]) -> None:
    slot, most_s, seconds = what[0] % world.slots, what[1], what[2]
    world.slow[slot] = most_s
    world.last(("slow", slot), seconds)


def _away(world: "World", what: tuple[Any, ...]) -> None:
    world.last(("away", what[0] % world.slots), what[1])


def _broker(world: "World", what: tuple[Any, ...]) -> None:
    world.last("broker", what[0])


def _stuck(world: "World", what: tuple[Any, ...]) -> None:
    world.last("stuck", what[0])


def _clock(world: "World", what: tuple[Any, ...]) -> None:
    world.shift_ms += round(what[0] * 1000)
    world.promises.clock_jumped = True


def _evaluator(world: "World", what: tuple[Any, ...]) -> None:
    world.mode = what[0]
    world.last("evaluator", what[1])


def _rebalance(world: "World", what: tuple[Any, ...]) -> None:
    _, slot, partition, _ = what
    world.assigned[partition] = slot % world.slots


def _shared(world: "World", what: tuple[Any, ...]) -> None:
    """A member that has not noticed a rebalance goes on with a partition that another has by now."""
    _, slot, partition, seconds = what
    world.also[partition] = slot % world.slots
    world.last(("shared", partition), float(seconds))


def _rewind(world: "World", what: tuple[Any, ...]) -> None:
    world.disturbed[what[2]] = -what[3] if what[3] < 5 else -1000


def _jump(world: "World", what: tuple[Any, ...]) -> None:
    world.disturbed[what[2]] = what[3]


def _remake(world: "World", what: tuple[Any, ...]) -> None:
    if world.applied_to(what[2]) == 0:
        return  # nothing tells it from the log that was there
    world.log.remake(what[2])
    world.log.down_until_s[what[2]] = world.loop.time() + REMADE_AFTER_S


def _cut(world: "World", what: tuple[Any, ...]) -> None:
    if not world.is_known(what[2]):
        return  # what is cut past the old position before anybody looked is not told from the log that was there
    life = world.log.now(what[2])
    world.log.cut(what[2], life.end - what[3])


def _marker(world: "World", what: tuple[Any, ...]) -> None:
    if world.loop.time() >= world.log.down_until_s[what[2]]:
        world.log.skip(what[2])


_FAULTS = {
    "crash": _crash,
    "kill": _kill,
    "stop": _stop,
    "slow": _slow,
    "away": _away,
    "broker": _broker,
    "stuck": _stuck,
    "clock": _clock,
    "evaluator": _evaluator,
    "rebalance": _rebalance,
    "shared": _shared,
    "rewind": _rewind,
    "jump": _jump,
    "remake": _remake,
    "cut": _cut,
    "marker": _marker,
}
