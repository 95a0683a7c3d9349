"""What a call is charged with: an evaluator's own account of tokens and dollars, made fit for the ledger.

A custom evaluator may report anything; a count or an amount that is not a number counts as not reported.
"""

import math
import uuid
from collections.abc import Mapping

from facetline.evaluators.contract import Evaluator
from facetline.facets import errors
from facetline.facets.definitions import Definition
from facetline.storage import usage_ledger
from facetline.streams.classify import call

INPUT_NAMES = ("input_tokens", "prompt_tokens", "tokens", "total_tokens")
OUTPUT_NAMES = ("output_tokens", "completion_tokens")
"""Names of token counts, the first that is there counts; one without a direction counts as input."""

TOKENS_MAX = 10**12
USD_MAX = 1e9
"""More than this for one call is a mistake of the unit, and would be summed up for ever."""
MODEL_CHARS_MAX = 200


def entry_of(number: int, definition: Definition, evaluator: Evaluator, spent: errors.Spent) -> usage_ledger.UsageEntry:
    """Return the charge for a call; `number` is its place among the calls of this process."""
    input_tokens, output_tokens = tokens_of(spent.usage)
    return usage_ledger.UsageEntry(
        number=number,
        collection=definition.name,
        evaluator=definition.evaluator,
        model=_model(spent.model, definition.model),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cost_usd=0.0 if evaluator.limits.is_free else amount(spent.cost_usd),
    )


def one_call(definition: Definition, evaluator: Evaluator, spent: errors.Spent) -> usage_ledger.UsageBatch:
    """Return the usage batch of a call about no document; it is applied once."""
    return usage_ledger.UsageBatch(uuid.uuid4().hex, "ask", (entry_of(1, definition, evaluator, spent),))


def tokens_of(usage: object) -> tuple[int, int]:
    """Return the tokens in and out that a call reported; 0 for what was not reported."""
    counts = usage if isinstance(usage, Mapping) else {}
    return _first(counts, INPUT_NAMES), _first(counts, OUTPUT_NAMES)


def amount(given: object) -> float | None:
    """Return a number of dollars, None for anything that is none."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    return float(given) if math.isfinite(given) and 0 <= given <= USD_MAX else None


def _first(counts: Mapping[str, object], names: tuple[str, ...]) -> int:
    for name in names:
        count = counts.get(name)
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= TOKENS_MAX:
            return count
    return 0


def _model(given: object, otherwise: str) -> str:
    if not isinstance(given, str) or not given:
        return otherwise
    return call.storable(given, MODEL_CHARS_MAX)
