"""Filters as JSON: the same trees as of text, the same bounds, errors with their place."""

import contextlib
import json
from typing import Any

import pytest
import searched

from facetline.facets.errors import InvalidFilter, UnknownValue
from facetline.facets.filter import cql2_json, parser
from facetline.facets.table import tables

TABLE = tables.table_of(searched.definition())
TOPIC = {"property": "topic"}


def is_billing(**changes: Any) -> dict[str, Any]:
    """Return a condition, or one that differs by what is given."""
    return {"op": "=", "args": [TOPIC, "billing"], **changes}


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (is_billing(), "topic = 'billing'"),
        ({"op": "<>", "args": [TOPIC, 'it\'s "odd"']}, "topic <> 'it''s \"odd\"'"),
        ({"op": "not", "args": [{"property": "urgent"}]}, "NOT urgent"),
        ({"op": "and", "args": [is_billing(), {"op": "isNull", "args": [{"property": "mood"}]}]}, None),
        ({"op": "or", "args": [is_billing()]}, "topic = 'billing'"),
        ({"op": "=", "args": [{"property": "state_flag"}, True]}, "state_flag = TRUE"),
        ({"op": "in", "args": [TOPIC, ["billing", "other"]]}, "topic IN ('billing', 'other')"),
        ({"op": "like", "args": [{"property": "state_title"}, "a%\\_'"]}, "state_title LIKE 'a%\\_'''"),
        ({"op": ">", "args": [{"property": "state_priority"}, 2**53 + 1]}, "state_priority > 9007199254740993"),
        ({"op": ">=", "args": [1e-7, {"property": "state_ratio"}]}, "1e-7 >= state_ratio"),
        ({"op": "between", "args": [{"property": "severity"}, -0.5, 2]}, "severity BETWEEN -0.5 AND 2"),
        (
            {"op": "<", "args": [{"property": "state_due"}, {"timestamp": "2026-01-01T00:00:00Z"}]},
            "state_due < TIMESTAMP('2026-01-01T00:00:00Z')",
        ),
    ],
)
def test_json_means_what_the_text_means(tree: dict[str, Any], text: str | None) -> None:
    """Each form becomes the tree of its text, with values exactly as they came."""
    found = parser.parse(cql2_json.text_of(tree), TABLE)

    assert found == parser.parse(text or "topic = 'billing' AND mood IS NULL", TABLE)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({}, "filter: a condition is expected"),
        ({"op": "and", "args": []}, "filter.args: 'and' joins one condition or more"),
        ({"op": "or", "args": [is_billing(), 3]}, "filter.args[1]: a condition is expected"),
        ({"op": "or", "args": [True]}, "filter.args[0]: true alone is no condition"),
        ({"op": "s_intersects", "args": []}, 'filter: "s_intersects" with a list of args is expected to be one of and'),
        (is_billing(op="xor"), '"xor"'),
        (is_billing(args="topic"), "with a list of args"),
        (is_billing(more=1), "with a list of args"),
        (is_billing(args=[TOPIC]), "filter.args: '=' takes 2 args, not 1"),
        (is_billing(args=[TOPIC, None]), "filter.args[1]: a column or a value is expected, not None"),
        (is_billing(args=[TOPIC, {"timestamp": 3}]), "filter.args[1]: a column or a value"),
        (is_billing(args=[TOPIC, {"op": "+", "args": [1, 2]}]), "filter.args[1]: a column or a value"),
        (is_billing(args=[TOPIC, float("nan")]), "filter.args[1]: a column or a value"),
        (is_billing(args=[TOPIC, 10**40]), "filter.args[1]: a column or a value"),
        (is_billing(args=[{"property": 'topic" = topic OR "topic'}, "x"]), "filter.args[0]: there is no column"),
        ({"op": "in", "args": [TOPIC, "billing"]}, "filter.args[1]: a list of values is expected, not 'billing'"),
        ({"op": "in", "args": [TOPIC, []]}, "filter.args[1]: a list of values is expected, not a list"),
        ({"op": "in", "args": [TOPIC, ["billing"] * 2_001]}, "more than 2000 names and values"),
    ],
)
def test_an_invalid_json_filter_is_refused_with_its_path(tree: dict[str, Any], said: str) -> None:
    """What is no filter is refused with the way to it."""
    with pytest.raises(InvalidFilter) as raised:
        cql2_json.text_of(tree)

    assert said in raised.value.message


def test_what_could_overflow_is_refused() -> None:
    """Depth is bounded on the way down, however it is made."""
    for op in ("not", "and"):
        tree = is_billing()
        for _ in range(5_000):
            tree = {"op": op, "args": [tree]}

        with pytest.raises(InvalidFilter, match="inside each other"):
            cql2_json.text_of(tree)


def test_a_selection_takes_either() -> None:
    """A filter of JSON is the selection of its text; undeclared values are refused as they are there."""
    selection = searched.select(filter=json.loads(json.dumps(is_billing())))
    with contextlib.closing(searched.view()) as view:
        found = view.search(selection)
        with pytest.raises(UnknownValue, match="did you mean 'billing'"):
            view.search(searched.select(filter=is_billing(args=[TOPIC, "biling"])))

    assert selection == searched.select(filter="\"topic\" = 'billing'")
    assert found["total"] == 0
