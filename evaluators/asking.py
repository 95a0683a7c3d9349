"""Calls to an evaluator outside of the pipeline, with the retries that the pipeline would make."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from facetline.evaluators.contract import Evaluated, Evaluator, spent_of
from facetline.facets.errors import EvaluationFailed, EvaluatorMisconfigured, EvaluatorUnavailable, Spent
from facetline.facets.questions import Question

FINDINGS_MAX = 16
"""More than any model has to be found out about."""


async def ask(
    evaluator: Evaluator, body: str, questions: Mapping[str, Question], *, key: str, deadline_s: float
) -> Evaluated:
    """Evaluate, and once more after each call that only found out how to ask the next one (not `counted`).

    Every other error is the caller's, as from `Evaluator.evaluate`. `deadline_s` is each call's. Usage and cost, of an
    answer as of an error, are those of all calls together; unknown where one of them reported nothing.
    """
    findings: list[Spent] = []
    while True:
        try:
            found = await evaluator.evaluate(body, questions, key=key, deadline_s=deadline_s)
        except EvaluatorUnavailable as error:
            if error.counted or len(findings) >= FINDINGS_MAX:
                error.spent = _total(findings, error.spent)
                raise
            findings.append(error.spent or _NOTHING)
        except (EvaluationFailed, EvaluatorMisconfigured) as error:
            error.spent = _total(findings, error.spent)
            raise
        else:
            spent = _total(findings, spent_of(found))
            return found if spent is None else replace(found, usage=spent.usage, cost_usd=spent.cost_usd)


_NOTHING = Spent()
"""Stands for a call that was refused before anything was used up."""


def _total(findings: Sequence[Spent], last: Spent | None) -> Spent | None:
    """Return what all calls used up: `last` itself where the others used up nothing."""
    paid = [each for each in findings if each is not _NOTHING]
    if not paid:
        return last
    every = [*paid, *([] if last is None else [last])]
    tokens: Counter[str] = Counter()
    for each in every:
        tokens.update({name: count for name, count in (each.usage or {}).items() if isinstance(count, int)})
    costs = [each.cost_usd for each in every]
    cost_usd = None if None in costs else sum(cost for cost in costs if cost is not None)
    return Spent(every[-1].model, dict(tokens) or None, cost_usd)
