"""Asking an evaluator outside of the pipeline, where nobody else tries again what was nobody's fault."""

from collections.abc import Mapping

from evaluators.contract import Evaluated, Evaluator
from facets.errors import EvaluatorUnavailable
from facets.questions import Question

FINDINGS_MAX = 16
"""More than any model has to be found out about."""


async def ask(
    evaluator: Evaluator, body: str, questions: Mapping[str, Question], *, key: str, deadline_s: float
) -> Evaluated:
    """Evaluate, and once more after each call that only found out how to ask the next one (not `counted`).

    Every other error is the caller's, as from `Evaluator.evaluate`. `deadline_s` is each call's.
    """
    for _ in range(FINDINGS_MAX):
        try:
            return await evaluator.evaluate(body, questions, key=key, deadline_s=deadline_s)
        except EvaluatorUnavailable as error:
            if error.counted:
                raise
    return await evaluator.evaluate(body, questions, key=key, deadline_s=deadline_s)
