"""An evaluator that answers late, wrongly or never, refuses, limits and goes away; each answer tells its call.

So does the name of its model: the ledger then has a row for each call.
"""

import asyncio
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from simulation.promises import Call

from facetline.evaluators.contract import Evaluated, Identity, Limits
from facetline.facets.answers import BooleanAnswer, ChoiceAnswer
from facetline.facets.errors import EvaluationFailed, EvaluatorMisconfigured, EvaluatorUnavailable
from facetline.facets.questions import Question

if TYPE_CHECKING:
    from simulation.process import Process

CALL_S = 1.0


class SimEvaluator:
    """What one process asks about one collection, under one definition."""

    kind = "sim"
    identity = Identity("sim", "sim-1")
    limits = Limits(frozenset({"choice", "boolean", "score"}), 255, 10)

    def __init__(self, process: "Process", fingerprint: str) -> None:
        self._process = process
        self._fingerprint = fingerprint

    async def evaluate(self, body: str, questions: Mapping[str, Question], *, key: str, deadline_s: float) -> Evaluated:
        """Make a call, and let the world say what comes of it."""
        world, chance = self._process.world, self._process.world.chance("evaluator")
        task = asyncio.current_task()
        uri, _, indexed_as = (task.get_name() if task else "").removeprefix("call ").rpartition(" as ")
        scope = uri[1:].partition("/")[0] if uri.startswith("@") else ""
        number = len(world.promises.calls) + 1
        call = Call(number, uri, int(indexed_as), body, scope, self._fingerprint, world.now_ms())
        world.note(self._process.name, f"call {number} {uri}/{indexed_as}")
        world.check(lambda: world.promises.call(call, self._process.name))
        mode = world.evaluator_mode()
        if mode == "fine" and chance.random() < world.trouble:
            mode = chance.choice(("late", "wrong", "limited", "gone", "refusing", "broken", "never"))
        await asyncio.sleep(chance.uniform(0.01, 0.3))
        match mode:
            case "late":
                await asyncio.sleep(chance.uniform(0.3, 1.3 * CALL_S))
            case "never":
                await asyncio.sleep(1e6)
            case "limited":
                raise EvaluatorUnavailable("slow down", reason="rate_limited", retry_after_s=chance.choice((None, 0.5)))
            case "gone":
                raise EvaluatorUnavailable("away")
            case "misconfigured":
                raise EvaluatorMisconfigured("a bad key")
            case "broken":
                raise RuntimeError("a bug")
            case "refusing":
                raise EvaluationFailed("not this one", reason="refused")
            case "wrong":
                return Evaluated(_wrong(chance.randint(0, 4), number, questions), f"call-{number}", "test")
        call.valid = True
        return Evaluated(_right(chance.choice(("billing", "outage")), number, questions), f"call-{number}", "test")

    async def close(self) -> None:
        """Nothing to release."""


def _right(said: str, number: int, questions: Mapping[str, Question]) -> dict[str, Any]:
    answers: dict[str, Any] = {"topic": ChoiceAnswer(choice=said, confidence=number / 1_000_000)}
    if "urgent" in questions:
        answers["urgent"] = BooleanAnswer(probability=0.75)
    return answers


def _wrong(how: int, number: int, questions: Mapping[str, Question]) -> dict[str, Any]:
    answers = _right("billing", number, questions)
    match how:
        case 0:
            answers["topic"] = ChoiceAnswer(choice="Billing", confidence=number / 1_000_000)
        case 1:
            del answers["topic"]
        case 2:
            answers["more"] = BooleanAnswer(probability=0.5)
        case 3:
            answers["topic"] = ChoiceAnswer(choice="billing", confidence=math.nan)
        case _:
            answers["topic"] = ChoiceAnswer(choice="billing", confidence=1.5)
    return answers
