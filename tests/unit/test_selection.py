"""Selections: what a caller may ask, and what an error tells them."""

from typing import Any

import pytest
import searched

from facetline.facets.errors import InvalidFilter, InvalidQuery, UnknownFacet, UnknownValue
from facetline.facets.search.selection import Selection, check_selection, selection_of, with_declared
from facetline.facets.table import tables

TABLE = tables.table_of(searched.definition())


def refusal(error: type[InvalidQuery], **fields: Any) -> str:
    """Return the message that refuses these fields."""
    with pytest.raises(error) as raised:
        check_selection(searched.select(**fields), searched.definition())
    assert type(raised.value) is error
    return raised.value.message


def test_a_full_selection_is_taken() -> None:
    """Every field may be used at once."""
    selection = searched.select(
        facets={"topic": "billing", "mood": ["calm", "__missing__"]},
        min_confidence=0.8,
        filter="urgent AND severity > 1",
        sort="-severity,doc_written_at",
        limit=200,
        counts="topic, urgent",
        scope="alice",
    )

    check_selection(selection, searched.definition())

    assert selection.facets == {"topic": ("billing",), "mood": ("calm", "__missing__")}
    assert selection.sort == ("-severity", "doc_written_at")
    assert selection.counts == ("topic", "urgent")


def test_an_unknown_facet_names_the_nearest() -> None:
    """An unknown question is answered with the ones that there are."""
    message = refusal(UnknownFacet, facets={"topik": ["billing"]})

    assert message == (
        "there is no facet 'topik' (did you mean 'topic'?); known: topic, mood, urgent, severity, "
        "state_title, state_priority, state_ratio, state_flag, state_due"
    )


def test_an_unknown_option_names_the_nearest() -> None:
    """An unknown option is answered with the declared ones."""
    message = refusal(UnknownValue, facets={"topic": ["biling"]})

    assert message.startswith("question 'topic' has no option 'biling' (did you mean 'billing'?); allowed: other, ")
    assert message.endswith("__missing__")


@pytest.mark.parametrize(
    ("given", "declared"),
    [("yes", "true"), ("No", "false"), ("TRUE", "true"), (True, "true"), ([False, "__missing__"], "false __missing__")],
)
def test_yes_and_no_are_said_in_many_ways(given: Any, declared: str) -> None:
    """However a boolean is asked for, it is one search: one cursor, one address, one place in the cache."""
    selection = with_declared(searched.select(facets={"urgent": given}), TABLE)

    check_selection(selection, searched.definition())
    assert selection.facets == {"urgent": tuple(declared.split())}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("urgent", "maybe", "question 'urgent' has no value 'maybe'; allowed: true, false, __missing__"),
        ("urgent", "1", "question 'urgent' has no value '1'; allowed: true, false, __missing__"),
        ("severity", "anoying", "question 'severity' has no level 'anoying' (did you mean 'annoying'?); allowed: "),
        ("severity", "1", "question 'severity' has no level '1'; allowed: cosmetic, annoying, blocked, __missing__"),
    ],
)
def test_a_value_that_is_not_declared_names_those_that_are(name: str, value: str, message: str) -> None:
    """Booleans and scores are selected by name as choices are, and refused as they are."""
    assert refusal(UnknownValue, facets={name: [value]}).startswith(message)


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"limit": 0}, "limit is 0; it goes from 1 to 200"),
        ({"limit": 201}, "it goes from 1 to 200"),
        ({"min_confidence": -0.1}, "it goes from 0 to 1"),
        ({"min_confidence": 1.1}, "it goes from 0 to 1"),
        ({"min_confidence": float("nan")}, "it goes from 0 to 1"),
        ({"facets": {"topic": []}}, "'topic' is given without a value"),
        ({"facets": {"topic": ["billing"] * 257}}, "at most 256"),
        ({"sort": "severty"}, "there is no column 'severty' (did you mean 'severity'?)"),
        ({"sort": "doc_facets"}, "there is no column 'doc_facets'"),
        ({"sort": "severity,-severity"}, "sort names 'severity' twice"),
        ({"sort": tuple(f"c{n}" for n in range(9))}, "at most 8"),
        ({"counts": "topic,topic"}, "counts names 'topic' twice"),
        ({"mc": {"topic": 1.5}}, "mc.topic is 1.5; it goes from 0 to 1"),
        ({"mc": {"topic": float("nan")}}, "mc.topic is nan; it goes from 0 to 1"),
        ({"mc": {"topc": 0.5}}, "there is no facet 'topc' (did you mean 'topic'?); known: topic, mood, urgent"),
        ({"facet_size": 0}, "facet_size is 0; it goes from 1 to 1000"),
        ({"facet_size": 1001}, "it goes from 1 to 1000"),
        ({"facet_min_count": -1}, "facet_min_count is -1; it begins at 0"),
        ({"scope": ""}, "scope is empty"),
        ({"scope": "\ud800"}, "scope holds half a surrogate pair"),
    ],
)
def test_refusals_name_the_field_and_what_is_allowed(fields: dict[str, Any], part: str) -> None:
    """What cannot be answered is refused by the name of its field."""
    error = UnknownFacet if "topc" in part else InvalidQuery

    assert part in refusal(error, **fields)


def test_a_count_of_no_question_is_refused() -> None:
    """Counts are of questions, all kinds of them, or of all at once."""
    assert "known: topic, mood, urgent, severity, state_title" in refusal(UnknownFacet, counts="topc")
    assert "counts names 'topic' twice" in refusal(InvalidQuery, counts="topic,*")


def test_an_unscoped_collection_has_no_scope() -> None:
    """A scope asked of a collection without scopes is refused instead of finding nothing."""
    with pytest.raises(InvalidQuery, match="has no scopes"):
        check_selection(searched.select(scope="alice"), searched.definition(scoped=False))


def test_a_bad_filter_is_refused_with_the_rest() -> None:
    """The filter is checked as part of the selection."""
    assert "no column 'nope'" in refusal(InvalidFilter, filter="nope = 1")


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"fasets": {}}, "there is no search field 'fasets' (did you mean 'facets'?)"),
        ({"facets": {"topic": 1.5}}, "facets.topic"),
        ({"limit": "many"}, "limit: must be a whole number"),
        ({"facet_sort": "most"}, "facet_sort: must be 'declared', 'count' or 'alpha'"),
        ({"facet_mode": "either"}, "facet_mode: must be 'disjunctive' or 'conjunctive'"),
    ],
)
def test_fields_of_another_shape_are_refused(fields: dict[str, Any], part: str) -> None:
    """A misspelt field or a value of another type is an error of the query, with its place."""
    with pytest.raises(InvalidQuery) as raised:
        selection_of({"collection": "notes", **fields})

    assert part in raised.value.message


def test_a_selection_is_a_value() -> None:
    """Equal fields make equal selections."""
    assert searched.select(facets={"topic": "billing"}) == Selection(collection="notes", facets={"topic": ("billing",)})


@pytest.mark.parametrize(
    ("facets", "error", "part"),
    [
        (
            {"state_titel": ["a"]},
            UnknownFacet,
            "there is no facet 'state_titel' (did you mean 'state_title'?); known: topic",
        ),
        ({"title": ["a"]}, UnknownFacet, "(did you mean 'state_title'?)"),
        (
            {"state_flag": ["maybe"]},
            UnknownValue,
            "'state_flag' has no value 'maybe'; allowed: true, false, __missing__",
        ),
        ({"state_priority": ["high"]}, InvalidQuery, "'state_priority' is a whole number and never 'high'"),
        ({"state_priority": [str(2**63)]}, InvalidQuery, "'state_priority' is a whole number and never"),
        ({"state_title": ["\ud800"]}, InvalidQuery, "a value of 'state_title' holds half a surrogate pair"),
        ({"state_ratio": ["0.5"]}, InvalidQuery, "select a range with filter instead, such as state_ratio >= 1.5"),
        ({"state_due": ["x"]}, InvalidQuery, "such as state_due >= '2026-11-30T00:00:00Z'"),
    ],
)
def test_values_of_own_fields_are_checked(facets: dict[str, Any], error: type[InvalidQuery], part: str) -> None:
    """What an own field cannot hold is refused by name, with the way out."""
    assert part in refusal(error, facets=facets)


def test_counts_take_own_fields_beside_all_questions() -> None:
    """The star stands for the questions; a name twice is refused however it comes in, and so are many-valued fields."""
    check_selection(searched.select(counts="*,state_title,state_flag"), searched.definition())

    assert "counts names 'topic' twice" in refusal(InvalidQuery, counts="*,topic")
    assert "'state_ratio' is a number" in refusal(InvalidQuery, counts="state_ratio")
    assert "(did you mean 'state_title'?)" in refusal(UnknownFacet, counts="state_titel")
