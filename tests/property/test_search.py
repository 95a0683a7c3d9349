"""Search equals a plain filter over the documents: hits, totals, every count, and the laws between them."""

from collections.abc import Iterator
from typing import Any

import naive_search
import pytest
import search_strategies
import searched
from hypothesis import given
from hypothesis import strategies as st

from facetline.facets.definitions import Definitions
from facetline.facets.documents import Record
from facetline.facets.view.view import View


@pytest.fixture(scope="module")
def view() -> Iterator[View]:
    """A view that every example empties for itself: making one takes longer than an example."""
    made = View(store_id="store")
    yield made
    made.close()


def fill(view: View, records: list[Record]) -> None:
    """Make the view hold these records and nothing else."""
    view.define(Definitions([]))
    view.define(Definitions([searched.definition()]))
    view.apply(records)


@search_strategies.fewer
@given(
    feed=search_strategies.feeds(),
    fields=search_strategies.selections,
    condition=st.one_of(st.none(), search_strategies.filters),
)
def test_a_reply_equals_a_plain_filter(
    view: View, feed: list[Record], fields: dict[str, Any], condition: search_strategies.Filter | None
) -> None:
    """Hits, total, every count and every reason are those of a filter over the documents, one by one."""
    fill(view, feed)
    selection = searched.select(**fields, limit=200, filter=condition.text if condition else None)
    holds = condition.holds if condition else lambda _: True
    known = naive_search.alive(feed)
    expected = [record for record in known if naive_search.matches(record, selection, holds)]

    reply = view.search(selection)

    assert reply["hits"] == [naive_search.hit(record) for record in naive_search.ordered(expected, ())]
    assert reply["keys"] == [hit["key"] for hit in reply["hits"]]
    assert reply["total"] == len(expected)
    assert reply["facets"] == [naive_search.counted(known, selection, holds, question) for question in fields["counts"]]
    assert reply["as_of"]["pending"] == sum(
        1 for each in known if each.status == "pending" and selection.scope in {None, each.scope}
    )


@search_strategies.fewer
@given(feed=search_strategies.feeds(), fields=search_strategies.selections)
def test_buckets_and_missing_add_up(view: View, feed: list[Record], fields: dict[str, Any]) -> None:
    """A facet's buckets, the ones left out and its missing ones are its total; the reasons are all of the missing."""
    fill(view, feed)

    reply = view.search(searched.select(**fields))

    for facet in reply["facets"]:
        missing = facet["missing"].pop("count")
        shown = sum(bucket["count"] for bucket in facet["buckets"])
        assert shown + facet["other_count"] + missing == facet["total"]
        assert sum(facet["missing"].values()) == missing
        if facet["type"] == "score":
            assert sum(interval["count"] for interval in facet["histogram"]) == shown + facet["other_count"]


@search_strategies.fewer
@given(feed=search_strategies.feeds(), fields=search_strategies.selections, data=st.data())
def test_a_count_is_the_total_one_gets_by_selecting_it(
    view: View, feed: list[Record], fields: dict[str, Any], data: st.DataObject
) -> None:
    """Selecting one bucket of a choice, or its missing ones, gives just as many documents as were counted."""
    fill(view, feed)
    question = data.draw(st.sampled_from(("topic", "mood")))
    fields = {**fields, "facet_mode": "disjunctive"}
    [counted] = [facet for facet in view.search(searched.select(**fields))["facets"] if facet["name"] == question]
    counts = {bucket["value"]: bucket["count"] for bucket in counted["buckets"]}
    counts["__missing__"] = counted["missing"]["count"]
    value = data.draw(st.sampled_from(sorted(counts)))

    chosen = {**fields, "facets": {**fields["facets"], question: (value,)}}

    assert view.search(searched.select(**chosen))["total"] == counts[value]


@search_strategies.fewer
@given(feed=search_strategies.feeds(), condition=search_strategies.filters, complement=search_strategies.complements)
def test_not_is_an_exact_complement(
    view: View, feed: list[Record], condition: search_strategies.Filter, complement: tuple[str, str]
) -> None:
    """A filter and its negation, in every spelling, share the documents without remainder, missing values included."""
    fill(view, feed)

    for text, negation in ((condition.text, f"NOT ({condition.text})"), complement):
        found = [view.search(searched.select(filter=each, limit=200))["keys"] for each in (text, negation)]

        assert sorted(found[0] + found[1]) == sorted(record.key for record in naive_search.alive(feed))


@search_strategies.fewer
@given(feed=search_strategies.feeds(size=40), data=st.data())
def test_any_delivery_gives_the_same_table(view: View, feed: list[Record], data: st.DataObject) -> None:
    """Shuffled, repeated and differently batched, the same records end in the same rows."""
    fill(view, feed)
    expected = rows(view)

    delivery = data.draw(st.permutations(feed + data.draw(st.lists(st.sampled_from(feed))) if feed else []))
    fill(view, [])
    while delivery:
        size = data.draw(st.integers(1, len(delivery)))
        view.apply(delivery[:size])
        delivery = delivery[size:]

    assert rows(view) == expected
    assert len(expected) == len({record.uri for record in feed})


def rows(view: View) -> list[tuple[Any, ...]]:
    """Return all that the table holds, the hidden rows too."""
    return view._connection.execute('SELECT * FROM live.main."notes" ORDER BY doc_uri').fetchall()
