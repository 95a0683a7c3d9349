"""SQL: values are bound, LIKE means what it says, tables and texts survive odd names."""

import re

import duckdb
import pytest
import searched

from facetline.facets.questions import choice
from facetline.facets.search import conditions, sql, sql_text
from facetline.facets.search.selection import check_on_table
from facetline.facets.table import ddl, tables

TABLE = tables.table_of(searched.definition())


def test_no_value_is_in_the_text() -> None:
    """Whatever is asked for, each statement binds it."""
    selection = searched.select(
        facets={"topic": ('it\'s "odd"', "__missing__")},
        min_confidence=0.123,
        filter="state_title = 'x''y' AND state_priority IN (77, 78) AND state_due > '2026-03-04T00:00:00Z'",
        sort="state_title",
        limit=99,
        counts="topic,urgent",
        scope="o'scope",
    )
    query = sql.Query(TABLE, selection, check_on_table(selection, TABLE))
    after = ("o'clock", "u'ri")

    statements = [
        sql.page(query, after),
        sql.numbers(query),
        sql.places(query),
        sql.uris(query, after="u'ri", limit=55),
    ]

    for clause in statements:
        assert clause.text.count("?") == len(clause.values)
        assert not re.search(r"odd|0\.123|x'|77|2026|99|55|o'|u'", clause.text)


def test_shown_sql_reads_well() -> None:
    """The statement to be shown has each part on a line, and values as one would write them."""
    selection = searched.select(
        facets={"topic": ('it\'s "odd"', "billing"), "mood": ("calm", "__missing__")},
        min_confidence=0.5,
        mc={"mood": 0.8},
        scope="alice",
        filter="NOT (urgent AND state_priority > -3) AND topic <> 'other' AND state_title LIKE 'Re:%'"
        " AND state_due >= '0987-06-05T04:03:02.000001Z'",
    )

    statement = sql.shown(sql.Query(TABLE, selection, check_on_table(selection, TABLE)))

    assert statement == (
        'SELECT count(*) AS total FROM "notes"\n'
        """WHERE ("topic" IN ('it''s "odd"', 'billing') AND "topic_confidence" >= 0.5)\n"""
        """  AND (("mood" = 'calm' AND "mood_confidence" >= 0.8)"""
        """ OR NOT coalesce(("mood" IS NOT NULL AND "mood_confidence" >= 0.8), false))\n"""
        "  AND doc_scope = 'alice'\n"
        '  AND (NOT coalesce(("urgent" = true AND "state_priority" > -3), false)'
        """ AND "topic" IS DISTINCT FROM 'other' AND starts_with("state_title", 'Re:')"""
        """ AND "state_due" >= TIMESTAMP '0987-06-05 04:03:02.000001')"""
    )


def test_everything_is_shown_without_a_condition() -> None:
    """A search for everything is a plain count."""
    query = sql.Query(TABLE, searched.select(), None)

    assert sql.shown(query) == 'SELECT count(*) AS total FROM "notes"'


@pytest.mark.parametrize(
    "value",
    [
        *("", "'", "''; DROP TABLE notes; --", "a\0b", "\n\r\t\x7f", "日本?"),
        *(0.1, 0.12345678901234568, 123456789012345.6, 1e300, 5e-324, -0.5),
        *(2**63 - 1, -(2**63), True, False),
    ],
)
def test_a_shown_value_is_read_as_itself(value: str | float) -> None:
    """DuckDB reads each written value as just the one that was meant."""
    kind = {str: "VARCHAR", float: "DOUBLE", int: "BIGINT", bool: "BOOLEAN"}[type(value)]
    text = sql_text.text_of(conditions.Clause(f"SELECT CAST(CAST(? AS {kind}) AS {kind})", (value,)))

    with duckdb.connect() as connection:
        [(found,)] = connection.execute(text).fetchall()

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("pattern", "expression"),
    [
        ("a%", "a.*"),
        ("%%_", ".*."),
        (r"\%\_\\", r"\x{25}\x{5f}\x{5c}"),
        ("a.(é)\n", r"a\x{2e}\x{28}é\x{29}\x{a}"),
        ("a\\", r"a\x{5c}"),
        ("", ""),
    ],
)
def test_like_becomes_an_expression(pattern: str, expression: str) -> None:
    """% and _ are wild unless a backslash stands before them; everything else is itself."""
    assert conditions.like_expression(pattern) == expression


def test_options_are_declared_in_the_order_of_their_text() -> None:
    """An ENUM is ordered by its numbers, so they must be those of the text's order."""
    question = choice(ask="?", options=dict.fromkeys(("b", "it's", "a"), "…"))
    table = tables.table_of(searched.definition(questions={"q": question}))

    statements = ddl.create(table)

    assert table.columns["q"].values == ("b", "it's", "a")
    assert "CREATE TYPE live.main.\"notes.q\" AS ENUM ('a', 'b', 'it''s')" in statements


def test_the_table_has_the_named_columns_and_four_hidden_ones() -> None:
    """The table's columns are those that a filter may name, what hits are made from, and which text it is."""
    *_, statement = ddl.create(TABLE)

    names = re.findall(r'"(\w+)" (?:[A-Z]|live)', statement)

    assert names == [*TABLE.columns, "doc_facets", "doc_state", "doc_text", "doc_words"]
    assert [name for name in names if name.startswith("severity")] == [
        "severity",
        "severity_level",
        "severity_confidence",
    ]
