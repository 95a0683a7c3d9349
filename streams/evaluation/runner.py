"""Ask an evaluator about labelled texts, without a store: each different text once, in bounded concurrency.

Nothing is retried: what fails for now is counted and may be asked again by the next run, which takes from the file of
calls what is known. An evaluator that is not set up, or that fails again and again, is asked no further.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from facetline.evaluators import asking, validation
from facetline.evaluators.contract import Evaluated, Evaluator, spent_of
from facetline.evaluators.recorded import evaluator as recorded
from facetline.evaluators.recorded import recordings
from facetline.evaluators.recorded.recordings import Asker, Call, Problem
from facetline.facets import errors
from facetline.facets.definitions import Definition
from facetline.facets.questions import Question
from facetline.streams.classify import call as calls
from facetline.streams.classify.call import CallLimits
from facetline.streams.files.labelled import Labelled

FAILURES_MAX = 5
"""After so many calls in a row that failed for now (or twice the calls at once) an evaluator is asked no further."""

Record = Callable[[Call], None]


@dataclass(frozen=True, slots=True)
class Subject:
    """An evaluator under its name, with what it is asked."""

    name: str
    evaluator: Evaluator
    definition: Definition
    limits: CallLimits

    @property
    def questions(self) -> Mapping[str, Question]:
        """What is asked, all of it in one call."""
        return self.definition.questions

    @property
    def asker(self) -> Asker:
        """Who is asked, for the file of calls."""
        identity = self.evaluator.identity
        return Asker(identity.kind, identity.model, self.definition.fingerprint)

    def key(self, row: Labelled) -> str:
        """Return what the call about a row is known by. A recording may answer by the document's key, too."""
        found = recordings.key_of(self.evaluator.identity, self.questions, row.body)
        return f"{found} {row.key}" if self.evaluator.kind == recorded.KIND else found


@dataclass(slots=True)
class Run:
    """What is known of one evaluator: calls that ended by their keys, and why it was asked no further, if so.

    `made` calls were made now, `paid_usd` is what they are known to have cost, `failed_usd` the failed ones among
    them. `missed` counts calls that failed for now by their reasons.
    """

    subject: Subject
    rows: Sequence[Labelled]
    keys: Sequence[str]
    failures_max: int = FAILURES_MAX
    known: dict[str, Call] = field(default_factory=dict)
    made: int = 0
    paid_usd: float = 0.0
    failed_usd: float | None = None
    missed: dict[str, int] = field(default_factory=dict)
    stopped: str | None = None
    _in_a_row: int = 0

    @property
    def waiting(self) -> list[Labelled]:
        """One row for each call that is not known yet, in order."""
        first = dict(zip(reversed(self.keys), reversed(self.rows), strict=True))
        return [first[key] for key in dict.fromkeys(self.keys) if key not in self.known]

    def call(self, index: int) -> Call | None:
        """Return the call about a row, None when there was none that ended."""
        return self.known.get(self.keys[index])

    def take(self, call: Call, verdict: Evaluated | Exception) -> Call | None:
        """Count what a call came to; return it as it is to be kept, None when it failed for now."""
        self.made += 1
        if isinstance(verdict, Evaluated):
            self._in_a_row = 0
            self.known[call.key] = replace(call, evaluated=verdict)
            self._pay(verdict.cost_usd)
            return self.known[call.key]
        spent = getattr(verdict, "spent", None)
        if spent is not None and spent.cost_usd is not None:
            self.failed_usd = (self.failed_usd or 0.0) + spent.cost_usd
            self._pay(spent.cost_usd)
        found = calls.verdict_on(verdict, self.subject.limits.call_s)
        if isinstance(found, calls.Failure):
            self._in_a_row = 0
            self.known[call.key] = replace(call, error=Problem(found.reason, found.message))
            return self.known[call.key]
        if isinstance(found, calls.TransientFailure):
            self._miss(found)
        return None

    def _pay(self, cost_usd: float | None) -> None:
        """Count dollars; a run may cost what the evaluator may on a day."""
        self.paid_usd += cost_usd or 0.0
        limit_usd = self.subject.limits.max_usd_per_day
        if limit_usd is not None and self.paid_usd >= limit_usd:
            self.stopped = f"this run has cost {self.paid_usd:.4f} USD, and max_usd_per_day is {limit_usd:g}"

    def _miss(self, trouble: calls.TransientFailure) -> None:
        self.missed[trouble.reason] = self.missed.get(trouble.reason, 0) + 1
        self._in_a_row += 1
        if trouble.misconfigured:
            self.stopped = trouble.message
        elif self._in_a_row >= self.failures_max:
            self.stopped = f"{self._in_a_row} calls in a row failed, the last with {trouble.reason}: {trouble.message}"


def begun(subject: Subject, rows: Sequence[Labelled], written: Mapping[str, Call]) -> Run:
    """Return a run that knows what is known: recorded answers that still are valid, and recorded failures.

    Raises:
        InvalidRecording: a call's line shows another body than its key.
    """
    run = Run(subject, rows, [subject.key(row) for row in rows])
    for key, row in zip(run.keys, rows, strict=True):
        call = recordings.find(written, key, row.body)
        if call is not None and (call.evaluated is None or _is_valid(subject, call.evaluated)):
            run.known[key] = call
    return run


async def ask(run: Run, *, concurrency: int, record: Record | None, progress: Callable[[int], None]) -> None:
    """Make the calls that are not known. When this is cancelled, `run` holds what has ended.

    Raises:
        OSError: a call could not be recorded; no further one is made.
    """
    waiting = iter(run.waiting)
    pace = _Pace(run.subject.limits.requests_per_minute)
    run.failures_max = max(FAILURES_MAX, 2 * concurrency)  # failures of calls that had already started add nothing
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(concurrency):
                group.create_task(_work(run, waiting, pace, record, progress), name=f"evaluating-{number}")
    except ExceptionGroup as several:
        raise several.exceptions[0] from None  # all workers meet the same full disk


async def _work(
    run: Run, waiting: Iterator[Labelled], pace: "_Pace", record: Record | None, progress: Callable[[int], None]
) -> None:
    for row in waiting:
        await pace.wait()
        if run.stopped is not None:
            return
        key = run.subject.key(row)
        started_s = time.monotonic()
        verdict = await _verdict(run.subject, row)
        took_ms = (time.monotonic() - started_s) * 1000
        ended = run.take(Call(key, row.body, run.subject.asker, took_ms), verdict)
        if ended is not None and record is not None and run.subject.evaluator.kind != recorded.KIND:
            record(ended)
        progress(run.made)


async def _verdict(subject: Subject, row: Labelled) -> Evaluated | Exception:
    """Make one call within its wall-clock limit."""
    call_s = subject.limits.call_s
    found = None
    try:
        async with asyncio.timeout(call_s):
            found = await asking.ask(subject.evaluator, row.body, subject.questions, key=row.key, deadline_s=call_s)
        validation.check_evaluated(subject.questions, found)
    except errors.InvalidAnswer as error:  # it was paid for all the same
        error.spent = error.spent or (None if found is None else spent_of(found))
        return error
    except Exception as error:  # noqa: BLE001 (the outermost step: an evaluator's fault fails its text, not the run)
        return error
    return found


def _is_valid(subject: Subject, evaluated: Evaluated) -> bool:
    try:
        validation.check_evaluated(subject.questions, evaluated)
    except errors.InvalidAnswer:
        return False
    return True


class _Pace:
    """Lets calls start no oftener than an evaluator's requests a minute, evenly."""

    def __init__(self, requests_per_minute: int | None) -> None:
        self._every_s = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._next_s = time.monotonic()

    async def wait(self) -> None:
        """Wait for this call's turn."""
        if not self._every_s:
            return
        now_s = time.monotonic()
        turn_s = max(self._next_s, now_s)
        self._next_s = turn_s + self._every_s
        await asyncio.sleep(turn_s - now_s)
