"""Evaluators that answer from a file of recorded calls, and (in the mode `record`) add to it what is not there.

The wrapped evaluator's identity stays, so the answers have the fingerprint that live ones have. In the mode `replay` it
is never asked: a call that the file does not have is an error. What passes by itself (rate limits, an unreachable
provider) is not recorded; a refusal or an answer that does not fit is, because it would come again.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

from facetline.evaluators import factory, validation
from facetline.evaluators.contract import Evaluated, Evaluator, Identity, Limits, spent_of
from facetline.evaluators.embedders import recordings as embeddings
from facetline.evaluators.embedders.recordings import EmbeddingCall
from facetline.evaluators.recorded import recordings
from facetline.evaluators.recorded.recordings import Asker, Call, Problem
from facetline.facets import definitions
from facetline.facets.errors import EvaluationFailed, EvaluatorMisconfigured, InvalidAnswer
from facetline.facets.questions import Question

T = TypeVar("T")
Mode = Literal["record", "replay"]
NOTE = "recorded_call"
"""Note of an answer that came from the file: this time it cost nothing."""


class CallFile:
    """The calls of one file, shared by all that call in a process; read when the first one is looked for."""

    def __init__(self, path: Path, mode: Mode) -> None:
        self.path = path
        self.mode = mode
        self._reading = asyncio.Lock()
        self._calls: dict[str, Call] | None = None
        self._embeddings: dict[str, EmbeddingCall] | None = None

    async def find(self, key: str, body: str) -> Call | None:
        """Return the call with this key, which is about `body`.

        Raises:
            EvaluatorMisconfigured: the file is damaged, or cannot be read.
            EvaluationFailed: the call's line shows another body.
        """
        async with self._reading:
            if self._calls is None:
                self._calls = await self._read(recordings.read)
        try:
            return recordings.find(self._calls, key, body)
        except recordings.InvalidRecording as error:
            raise EvaluationFailed("evaluator_error", f"{self.path.name}: {error}") from error

    async def find_embedding(self, key: str) -> EmbeddingCall | None:
        """Return the embedding with this key.

        Raises:
            EvaluatorMisconfigured: the file is damaged, or cannot be read.
        """
        async with self._reading:
            if self._embeddings is None:
                self._embeddings = await self._read(embeddings.read)
        return self._embeddings.get(key)

    async def _read(self, read: Callable[[Path], T]) -> T:
        try:
            return await asyncio.to_thread(read, self.path)
        except (recordings.InvalidRecording, OSError) as error:
            raise EvaluatorMisconfigured(f"recorded calls: {error}") from error

    def check_writable(self) -> None:
        """Refuse before anything is paid for what could not be written down afterwards.

        Raises:
            EvaluatorMisconfigured: the file cannot be written.
        """
        needed = self.path if self.path.exists() else self.path.parent
        if not needed.exists():
            raise self._unwritable("there is no such folder")
        if not os.access(needed, os.W_OK):
            raise self._unwritable("no permission")

    def add(self, call: Call, questions: Mapping[str, Question]) -> None:
        """Write a new call down.

        Raises:
            EvaluatorMisconfigured: the file cannot be written.
        """
        self._append([recordings.encode(call, questions)])
        if self._calls is not None:
            self._calls[call.key] = call

    def add_embeddings(self, calls: Sequence[EmbeddingCall]) -> None:
        """Write new embeddings down.

        Raises:
            EvaluatorMisconfigured: the file cannot be written.
        """
        self._append([embeddings.encode(call) for call in calls])
        if self._embeddings is not None:
            self._embeddings.update((call.key, call) for call in calls)

    def _append(self, lines: Sequence[str]) -> None:
        try:
            with recordings.Writer(self.path) as file:
                for line in lines:
                    file.append_line(line)
        except OSError as error:
            raise self._unwritable(error.strerror or str(error)) from error

    def _unwritable(self, reason: str) -> EvaluatorMisconfigured:
        return EvaluatorMisconfigured(
            f"recorded calls: {self.path} cannot be written ({reason}); make room or its folder, or name another file"
            " with FACETLINE_CALLS_FILE"
        )


class FromFile:
    """An evaluator whose calls are in a file."""

    def __init__(self, live: Evaluator, file: CallFile, *, clock: Callable[[], float] = time.perf_counter) -> None:
        """Wrap `live`; `clock` measures what a call takes."""
        self._live = live
        self._file = file
        self._clock = clock

    @property
    def kind(self) -> str:
        """The wrapped evaluator's kind."""
        return self._live.kind

    @property
    def identity(self) -> Identity:
        """The wrapped evaluator's identity."""
        return self._live.identity

    @property
    def limits(self) -> Limits:
        """The wrapped evaluator's limits; a replayed call costs nothing."""
        limits = self._live.limits
        return replace(limits, is_free=True) if self._file.mode == "replay" else limits

    async def evaluate(self, body: str, questions: Mapping[str, Question], *, key: str, deadline_s: float) -> Evaluated:
        """Return the recorded call's answers; without one ask the live evaluator, or fail in the mode `replay`.

        Raises:
            EvaluationFailed: as recorded; or `evaluator_error`, there is no such call.
            EvaluatorMisconfigured: the file cannot be used; nothing is asked that could not be written down.
        """
        found = await self._file.find(recordings.key_of(self.identity, questions, body), body)
        if found is not None:
            return _evaluated(found)
        if self._file.mode == "replay":
            raise EvaluationFailed(
                "evaluator_error",
                f"{self._file.path.name} has no call of {self.kind} '{self.identity.model}' about this body and these"
                " questions; record it with FACETLINE_CALLS=record",
            )
        return await self._ask(body, questions, key, deadline_s)

    async def _ask(self, body: str, questions: Mapping[str, Question], key: str, deadline_s: float) -> Evaluated:
        self._file.check_writable()
        started_s = self._clock()
        try:
            found = await self._live.evaluate(body, questions, key=key, deadline_s=deadline_s)
        except EvaluationFailed as failed:
            self._keep(body, questions, started_s, error=failed)
            raise
        try:
            validation.check_evaluated(questions, found)
        except InvalidAnswer as invalid:
            invalid.spent = spent_of(found)
            self._keep(body, questions, started_s, error=invalid)
        else:
            self._keep(body, questions, started_s, given=found)
        return found

    def _keep(
        self,
        body: str,
        questions: Mapping[str, Question],
        started_s: float,
        *,
        given: Evaluated | None = None,
        error: EvaluationFailed | None = None,
    ) -> None:
        identity = self.identity
        fingerprint = definitions.fingerprint(questions, factory.fingerprint_identity(identity))
        call = Call(
            key=recordings.key_of(identity, questions, body),
            body=body,
            asker=Asker(self.kind, identity.model, fingerprint),
            latency_ms=(self._clock() - started_s) * 1000,
            evaluated=given,
            error=None if error is None else Problem(error.reason, recordings.public(error.message)),
        )
        try:
            self._file.add(call, questions)
        except EvaluatorMisconfigured as failed:  # it was paid for all the same
            paid = None if given is None else spent_of(given)
            failed.spent = paid if error is None else error.spent
            raise

    async def close(self) -> None:
        """Close the wrapped evaluator."""
        await self._live.close()


def _evaluated(call: Call) -> Evaluated:
    """Return the answers of the call, without usage."""
    if call.error is not None or call.evaluated is None:
        problem = call.error or Problem("evaluator_error", "the recorded call has no answers")
        raise EvaluationFailed(problem.reason, problem.message)
    return replace(call.evaluated, usage=None, cost_usd=0.0, notes={**(call.evaluated.notes or {}), NOTE: True})
