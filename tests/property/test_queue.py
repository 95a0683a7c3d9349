"""Whatever happens in whatever order, the queue keeps its promises.

A few dozen lines know what must come of each step (who holds a document, what an answer was about) and share no code
with the store; Hypothesis looks for an order of steps in which the store disagrees.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
import stored
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from facetline.storage.db import engine, json_rows, models, opening
from facetline.storage.jobs import jobs, model
from facetline.storage.queue import queue

T = TypeVar("T")
LEASE_MS = 1_000
URIS = ("notes/a", "notes/b", "notes/c", "@ann/scoped/a", "@bob/scoped/a")
BODIES = ("one", "two", " ")

uris = st.sampled_from(URIS)
claims = st.integers(0, 30)
steps = st.one_of(
    st.tuples(st.just("write"), uris, st.sampled_from(BODIES)),
    st.tuples(st.just("delete"), uris),
    st.tuples(st.just("wait"), st.sampled_from([1, LEASE_MS // 2, LEASE_MS])),
    st.tuples(st.just("claim"), st.sampled_from(["f1", "f2"]), st.integers(1, 3)),
    st.tuples(st.just("answer"), claims),
    st.tuples(st.just("fail"), claims),
    st.tuples(st.just("retry"), claims, st.booleans()),
    st.tuples(st.just("release"), claims, st.booleans()),
    st.tuples(st.just("define"), st.sampled_from(["f1", "f2"])),
    st.tuples(st.just("force")),
)


@dataclass
class Rig:
    """One store for all examples, emptied before each."""

    store: engine.Store
    clock: stored.Clock

    def run(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run one transaction, without a loop."""
        with self.store.engine.connect() as connection, connection.begin():
            return function(engine.Tx(connection, self.clock), *args, **kwargs)

    def empty(self) -> None:
        """Start over, with both collections under the first fingerprint."""
        with self.store.engine.connect() as connection, connection.begin():
            for table in models.METADATA.sorted_tables:
                if table.name not in {"store", "alembic_version"}:
                    connection.execute(sa.delete(table))
        self.run(stored.defined, "notes", "scoped", fingerprint="f1")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A SQLite store in a folder of its own."""
    clock = stored.Clock()
    path = tmp_path_factory.mktemp("queue") / "store.sqlite"
    store = asyncio.run(opening.open_store(f"sqlite:///{path}", clock_shift=clock))
    store.engine.dispose()  # the connections that follow do not wait for the disk: no crash is tested here
    sa.event.listen(store.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    yield Rig(store, clock)
    asyncio.run(store.close())


@dataclass
class World:
    """What happened, as a bystander saw it."""

    rig: Rig
    active: str = "f1"
    now_ms: int = 0
    claims: list[queue.Claim] = field(default_factory=list)
    holder: dict[str, int] = field(default_factory=dict)
    expires_ms: dict[int, int] = field(default_factory=dict)
    jobs: int = 0

    def step(self, name: str, *given: Any) -> None:
        """Take one step, and compare."""
        before = self.rig.run(stored.rows)
        getattr(self, name)(*given)
        after = self.rig.run(stored.rows)
        for uri, row in after.items():
            self.check(row, before.get(uri))

    def check(self, row: dict[str, Any], before: dict[str, Any] | None) -> None:
        """What holds for every document after every step."""
        assert row["calls_made"] <= 1 + row["retries"] + row["crashes"]
        assert (row["facets"] is not None) == (row["status"] == "indexed")
        if before is not None:
            assert row["version"] >= before["version"]
            assert row["indexed_as"] >= before["indexed_as"]
        if row["status"] == "indexed":
            said = self.claims[int(json_rows.loads(row["facets"])["topic"]["choice"])]
            assert (said.scope, said.body_hash) == (row["scope"], row["body_hash"])
            assert row["fingerprint"] == said.fingerprint
        assert (row["owner"] is not None) == (row["uri"] in self.holder)

    def write(self, uri: str, body: str) -> None:
        """A body write takes the document from whoever holds it."""
        self.rig.run(stored.write, {uri: body})
        self.holder.pop(uri, None)

    def delete(self, uri: str) -> None:
        """So does a delete."""
        self.rig.run(stored.delete, uri)
        self.holder.pop(uri, None)

    def wait(self, ms: int) -> None:
        """Time passes in the store."""
        self.now_ms += ms
        self.rig.clock.shift_ms = self.now_ms

    def define(self, fingerprint: str) -> None:
        """Another definition becomes active."""
        self.active = fingerprint
        self.rig.run(stored.defined, "notes", "scoped", fingerprint=fingerprint)

    def claim(self, own: str, slots: int) -> None:
        """Nobody claims under a fingerprint that is not active, nor what another holds."""
        fingerprints = {"notes": own, "scoped": own}
        result = self.rig.run(stored.claimed, slots=slots, fingerprints=fingerprints, lease_ms=LEASE_MS)
        assert own == self.active or not result.claims
        assert len(result.claims) <= slots
        now_ms = self.rig.run(lambda tx: tx.now_ms)
        assert all(self.expires_ms[holder] <= now_ms for holder in self.lost().values())
        for claim in result.claims:
            last = self.holder.get(claim.uri)
            assert last is None or self.expires_ms[last] <= claim.asked_ms
            self.holder[claim.uri] = len(self.claims)
            self.expires_ms[len(self.claims)] = claim.lease_until_ms
            self.claims.append(claim)

    def told(self, number: int, function: Callable[..., queue.Settled], ending: Any, *, fenced: bool) -> bool:
        """Tell the end of a claim; it counts if the document still waits for it (and is still this claim's)."""
        if number >= len(self.claims):
            return False
        claim = self.claims[number]
        row = self.rig.run(stored.row, claim.uri)
        waits = row["status"] == "pending" and row["indexed_as"] == claim.indexed_as
        expected = waits and (not fenced or self.holder.get(claim.uri) == number)
        settled = self.rig.run(function, [ending(claim)])
        assert bool(settled.stored) is expected
        assert bool(settled.discarded) is not expected
        if expected:
            self.holder.pop(claim.uri, None)
        return expected

    def answer(self, number: int) -> None:
        """An answer says which claim it belongs to."""
        self.told(number, queue.answer, lambda claim: stored.answer_to(claim, str(number)), fenced=False)

    def fail(self, number: int) -> None:
        """A failure counts only for the claim's own attempt."""
        ending = lambda claim: queue.Failed(claim.uri, claim.indexed_as, claim.attempt, "refused", "no")  # noqa: E731
        self.told(number, queue.fail, ending, fenced=True)

    def retry(self, number: int, counted: bool) -> None:
        """So does a retry."""
        ending = lambda claim: queue.Retried(claim.uri, claim.indexed_as, claim.attempt, 500, counted)  # noqa: E731
        self.told(number, queue.retry, ending, fenced=True)

    def release(self, number: int, called: bool) -> None:
        """And a release."""
        ending = lambda claim: queue.Released(claim.uri, claim.indexed_as, claim.attempt, called)  # noqa: E731
        self.told(number, queue.release, ending, fenced=True)

    def force(self) -> None:
        """A forced job takes its documents from whoever asked about them before it."""
        self.jobs += 1
        name = f"j{self.jobs}"
        self.rig.run(jobs.create, name, model.JobRequest("notes", mode="force"))
        self.rig.run(jobs.fill, name, 100)
        self.rig.run(jobs.take, "me", LEASE_MS, ["notes"])
        self.rig.run(jobs.turn, name, "me", 2, 10)
        self.rig.run(jobs.cancel, name)
        assert all(uri.startswith("notes/") for uri in self.lost())

    def lost(self) -> dict[str, int]:
        """Find out who no longer holds a document."""
        rows = self.rig.run(stored.rows)
        lost = {uri: holder for uri, holder in self.holder.items() if rows[uri]["owner"] is None}
        for uri in lost:
            self.holder.pop(uri)
        return lost

    def pending(self) -> list[str]:
        """Name the documents that wait for an answer."""
        return [uri for uri, row in self.rig.run(stored.rows).items() if row["status"] == "pending"]

    def drain(self) -> None:
        """Work everything off, as a healthy process does."""
        for _ in range(4 * len(URIS)):
            if not self.pending():
                return
            self.step("wait", LEASE_MS)
            first = len(self.claims)
            self.step("claim", self.active, 10)
            for number in range(first, len(self.claims)):
                self.step("answer", number)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=30))
@pytest.mark.timeout(300)
def test_queue_agrees_with_a_bystander(rig: Rig, taken: list[tuple[Any, ...]]):
    """Answers are stored exactly when they are current, ends exactly when the claim is; nothing is lost in the end."""
    rig.empty()
    world = World(rig, now_ms=rig.clock.shift_ms)

    for name, *given_ in taken:
        world.step(name, *given_)
    world.drain()

    assert world.pending() == []
