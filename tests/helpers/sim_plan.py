"""What happens in one simulation: operations and faults with their times, drawn from a seed before it starts."""

import random
from dataclasses import dataclass
from typing import Any

URIS = ("tickets/a", "tickets/b", "tickets/c", "tickets/d", "@x/notes/a", "@x/notes/b", "@y/notes/a")
BODIES = ("money", "down", "hello", "money again", " ")
SLOTS = (0, 1, 2)
FIRST_S, LAST_S = 1.0, 18.0
POINTS = (
    *("apply.before_commit", "apply.after_commit", "chain.after_claim", "chain.before_store", "chain.after_store"),
    *("publish.before_send", "publish.after_send", "publish.after_mark", "reindex.before_turn", "reindex.after_turn"),
)
WRITES = {"write": 14, "state": 4, "delete": 4, "unless_equal": 2, "again": 2, "reused": 1, "twice": 2, "bad": 3}
OTHERS = {"burst": 2, "redrive": 4, "job": 5, "cancel": 1, "activate": 2}
FAULTS = {
    "crash": 6,
    "kill": 2,
    "stop": 2,
    "slow": 3,
    "away": 2,
    "broker": 1,
    "evaluator": 5,
    "rebalance": 2,
    "rewind": 2,
    "jump": 2,
    "stuck": 1,
    "remake": 1,
    "cut": 1,
    "marker": 2,
}


@dataclass(frozen=True)
class Op:
    """One thing that happens at a time; `what` are its details."""

    at_s: float
    kind: str
    what: tuple[Any, ...] = ()


def plan(seed: int) -> list[Op]:
    """Return what happens in the simulation of a seed, in order of time."""
    chance = random.Random(f"plan {seed}")  # noqa: S311 (repeatable on purpose)
    weights = {**WRITES, **OTHERS, **FAULTS}
    if chance.random() < 0.2:  # some runs without faults of the surroundings
        weights = {**WRITES, **OTHERS}
    kinds = chance.choices(list(weights), list(weights.values()), k=chance.randint(12, 36))
    ops = [Op(round(chance.uniform(FIRST_S, LAST_S), 3), kind, _details(chance, kind)) for kind in kinds]
    remade = [op for op in ops if op.kind == "remake"]
    once = [op for op in ops if op.kind != "remake"] + remade[:1]  # the model counts a log's lives
    if remade:  # a marker tells no log from another
        once = [op for op in once if op.kind != "marker" or op.what[2] != remade[0].what[2]]
    return sorted(once, key=lambda op: op.at_s)


def _details(chance: random.Random, kind: str) -> tuple[Any, ...]:  # noqa: C901, PLR0911 (a table)
    uri, slot = chance.choice(URIS), chance.choice(SLOTS)
    state = chance.choice((None, '{"n":1}', '{"n":2}', "{}"))
    match kind:
        case "write" | "unless_equal" | "again" | "reused" | "twice":
            return (uri, chance.choice(BODIES), state)
        case "state":
            return (uri, None, state or '{"n":3}')
        case "bad":
            return (uri, chance.choice(("not_json", "unknown_collection", "null_key", "invalid_state", "expired")))
        case "burst":
            return (chance.choice(BODIES[:4]),)
        case "job":
            return (chance.choice(("tickets", "notes")), chance.choice(("missing", "outdated", "force", "force")))
        case "activate":
            return (chance.choice((0, 1)),)
        case "crash":
            return (slot, chance.choice(POINTS), chance.randint(1, 3))
        case "slow":
            return (slot, chance.choice((1.0, 5.0, 20.0)), chance.uniform(1, 8))
        case "away":
            return (slot, chance.uniform(0.5, 4))
        case "broker" | "stuck":
            return (chance.uniform(1, 15),)
        case "evaluator":
            modes = ("late", "wrong", "never", "limited", "gone", "misconfigured", "broken", "refusing")
            return (chance.choice(modes), chance.uniform(1, 8))
        case _:
            return (uri, slot, chance.randint(0, 1), chance.randint(1, 6))
