"""Filters of any shape: read or refused, never anything else."""

import contextlib

import searched
from hypothesis import example, given
from hypothesis import strategies as st

from facetline.facets.errors import InvalidQuery
from facetline.facets.filter import parser
from facetline.facets.search import conditions
from facetline.facets.table import tables

TABLE = tables.table_of(searched.definition())
WORDS = (
    *("topic", "urgent", "severity", "state_title", "state_priority", "state_due", "nope", "and", "or", "not", "in"),
    *(
        "like",
        "between",
        "is",
        "null",
        "true",
        "TIMESTAMP",
        "DATE",
        "interval",
        "casei",
        "s_intersects",
        "POINT",
        "div",
    ),
    *("'billing'", "'2026-01-01T00:00:00Z'", "'a%'", "''", "1", "-1", "1.5", "1e400", "(", ")", ",", "=", "<>", "<"),
    *(">=", "!=", "+", "-", "*", "/", "%", "^", '"', "'", ";", "\\", "{", "日本", "\x00", "..", "1 2"),
)
soups = st.lists(st.sampled_from(WORDS), max_size=15).map(" ".join)


@given(text=st.one_of(soups, st.text(max_size=40)))
@example(text="topic = TIMESTAMP(")
@example(text="TIMESTAMP('x')")
@example(text="POINT(1 1)")
@example(text="interval('..', '..')")
@example(text="a_equals((1), (1))")
@example(text="topic in (topic)")
@example(text="state_title like topic")
def test_any_text_is_read_or_refused(text: str) -> None:
    """Any text at all becomes a condition or an error of the query."""
    clause = None

    with contextlib.suppress(InvalidQuery):
        clause = conditions.condition(parser.parse(text, TABLE))

    assert clause is None or clause.text.count("?") == len(clause.values)


@given(option=st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=20))
def test_values_never_get_into_the_text(option: str) -> None:
    """Whatever a value is, the SQL is the same, and the value is bound as it was written."""
    quoted = option.replace("'", "''")

    clause = conditions.condition(parser.parse(f"state_title = '{quoted}'", TABLE))

    assert clause.text == conditions.condition(parser.parse("state_title = 'x'", TABLE)).text
    assert clause.values == (option,)
