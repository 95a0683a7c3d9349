"""Try an import out: each part of the file is applied in a transaction that is rolled back, and its outcome is kept.

So what would be written, unchanged or refused is what the store itself says. Nothing is written and nothing asked.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from facetline.facets import errors
from facetline.facets.definitions import Definition, Definitions
from facetline.storage.db.engine import Tx
from facetline.storage.log import apply, events
from facetline.storage.queue import answer_cache
from facetline.streams import pipeline as pipeline_
from facetline.streams.files.repeated_keys import RepeatedKeys
from facetline.streams.local_writer import TOPIC
from facetline.streams.pipeline import NewDocument, Pipeline
from facetline.streams.reindex import requests
from facetline.streams.wire.outgoing import Sent


class _Asked(NamedTuple):
    """A body that a call would be about."""

    scope: str
    body_hash: str
    size: int


class _RolledBack(Exception):
    """Ends the transaction, with what happened in it."""

    def __init__(self, outcomes: Sequence[events.Outcome], asked: list[_Asked], pending: int) -> None:
        super().__init__()
        self.outcomes = outcomes
        self.asked = asked
        self.pending = pending


class DryRun:
    """What an import would do; takes documents as `Pipeline.write_many` does. Used in a `with`."""

    def __init__(self, pipeline: Pipeline, definition: Definition) -> None:
        self._pipeline = pipeline
        self._definition = definition
        self._bodies = RepeatedKeys()
        self._asked = self._calls = self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bodies.__exit__()

    async def write_many(
        self, active: Definitions, rows: Sequence[NewDocument], *, source: str, collection: str
    ) -> list[events.Outcome | errors.InvalidEvent | None]:
        """Return what would become of each document."""
        judged = pipeline_.judge_many(active, rows, source=source, collection=collection)
        tried = [each.event for each in judged if isinstance(each, Sent)]
        if not tried:
            return pipeline_.settled_many(judged, ())
        try:
            await self._pipeline.store.write(_try, tried, self._definition.fingerprint)
        except _RolledBack as done:
            found = done
        new = self._bodies.add([(f"{each.scope}/{each.body_hash}", 0) for each in found.asked])
        called = [each for each, is_new in zip(found.asked, new, strict=True) if is_new]
        self._asked += found.pending
        self._calls += len(called)
        self._bytes += sum(each.size for each in called)
        return pipeline_.settled_many(judged, found.outcomes)

    async def estimate(self) -> requests.Estimate:
        """Return how many documents would be asked about, and what that would take."""
        return await requests.estimate(
            self._pipeline, self._definition.name, documents=self._asked, calls=self._calls, body_bytes=self._bytes
        )


def _try(tx: Tx, judged: Sequence[events.Event], fingerprint: str) -> None:
    outcomes = apply.append(tx, TOPIC, judged).outcomes
    asked = [
        _Asked(event.scope or "", content.body_hash or "", len((content.body or "").encode()))
        for event, outcome in zip(judged, outcomes, strict=True)
        if (content := event.content) is not None and _is_asked(content, outcome)
    ]
    keys = {answer_cache.Key(each.scope, each.body_hash, fingerprint) for each in asked}
    known = answer_cache.get(tx, keys)
    unknown = [each for each in asked if answer_cache.Key(each.scope, each.body_hash, fingerprint) not in known]
    raise _RolledBack(outcomes, unknown, len(asked))


def _is_asked(content: events.Content, outcome: events.Outcome) -> bool:
    cleared = outcome.outcome == "applied" and outcome.indexed_as == outcome.version
    return cleared and content.body is not None and not content.blank and content.answered is None


def shown(estimate: requests.Estimate) -> dict[str, Any]:
    """Return an estimate as it is printed with --json."""
    return {
        "asked": estimate.documents,
        "calls": estimate.calls,
        "tokens": estimate.tokens,
        "cost_usd": estimate.cost_usd,
    }
