"""Pages: every document once, in order, whatever the order and whatever arrives meanwhile."""

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
from facetline.facets.search.selection import Selection
from facetline.facets.view.view import View

# More than documents that an example can have.
PAGES_MAX = 100


@pytest.fixture(scope="module")
def view() -> Iterator[View]:
    """A view that every example empties for itself."""
    made = View()
    yield made
    made.close()


def fill(view: View, records: list[Record]) -> None:
    """Make the view hold these records and nothing else."""
    view.define(Definitions([]))
    view.define(Definitions([searched.definition()]))
    view.apply(records)


def pages(view: View, selection: Selection, between: Iterator[list[Record]]) -> Iterator[list[str]]:
    """Yield the uris of each page to the end, applying the next records after each."""
    for _ in range(PAGES_MAX):
        reply = view.search(selection)
        yield [hit["uri"] for hit in reply["hits"]]
        if reply["next_cursor"] is None:
            return
        selection = selection.model_copy(update={"cursor": reply["next_cursor"]})
        view.apply(next(between, []))
    pytest.fail("the pages do not end")


@search_strategies.fewer
@given(
    feed=search_strategies.feeds(size=30),
    sort=search_strategies.sorts,
    limit=st.integers(1, 7),
    facets=search_strategies.wanted,
)
def test_pages_hold_every_document_once_in_order(
    view: View, feed: list[Record], sort: tuple[str, ...], limit: int, facets: dict[str, Any]
) -> None:
    """The pages together are the selected documents in the asked order, none twice and all but the last page full."""
    fill(view, feed)
    selection = searched.select(sort=sort, limit=limit, facets=facets)
    known = [r for r in naive_search.alive(feed) if naive_search.matches(r, selection, lambda _: True)]

    found = list(pages(view, selection, iter(())))

    assert [uri for page in found for uri in page] == [r.uri for r in naive_search.ordered(known, sort)]
    assert all(len(page) == limit for page in found[:-1])


@search_strategies.fewer
@given(
    feed=search_strategies.feeds(size=30),
    arriving=search_strategies.feeds("ABCDEFuvwxyz", size=20),
    sort=search_strategies.sorts,
    limit=st.integers(1, 5),
)
def test_arrivals_disturb_no_page(
    view: View, feed: list[Record], arriving: list[Record], sort: tuple[str, ...], limit: int
) -> None:
    """Documents that arrive between two pages neither repeat nor hide one that was there before."""
    fill(view, feed)
    once = list({record.uri: record for record in arriving}.values())  # one that changes again may move to a later page
    batches = iter([once[start : start + 3] for start in range(0, len(once), 3)])

    found = [uri for page in pages(view, searched.select(sort=sort, limit=limit), batches) for uri in page]

    expected = [record.uri for record in naive_search.ordered(naive_search.alive(feed), sort)]
    assert [uri for uri in found if uri in expected] == expected
    assert len(set(found)) == len(found)


@search_strategies.fewer
@given(feed=search_strategies.feeds(size=30), size=st.integers(1, 7), facets=search_strategies.wanted)
def test_uris_hold_every_document_once(view: View, feed: list[Record], size: int, facets: dict[str, Any]) -> None:
    """Asked for again behind the last one, `uris` goes through the selected documents in order."""
    fill(view, feed)
    selection = searched.select(facets=facets)
    found: list[str] = []

    while page := view.uris(selection, after=found[-1] if found else "", limit=size):
        found += page

    known = [r for r in naive_search.alive(feed) if naive_search.matches(r, selection, lambda _: True)]
    assert found == sorted(record.uri for record in known)
