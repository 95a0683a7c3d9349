"""An evaluator for tests: does what it is told, call by call, and keeps a history of the calls.

Behaviours are taken in this order: the next one scripted for the document's key, else the one for all. A behaviour is
a value: an option's name (that answer to every question), an exception (raised), an `Evaluated` (returned as it is), a
`Held` (waits until it is released, then does what it holds), or a number (that many seconds, then the answer).
"""

import asyncio
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from facetline.evaluators.contract import Evaluated, Identity, Limits
from facetline.facets.answers import Answer, BooleanAnswer, ChoiceAnswer, ScoreAnswer
from facetline.facets.errors import EvaluatorUnavailable
from facetline.facets.questions import Choice, Question, Score


@dataclass
class Held:
    """Holds a call until `release` is called; `stubborn` ignores being cancelled."""

    then: "Behaviour" = "billing"
    stubborn: bool = False
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        """Let the call go on."""
        self.gate.set()

    async def wait(self) -> None:
        """Wait for the release."""
        while not self.gate.is_set():
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise


Behaviour = str | float | BaseException | Evaluated | Held


@dataclass(frozen=True)
class Asked:
    """One call."""

    key: str
    body: str
    at_s: float


class FakeEvaluator:
    """The evaluator contract over scripted behaviours."""

    kind = "fake"
    identity = Identity("fake", "fake-1")

    def __init__(self, always: Behaviour = "billing", *, body_bytes_max: int | None = None) -> None:
        self.always = always
        self.history: list[Asked] = []
        self.in_flight = 0
        self.in_flight_most = 0
        self.limits = Limits(frozenset({"choice", "boolean", "score"}), 255, 10, body_bytes_max)
        self._scripts: dict[str, deque[Behaviour]] = {}

    def script(self, key: str, *behaviours: Behaviour) -> None:
        """Do these things on the next calls about `key`, one each."""
        self._scripts.setdefault(key, deque()).extend(behaviours)

    @property
    def calls(self) -> Counter[str]:
        """How many calls there were about each key."""
        return Counter(asked.key for asked in self.history)

    @property
    def bodies(self) -> list[str]:
        """The bodies asked about, in order."""
        return [asked.body for asked in self.history]

    async def evaluate(self, body: str, questions: Mapping[str, Question], *, key: str, deadline_s: float) -> Evaluated:
        """Do what the script says, whatever the deadline: keeping it is the caller's business."""
        del deadline_s
        self.history.append(Asked(key, body, asyncio.get_running_loop().time()))
        self.in_flight += 1
        self.in_flight_most = max(self.in_flight_most, self.in_flight)
        try:
            script = self._scripts.get(key)
            return await self._do(script.popleft() if script else self.always, questions)
        finally:
            self.in_flight -= 1

    async def _do(self, behaviour: Behaviour, questions: Mapping[str, Question]) -> Evaluated:
        match behaviour:
            case Held():
                await behaviour.wait()
                return await self._do(behaviour.then, questions)
            case BaseException():
                raise behaviour
            case Evaluated():
                return behaviour
            case float() | int():
                await asyncio.sleep(behaviour)
                return said("billing", questions)
            case str():
                return said(behaviour, questions)

    async def close(self) -> None:
        """Nothing to release."""


class Strict(FakeEvaluator):
    """Answers `allowed` calls in each `window_s`, and refuses the others with a Retry-After to the window's end."""

    def __init__(self, allowed: int, window_s: float) -> None:
        super().__init__()
        self.refused = 0
        self._allowed = allowed
        self._window_s = window_s
        self._windows: Counter[int] = Counter()

    async def evaluate(self, body: str, questions: Mapping[str, Question], *, key: str, deadline_s: float) -> Evaluated:
        """Answer or refuse."""
        now_s = asyncio.get_running_loop().time()
        window = int(now_s / self._window_s)
        self._windows[window] += 1
        if self._windows[window] > self._allowed:
            self.refused += 1
            left_s = (window + 1) * self._window_s - now_s
            raise EvaluatorUnavailable("slow down", reason="rate_limited", retry_after_s=left_s)
        return await super().evaluate(body, questions, key=key, deadline_s=deadline_s)


def said(option: str, questions: Mapping[str, Question]) -> Evaluated:
    """Return a valid set of answers: `option` to each choice, yes to each boolean, the lowest level to each score."""
    answers: dict[str, Answer] = {}
    for name, question in questions.items():
        if isinstance(question, Choice):
            answers[name] = ChoiceAnswer(choice=option, confidence=0.9)
        elif isinstance(question, Score):
            answers[name] = ScoreAnswer(score=0.0)
        else:
            answers[name] = BooleanAnswer(probability=1.0)
    return Evaluated(answers, "fake-1", "test", {"tokens": 3}, 0.25)
