"""The state of a worker's store and broker, read on demand and cached for a moment.

A look is bounded: no question is asked twice at once, none more often than once a second, expensive ones far less
often, and a caller waits two seconds at most. What is not known is left out, and reported.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from facetline.facets import errors
from facetline.storage import store_stats
from facetline.storage.db.engine import Tx
from facetline.streams.kafka.log_reader import Bounds, KafkaLog
from facetline.streams.monitor.cached import Cached
from facetline.streams.monitor.worker_state import Members

WAIT_S = 2.0
"""How long a look waits; Kubernetes gives a probe one second by default, Prometheus ten."""

BOUNDS_S = 5.0
"""How long the question for the log's ends goes on, for those who come later."""
GLANCE_REST = 4
"""A glance takes milliseconds, and so it is a second old at most, unless the store is slow."""
COUNT_REST = 50
"""Counting takes a fiftieth of the time of one connection at most, however much there is to count."""

CLOSED = "no longer asked: the worker stops"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StatusSnapshot:
    """The answers of one look; None where there was none.

    `counted_s` is how old the glance and each of the counts is, in seconds by its name.
    """

    glance: store_stats.StoreSummary | None
    bounds: Mapping[int, Bounds] | None
    store_problem: str | None
    broker_problem: str | None
    waiting: store_stats.Waiting | None = None
    documents: Mapping[str, Mapping[str, int]] | None = None
    letters: Mapping[str, int] | None = None
    counted_s: Mapping[str, float] | None = None


class Observer:
    """Asks for one worker; made before its store and topics are there, and closed before they go.

    `documents` False: they are not counted, which reads all of them: someone knows it from elsewhere.
    """

    def __init__(self, members: Members, *, wait_s: float = WAIT_S, documents: bool = True) -> None:
        self.members = members
        self._closed = False
        self._counts_documents = documents
        # A separate connection: monitoring never waits for the work, nor the work for monitoring.
        self._log: KafkaLog | None = None  # locally there is no broker to be asked
        if members.settings.runtime == "kafka":
            self._log = KafkaLog(members.settings.kafka, members.topics.documents, wait_s=BOUNDS_S)
        self._glance = Cached(self._reading(self._look), wait_s=wait_s, rest=GLANCE_REST)
        self._bounds = Cached(self._ask_bounds, wait_s=wait_s, rest=GLANCE_REST)
        self._waiting = Cached(self._reading(store_stats.waiting), wait_s=wait_s, rest=COUNT_REST, stale=True)
        self._documents = Cached(self._reading(store_stats.by_status), wait_s=wait_s, rest=COUNT_REST, stale=True)
        self._letters = Cached(self._reading(store_stats.open_letters), wait_s=wait_s, rest=COUNT_REST, stale=True)

    async def look(self) -> StatusSnapshot:
        """Return what health needs: it costs little, whatever the store holds."""
        if self._closed:
            return StatusSnapshot(None, None, CLOSED, CLOSED)
        glance, bounds = await asyncio.gather(self._glance.get(), self._bounds.get())
        return StatusSnapshot(glance, bounds, self._glance.problem, self._bounds.problem)

    async def look_closely(self) -> StatusSnapshot:
        """Return the counts as well; where the store does not answer, they are left out at once."""
        seen = await self.look()
        if seen.glance is None:
            return seen
        waiting, letters = await asyncio.gather(self._waiting.get(), self._letters.get())
        documents = await self._documents.get() if self._counts_documents else None
        ages = {
            "glance": self._glance.age_s,
            "pending": self._waiting.age_s,
            "documents": self._documents.age_s,
            "dead_letters": self._letters.age_s,
        }
        counted_s = {name: age for name, age in ages.items() if age is not None}
        return replace(seen, waiting=waiting, documents=documents, letters=letters, counted_s=counted_s)

    async def close(self) -> None:
        """Ask no longer, and close the connection to the broker; what looks afterwards sees nothing. May come twice."""
        self._closed = True
        for question in (self._glance, self._bounds, self._waiting, self._documents, self._letters):
            await question.close()
        if self._log is not None:
            await self._log.stop()

    def _look(self, tx: Tx) -> store_stats.StoreSummary:
        names = self.members.topics
        return store_stats.glance(tx, names.documents, names.facets)

    def _reading(self, function: Callable[[Tx], T]) -> Callable[[], Awaitable[T]]:
        async def ask() -> T:
            store = self.members.store
            if store is None:
                raise errors.StoreUnavailable(self.members.waits_for or "the store is not open yet")
            return await store.read(function)

        return ask

    async def _ask_bounds(self) -> Mapping[int, Bounds]:
        if self._log is None:
            return {}
        return await self._log.all_bounds(range(self.members.partitions or 0))
