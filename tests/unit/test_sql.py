"""SQL: values are bound, LIKE means what it says, tables and texts survive odd names."""

import re

import pytest
import searched

from facets import conditions, sql, table_sql, tables
from facets.questions import choice
from facets.selection import check_on_table

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

    statements = [sql.page(query, after), sql.total(query), sql.pending(query), sql.counts(query)]
    statements.append(sql.uris(query, after="u'ri", limit=55))

    for clause in statements:
        assert clause.text.count("?") == len(clause.values)
        assert not re.search(r"odd|0\.123|x'|77|2026|99|55|o'|u'", clause.text)


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

    statements = table_sql.create(table)

    assert table.columns["q"].values == ("b", "it's", "a")
    assert "CREATE TYPE live.main.\"notes.q\" AS ENUM ('a', 'b', 'it''s')" in statements


def test_the_table_has_the_named_columns_and_two_hidden_ones() -> None:
    """The table's columns are those that a filter may name, and the texts that hits are rebuilt from."""
    *_, statement = table_sql.create(TABLE)

    names = re.findall(r'"(\w+)" (?:[A-Z]|live)', statement)

    assert names == [*TABLE.columns, "doc_facets", "doc_state"]
    assert [name for name in names if name.startswith("severity")] == [
        "severity",
        "severity_level",
        "severity_confidence",
    ]
