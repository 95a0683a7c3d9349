"""Filters: what is taken, what is refused with its place, and what could end the process."""

import threading
from datetime import UTC, datetime

import pytest
import searched

from facetline.facets.errors import InvalidFilter, UnknownValue
from facetline.facets.filter import parser
from facetline.facets.filter.tree import And, Between, Compare, In, IsNull, Like, Node, Not, Or
from facetline.facets.table import tables

TABLE = tables.table_of(searched.definition())
TOPIC, PRIORITY, DUE = (TABLE.columns[name] for name in ("topic", "state_priority", "state_due"))
URGENT, TITLE, RATIO = (TABLE.columns[name] for name in ("urgent", "state_title", "state_ratio"))
# The smallest stack that a thread has on the platforms we run on.
STACK_BYTES = 512 * 1024


def parse(text: str) -> Node:
    """Return the tree of a filter."""
    return parser.parse(text, TABLE)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("topic = 'billing'", Compare(TOPIC, "=", "billing")),
        ("'billing' = topic", Compare(TOPIC, "=", "billing")),
        ("\"topic\" = 'it''s \"odd\"'", Compare(TOPIC, "=", 'it\'s "odd"')),
        ("topic <> '日本'", Not(Compare(TOPIC, "=", "日本"))),
        ("topic != '日本'", Not(Compare(TOPIC, "=", "日本"))),
        ("1 <= state_priority", Compare(PRIORITY, ">=", 1)),
        ("state_priority = -3", Compare(PRIORITY, "=", -3)),
        ("state_priority > 9007199254740993", Compare(PRIORITY, ">", 9007199254740993)),
        ("state_priority = -9223372036854775808", Compare(PRIORITY, "=", -(2**63))),
        ("state_priority < 1e3", Compare(PRIORITY, "<", 1000)),
        ("state_ratio BETWEEN -0.5 AND 1e-3", Between(RATIO, -0.5, 0.001)),
        ("topic IN ('billing', 'other')", In(TOPIC, ("billing", "other"))),
        ("topic not in ('billing')", Not(In(TOPIC, ("billing",)))),
        ("state_title LIKE 'a%'", Like(TITLE, "a%")),
        ("topic IS NULL", IsNull(TOPIC)),
        ("topic IS NOT NULL", Not(IsNull(TOPIC))),
        ("urgent", Compare(URGENT, "=", True)),
        ("NOT urgent", Not(Compare(URGENT, "=", True))),
        ("urgent = FALSE", Compare(URGENT, "=", False)),
        (
            "urgent AND (topic IS NULL OR NOT state_priority = 1)",
            And((Compare(URGENT, "=", True), Or((IsNull(TOPIC), Not(Compare(PRIORITY, "=", 1)))))),
        ),
        (
            "state_due >= TIMESTAMP('2026-01-01T02:00:00+02:00')",
            Compare(DUE, ">=", datetime(2026, 1, 1, tzinfo=UTC)),
        ),
        ("state_due < '2026-01-01T00:00:00.5Z'", Compare(DUE, "<", datetime(2026, 1, 1, 0, 0, 0, 500000, tzinfo=UTC))),
    ],
)
def test_each_filter_form_is_parsed_to_its_node(text: str, tree: Node) -> None:
    """Each form that is taken becomes its node, with values exactly as written."""
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "line", "column", "part"),
    [
        ("topic = 'x' and\n  (", 2, 4, "the filter ends too early"),
        ("topic = 'billing'; drop table notes", 1, 18, "';"),
        ("topic in ()", 1, 11, "')'"),
        ("", 1, 1, "ends too early; expected a column or a value"),
        ("topic 'billing'", 1, 7, "expected a comparison, AND, OR or the end"),
        ("(topic = 'billing'", 1, 19, "expected a comparison, AND, OR or ')'"),
        ("topik = 'billing'", 1, 1, "no column 'topik' (did you mean 'topic'?)"),
        ("urgent or\n doc_facets IS NULL", 2, 2, "no column 'doc_facets'"),
        ("Topic = 'billing'", 1, 1, "did you mean 'topic'?"),
        ("topic = state_title", 1, 9, "Put text in quotes: topic = 'state_title'"),
        ("topic = NULL", 1, 9, "write topic IS NULL"),
        ("1 = 1", 1, 5, "stands where a column is needed"),
        ("topic = 1", 1, 9, "topic is text"),
        ("state_priority = 1.5", 1, 18, "whole number"),
        ("state_priority = 1e999999999", 1, 18, "whole number"),
        ("state_priority = 9223372036854775808", 1, 18, "64 bits"),
        ("state_ratio = 1e999", 1, 15, "beyond the range"),
        ("state_ratio = 'x'", 1, 15, "is a number"),
        ("state_priority = true", 1, 18, "whole number"),
        ("urgent = 1", 1, 10, "true or false"),
        ("urgent > false", 1, 1, "compare it with = or <>"),
        ("urgent BETWEEN false AND true", 1, 1, "compare it with = or <>"),
        ("state_due > '2026-01-01'", 1, 13, "with Z or an offset"),
        ("state_due > DATE('2026-01-01')", 1, 18, "with Z or an offset"),
        ("state_due > TIMESTAMP('soon')", 1, 23, "with Z or an offset"),
        ("state_priority LIKE '1%'", 1, 1, "LIKE compares text"),
        ("state_title LIKE 1", 1, 18, "in single quotes"),
        ("topic", 1, 1, "alone is no condition"),
        ("state_priority + 1 = 2", 1, 16, "arithmetic is not taken"),
        ("state_priority - 1 = 2", 1, 16, "arithmetic is not taken"),
        ("state_priority = -(2)", 1, 19, "arithmetic is not taken"),
        ("state_priority = --2", 1, 19, "arithmetic is not taken"),
        ("state_priority = -state_ratio", 1, 19, "arithmetic is not taken"),
        ("casei(topic) = 'billing'", 1, 1, "function 'casei' is not taken"),
        ("topic = 'billing' = 'other'", 1, 19, "join two comparisons with AND"),
        ("topic == 'billing'", 1, 8, "Use = instead of =="),
        ("topic = = 'billing'", 1, 9, "join two comparisons with AND"),
        ("(topic = 'billing') = true", 1, 2, "'=' is not taken"),
        ("topic = ('billing', 'other')", 1, 10, "this is not taken"),
        ("true", 1, 1, "is not taken"),
    ],
)
def test_an_invalid_filter_is_refused_with_line_and_column(text: str, line: int, column: int, part: str) -> None:
    """What cannot be read is refused with its line and column, both in the message and as fields."""
    with pytest.raises(InvalidFilter) as raised:
        parse(text)

    assert (raised.value.line, raised.value.column) == (line, column), raised.value.message
    assert part in raised.value.message


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("topic = 'biling'", "billing"),
        ("topic IN ('other', 'biling')", "billing"),
        ("severity_level = 'blockd'", "blocked"),
        ("doc_status <> 'indexd'", "indexed"),
    ],
)
def test_undeclared_values_name_the_nearest(text: str, nearest: str) -> None:
    """A value that the column can never hold is refused with the ones that it can."""
    with pytest.raises(UnknownValue, match=f"line 1, column .*did you mean '{nearest}'") as raised:
        parse(text)

    assert nearest in raised.value.allowed


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("(" * 51 + "urgent" + ")" * 51, "more than 50 parentheses"),
        ("not " * 51 + "urgent", "more than 50 NOT"),
        ("urgent and " * 250 + "urgent", "more than 250 conditions"),
        (f"state_priority in ({', '.join('1' * 2001)})", "more than 2000 names and values"),
        ("urgent" + " " * 65536, "at most 65536"),
        (f"state_title like '{'%' * 1001}'", "at most 1000"),
        (" or ".join(["state_title like 'a%'"] * 33), "at most 32 conditions"),
        ("state_priority = " + "-" * 30_000 + "1", "arithmetic"),
        ("state_priority = 1" + "+1" * 30_000, "arithmetic"),
        ("state_priority = 1" + " = 1" * 10_000, "join two comparisons with AND"),
        ("state_title is null" + " is null" * 5_000, "join two comparisons with AND"),
        ("(state_priority in (1)" + " in (1)" * 8_000 + ")", "join two comparisons with AND"),
        ("state_priority between 1 and 2" + " between 1 and 2" * 3_000, "join two comparisons with AND"),
        ("state_title = '\ud800'", "surrogate"),
    ],
)
def test_what_could_overflow_is_refused(text: str, part: str) -> None:
    """Depth, length and number of parts are bounded before the native parser sees them."""
    with pytest.raises(InvalidFilter, match=part):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "not (urgent and " * 50 + " or ".join(["urgent"] * 200) + ")" * 50,
        "not " * 50 + "(" * 50 + " and ".join(["urgent or topic is null"] * 125) + ")" * 50,
        f"state_priority in ({', '.join('1' * 1999)})",
    ],
)
def test_what_is_taken_fits_a_small_stack(text: str) -> None:
    """The largest filters that are taken are parsed on a thread with the smallest stack."""
    found: list[Node] = []
    before = threading.stack_size(STACK_BYTES)
    try:
        thread = threading.Thread(target=lambda: found.append(parse(text)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)

    assert len(found) == 1
