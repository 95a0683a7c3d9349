"""Embedders that answer from a file of recorded calls, and (in the mode `record`) add to it what is not there.

The wrapped embedder's fingerprint stays. In the mode `replay` it is never asked: a text that the file does not have is
an error.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from facetline.evaluators.call_file import CallFile
from facetline.evaluators.embedders import contract, recordings
from facetline.evaluators.embedders.contract import Embedded, Embedder, EmbedderIdentity, Purpose, Vectors
from facetline.evaluators.embedders.recordings import EmbeddingCall
from facetline.evaluators.recorded.recordings import Asker, Problem, public
from facetline.facets.errors import EvaluationFailed, EvaluatorMisconfigured


class EmbedderFromFile:
    """An embedder whose calls are in a file: a line for each text, whatever batch it was in."""

    def __init__(self, live: Embedder, file: CallFile, *, clock: Callable[[], float] = time.perf_counter) -> None:
        """Wrap `live`; `clock` measures what a call takes."""
        self._live = live
        self._file = file
        self._clock = clock

    @property
    def name(self) -> str:
        """The wrapped embedder's name."""
        return self._live.name

    @property
    def kind(self) -> str:
        """The wrapped embedder's kind."""
        return self._live.kind

    @property
    def model(self) -> str:
        """The wrapped embedder's model."""
        return self._live.model

    @property
    def identity(self) -> EmbedderIdentity:
        """The wrapped embedder's identity."""
        return self._live.identity

    @property
    def fingerprint(self) -> str:
        """The wrapped embedder's fingerprint."""
        return self._live.fingerprint

    @property
    def max_batch(self) -> int:
        """The wrapped embedder's batch."""
        return self._live.max_batch

    @property
    def min_similarity(self) -> float:
        """The wrapped embedder's floor."""
        return self._live.min_similarity

    @property
    def is_free(self) -> bool:
        """A replayed call costs nothing."""
        return self._live.is_free or self._file.mode == "replay"

    async def embed(self, texts: Sequence[str], *, purpose: Purpose, deadline_s: float) -> Embedded:
        """Return the recorded vectors; ask the live embedder for those that are not there, or fail in `replay`.

        Raises:
            EvaluationFailed: as recorded; or `evaluator_error`, a text is not there.
            EvaluatorMisconfigured: the file cannot be used; nothing is asked that could not be written down.
        """
        contract.check_texts(texts, self)
        keys = [recordings.key_of(self.fingerprint, purpose, text) for text in texts]
        found = {key: await self._file.find_embedding(key) for key in keys}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if found[key] is None}
        live: Embedded | None = None
        if missing:
            live, new = await self._ask(missing, purpose, deadline_s)
            found.update(new)
        return self._embedded([found[key] for key in keys], live)

    async def _ask(
        self, missing: Mapping[str, str], purpose: Purpose, deadline_s: float
    ) -> tuple[Embedded, dict[str, EmbeddingCall]]:
        """Ask for what the file lacks, and write it down."""
        texts = list(missing.values())
        if self._file.mode == "replay":
            raise EvaluationFailed(
                "evaluator_error",
                f"{self._file.path.name} has no vectors of {self.kind} '{self.model}' for {len(texts)} of the texts;"
                " record them with FACETLINE_CALLS=record",
            )
        self._file.check_writable()
        started_s = self._clock()
        try:
            live = await self._live.embed(texts, purpose=purpose, deadline_s=deadline_s)
        except EvaluationFailed as failed:
            if len(texts) == 1:  # of several it is not known which one failed
                self._keep(missing, purpose, started_s, error=failed)
            raise
        return live, self._keep(missing, purpose, started_s, live=live)

    def _keep(
        self,
        missing: Mapping[str, str],
        purpose: Purpose,
        started_s: float,
        *,
        live: Embedded | None = None,
        error: EvaluationFailed | None = None,
    ) -> dict[str, EmbeddingCall]:
        asker = Asker(self.kind, self.model, self.fingerprint)
        latency_ms = (self._clock() - started_s) * 1000
        problem = None if error is None else Problem(error.reason, public(error.message))
        new = {
            key: EmbeddingCall(
                key=key,
                text=text,
                purpose=purpose,
                asker=asker,
                latency_ms=latency_ms,
                model=self.model if live is None else live.model,
                vectors=None if live is None else live.vectors[index],
                dropped=0 if live is None else live.dropped.get(index, 0),
                error=problem,
            )
            for index, (key, text) in enumerate(missing.items())
        }
        try:
            self._file.add_embeddings(list(new.values()))
        except EvaluatorMisconfigured as failed:  # it was paid for all the same
            paid = None if live is None else contract.spent_of(live)
            failed.spent = paid if error is None else error.spent
            raise
        return new

    def _embedded(self, calls: Sequence[EmbeddingCall | None], live: Embedded | None) -> Embedded:
        """Return the vectors of all texts; what they cost is what the live call did."""
        vectors: list[Vectors] = []
        for call in calls:
            if call is None or call.vectors is None:
                problem = (call and call.error) or Problem("evaluator_error", "the recorded call has no vectors")
                raise EvaluationFailed(problem.reason, problem.message)
            vectors.append(call.vectors)
        model = next(call.model for call in calls if call is not None)
        dropped = {index: call.dropped for index, call in enumerate(calls) if call is not None and call.dropped}
        if live is None:
            return Embedded(vectors, model, None, 0.0, dropped)
        return Embedded(vectors, live.model, live.usage, live.cost_usd, dropped)

    async def close(self) -> None:
        """Close the wrapped embedder."""
        await self._live.close()
