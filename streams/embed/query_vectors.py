"""The vectors of queries, while a search waits: remembered, at most one call at a time for each text, and bounded.

A failure is not remembered: the next search tries again. Its words may name servers and are for the log; the
error that a search gets has words for its client.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from facetline.evaluators.embedders import contract
from facetline.evaluators.embedders.contract import Embedded, Embedder, Vectors
from facetline.facets import errors
from facetline.facets.errors import EmbedderUnavailable, Spent

DEADLINE_S = 2.0
REMEMBERED = 1000
UNHEARD = Spent()
"""The usage of a call whose end is unknown: its provider may have worked on, and may bill it."""

WORDS = {
    "timeout": "did not answer in time",
    "rate_limited": "has too many requests",
    "unavailable": "cannot be reached",
    "misconfigured": "is not configured rightly (the server's log says what to fix)",
    "budget_spent": "may spend no more today",
    "refused": "does not take this query",
}
"""Why there is no vector, by reason."""

log = structlog.get_logger(__name__)

Permit = Callable[[], Awaitable[bool]]
Charge = Callable[[Spent], Awaitable[None]]


async def _always() -> bool:
    return True


async def _uncharged(spent: Spent) -> None:
    del spent


class QueryVectors:
    """Embeds queries by one embedder.

    Args:
        embedder: Whom to ask.
        deadline_s: How long a search waits for a vector.
        remembered: How many vectors are kept; the one that was not used for the longest time goes first.
        permit: Whether a call that may cost something may be made now.
        charge: Takes what each such call used up, whatever it came to.
    """

    def __init__(
        self,
        embedder: Embedder,
        *,
        deadline_s: float = DEADLINE_S,
        remembered: int = REMEMBERED,
        permit: Permit = _always,
        charge: Charge = _uncharged,
    ) -> None:
        self._embedder = embedder
        self._deadline_s = deadline_s
        self._remembered = remembered
        self._permit = permit
        self._charge = charge
        self._known: OrderedDict[str, Vectors] = OrderedDict()
        self._running: dict[str, asyncio.Task[Vectors]] = {}

    async def vector(self, text: str) -> Vectors:
        """Return the vector of a query's first window.

        Searches for the same text at the same time share one call, which goes on when one of them is given up.

        Raises:
            EmbedderUnavailable: there is none in time; search by words.
        """
        if text in self._known:
            self._known.move_to_end(text)
            return self._known[text]
        task = self._running.get(text)
        if task is None:
            task = asyncio.create_task(self._embed(text), name="query-vector")
            self._running[text] = task
            task.add_done_callback(partial(self._ended, text))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():  # by `close`
                raise self._unavailable("unavailable") from error
            raise

    async def close(self) -> None:
        """End running calls; a search that waits for one gets `EmbedderUnavailable`. The embedder is not closed."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, text: str, task: "asyncio.Task[Vectors]") -> None:
        del self._running[text]
        if not task.cancelled():
            task.exception()  # all who waited may have been cancelled: then it is looked at by no one else

    async def _embed(self, text: str) -> Vectors:
        if not self._embedder.is_free and not await self._permit():
            raise self._unavailable("budget_spent")
        found = await self._call(text)
        vectors = found.vectors[0].first()
        self._known[text] = vectors
        while len(self._known) > self._remembered:
            self._known.popitem(last=False)
        await self._bill(contract.spent_of(found))
        return vectors

    async def _call(self, text: str) -> Embedded:
        """Make one call; what it fails with becomes a reason, and is charged where it used something up."""
        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._embedder.embed([text], purpose="query", deadline_s=self._deadline_s)
        except TimeoutError as error:
            await self._bill(UNHEARD)
            raise self._unavailable("timeout") from error
        except errors.EvaluatorUnavailable as error:
            await self._bill(error.spent or (UNHEARD if error.reason == "timeout" else None))
            raise self._unavailable(error.reason, error.message) from error
        except errors.EvaluatorMisconfigured as error:
            await self._bill(error.spent)
            raise self._unavailable("misconfigured", error.message) from error
        except errors.EvaluationFailed as error:
            await self._bill(error.spent)
            raise self._unavailable("refused", error.message) from error

    async def _bill(self, spent: Spent | None) -> None:
        if spent is not None and not self._embedder.is_free:
            await self._charge(spent)

    def _unavailable(self, reason: str, words: str = "") -> EmbedderUnavailable:
        known = reason if reason in WORDS else "unavailable"
        log.warning("query_not_embedded", embedder=self._embedder.name, reason=known, error=words)
        message = f"embedder '{self._embedder.name}' {WORDS[known]}; search by words, or try again later"
        return EmbedderUnavailable(known, message)
