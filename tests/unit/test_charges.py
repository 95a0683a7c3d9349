"""What a call is charged with, whatever an evaluator hands on: junk is taken as not told."""

import math
from typing import Any

import pytest
from claims import DEFINITION
from fake_evaluator import FakeEvaluator
from hypothesis import given
from hypothesis import strategies as st

from facetline.facets.errors import Spent
from facetline.streams.classify import usage as charges

JUNK = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5) | st.lists(st.integers())


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"input_tokens": 7, "output_tokens": 2}, (7, 2)),
        ({"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}, (7, 2)),
        ({"tokens": 3}, (3, 0)),
        ({"input_tokens": -1, "total_tokens": 4}, (4, 0)),
        ({"input_tokens": True, "output_tokens": 10**30}, (0, 0)),
        ({}, (0, 0)),
        (None, (0, 0)),
        ([1, 2], (0, 0)),
    ],
)
def test_tokens_by_the_names_that_evaluators_use(usage: Any, tokens: tuple[int, int]):
    """Ours, OpenAI's, and a count without a direction, which is taken as input."""
    assert charges.tokens_of(usage) == tokens


@pytest.mark.parametrize("told", [None, True, "0.5", math.nan, math.inf, -0.1, 1e12])
def test_a_cost_that_is_none_is_not_told(told: object):
    """Anything but a number of dollars that one call may cost is unknown, and never 0."""
    assert charges.amount(told) is None
    assert (charges.amount(0), charges.amount(0.25)) == (0.0, 0.25)


@given(
    model=JUNK, usage=st.dictionaries(st.sampled_from([*charges.INPUT_NAMES, *charges.OUTPUT_NAMES]), JUNK), cost=JUNK
)
def test_every_charge_fits_the_ledger(model: Any, usage: Any, cost: Any):
    """Whatever was handed on: counts from 0 up, a finite cost or none, and a model's name that a database takes."""
    charge = charges.entry_of(1, DEFINITION, FakeEvaluator(), Spent(model, usage, cost))

    assert 0 <= charge.input_tokens <= charges.TOKENS_MAX
    assert 0 <= charge.output_tokens <= charges.TOKENS_MAX
    assert charge.cost_usd is None or 0 <= charge.cost_usd <= charges.USD_MAX
    assert 0 < len(charge.model) <= charges.MODEL_CHARS_MAX
    assert "\0" not in charge.model
