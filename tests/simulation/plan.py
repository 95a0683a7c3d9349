"""What happens in one simulation: operations and faults with their times, drawn from a seed before it starts.

Worlds are small on purpose: few documents with few bodies meet each other often, and what is likely to go wrong
together (a job and its cancel, a delete and a write, a poison record and a second reader) is drawn together.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

URIS = ("tickets/a", "tickets/b", "tickets/c", "tickets/d", "@x/notes/a", "@x/notes/b", "@y/notes/a")
BODIES = ("money", "down", "hello", "money again", " ")
STATES = (None, '{"n":1}', '{"n":2}', "{}")
POISON = ("not_json", "unknown_collection", "null_key", "invalid_state", "expired")
SLOTS = (0, 1, 2)
HOUR_S = 3600.0
FIRST_S, LAST_S = 0.3, 8.0
REINDEXING = ("reindex.before_turn", "reindex.after_turn")
POINTS = (
    *("apply.before_commit", "apply.after_commit", "chain.after_claim", "chain.before_store", "chain.after_store"),
    *REINDEXING,
)
PUBLISHING = ("publish.before_send", "publish.after_send", "publish.after_mark")
WRITES = {"write": 14, "state": 4, "delete": 4, "unless_equal": 2, "again": 2, "reused": 2, "twice": 2, "bad": 4}
OTHERS = {"burst": 3, "redrive": 4, "job": 5, "cancel": 1, "activate": 2}
FAULTS = {
    "crash": 9,
    "kill": 2,
    "stop": 2,
    "slow": 5,
    "away": 2,
    "broker": 1,
    "evaluator": 5,
    "rebalance": 2,
    "shared": 3,
    "rewind": 2,
    "jump": 2,
    "stuck": 1,
    "remake": 1,
    "cut": 1,
    "marker": 2,
}
KINDS = frozenset({**WRITES, **OTHERS, **FAULTS, "clock": 1})


@dataclass(frozen=True)
class Op:
    """One thing that happens at a time; `what` are its details."""

    at_s: float
    kind: str
    what: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.at_s:7.3f} s  {self.kind:12} {' '.join(map(repr, self.what))}"


def publishes(seed: int) -> bool:
    """Say whether the processes of a seed's world publish."""
    return seed % 4 == 1


def plan(seed: int) -> list[Op]:
    """Return what happens in the simulation of a seed, in order of time."""
    chance = random.Random(f"plan {seed}")  # noqa: S311 (repeatable on purpose)
    weights = {**WRITES, **OTHERS, **FAULTS}
    if chance.random() < 0.1:  # some runs without faults of the surroundings
        weights = {**WRITES, **OTHERS}
    draw = _Draw(chance, publishes=publishes(seed))
    ops: list[Op] = []
    for kind in chance.choices(list(weights), list(weights.values()), k=chance.randint(8, 26)):
        op = Op(round(chance.uniform(FIRST_S, LAST_S), 3), kind, draw.details(kind))
        ops += [op, *draw.followers(op)]
    remade = [op for op in ops if op.kind == "remake"]
    once = [op for op in ops if op.kind != "remake"] + remade[:1]  # the model counts a log's lives
    if remade:  # a marker tells no log from another
        once = [op for op in once if op.kind != "marker" or op.what[2] != remade[0].what[2]]
    return sorted([*once, *_clock(seed)], key=lambda op: op.at_s)


def _clock(seed: int) -> Iterator[Op]:
    """Draw jumps of the store's clock by an hour; in a tenth of the worlds, and by a chance of its own."""
    if seed % 10 != 7:
        return
    chance = random.Random(f"clock {seed}")  # noqa: S311 (repeatable on purpose)
    for _ in range(chance.randint(1, 3)):
        yield Op(round(chance.uniform(FIRST_S, LAST_S), 3), "clock", (chance.choice((-HOUR_S, -HOUR_S, HOUR_S)),))


class _Draw:
    """Details and followers of operations, in one seed's world."""

    def __init__(self, chance: random.Random, *, publishes: bool) -> None:
        self._chance = chance
        self._uris = chance.sample(URIS, chance.randint(2, 6))
        self._bodies = chance.sample(BODIES, chance.randint(2, 4))
        self._new = 0
        self._publishes = publishes

    def details(self, kind: str) -> tuple[Any, ...]:  # noqa: C901, PLR0911, PLR0912 (a table)
        chance, uri = self._chance, self._chance.choice(self._uris)
        slot, state = chance.choice(SLOTS), chance.choice(STATES)
        match kind:
            case "write" | "unless_equal" | "again" | "reused" | "twice":
                return (uri, self._body(), state)
            case "state":
                return (uri, None, state or '{"n":3}')
            case "delete":
                return (uri, None, None)
            case "bad":
                return (uri, chance.choice(POISON))
            case "burst":
                return (self._body(),)
            case "job":
                return (chance.choice(("tickets", "notes")), chance.choice(("missing", "outdated", "force", "force")))
            case "activate":
                return (chance.choice((0, 1)),)
            case "crash":
                points = PUBLISHING if self._publishes and chance.random() < 0.4 else POINTS
                return (chance.choice(points), chance.randint(1, 2))
            case "slow":
                return (slot, chance.choice((0.3, 2.0, 6.0)), round(chance.uniform(0.5, 4), 3))
            case "away":
                return (slot, round(chance.uniform(0.3, 2), 3))
            case "broker" | "stuck":
                return (round(chance.uniform(0.5, 4), 3),)
            case "evaluator":
                modes = ("late", "wrong", "never", "limited", "gone", "misconfigured", "broken", "refusing")
                return (chance.choice(modes), round(chance.uniform(0.5, 4), 3))
            case "kill" | "stop":
                return (slot,)
            case "cancel":
                return (chance.random() < 0.5,)
            case "redrive":
                return ()
            case _:  # rebalance, shared, rewind, jump, remake, cut, marker
                return (uri, slot, chance.randint(0, 1), chance.randint(1, 6))

    def _body(self) -> str:
        """Draw a body: one that other documents may have too, or a new one, which no memo answers."""
        self._new += 1
        return self._chance.choice(self._bodies) if self._chance.random() < 0.5 else f"text {self._new}"

    def followers(self, op: Op) -> Iterator[Op]:
        """Draw what comes soon after an operation, because together they are more likely to go wrong."""
        for kind, likely in _FOLLOWERS.get(op.kind, {}).items():
            if self._chance.random() >= likely:
                continue
            what = self.details(kind)
            if op.kind in WRITES and kind in WRITES:  # of the same document
                what = (op.what[0], *what[1:])
            if (op.kind, kind) == ("job", "crash"):
                what = (self._chance.choice(REINDEXING), 1)
            most_s = self._chance.choice(_SOON_S.get(kind, (0.05, 0.3, 1.0)))
            yield Op(round(op.at_s + most_s * self._chance.random(), 3), kind, what)


_FOLLOWERS = {
    "write": {"write": 0.1, "delete": 0.08, "crash": 0.1},
    "delete": {"write": 0.5},
    "bad": {"shared": 0.3, "redrive": 0.3, "bad": 0.2},
    "job": {"burst": 0.4, "cancel": 0.5, "write": 0.3, "slow": 0.1, "crash": 0.3},
    "slow": {"burst": 0.3, "shared": 0.2},
    "activate": {"job": 0.3},
    "remake": {"write": 0.5},
}
_SOON_S = {"cancel": (1.0, 2.0, 3.0), "burst": (-1.5,)}
"""How long after an operation its follower comes at most; a job finds more to do when a burst came before it."""
