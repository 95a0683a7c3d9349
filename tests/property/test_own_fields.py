"""Counts of own fields equal a plain count over the documents, in both modes, with and without words."""

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

KINDS = {"state_title": "text", "state_priority": "integer", "state_flag": "boolean"}
_VALUES: dict[str, st.SearchStrategy[str]] = {
    "state_title": st.one_of(st.text(search_strategies.ALPHABET, max_size=2), st.just("__missing__")),
    "state_priority": st.sampled_from(("-3", "0", "+1", "2", "9007199254740993", "__missing__")),
    "state_flag": st.sampled_from(("true", "no", "__missing__")),
    "topic": st.sampled_from((*searched.TOPICS, "__missing__")),
}
selections = st.fixed_dictionaries(
    {
        "facets": st.fixed_dictionaries(
            {},
            optional={name: st.lists(each, min_size=1, max_size=3).map(tuple) for name, each in _VALUES.items()},
        ),
        "counts": st.permutations((*KINDS, "*")).map(tuple),
        "facet_mode": st.sampled_from(("disjunctive", "conjunctive")),
        "facet_size": st.integers(1, 5),
        "facet_sort": st.sampled_from(("declared", "count", "alpha")),
        "facet_min_count": st.integers(0, 3),
    },
    optional={
        "min_confidence": st.sampled_from((0.0, 0.5, 1.0)),
        "scope": st.sampled_from(("alice", "bob")),
        "q": st.sampled_from(("a", "b")),
    },
)


@pytest.fixture(scope="module")
def view() -> Iterator[View]:
    """A view that every example empties for itself."""
    made = View(store_id="store")
    yield made
    made.close()


@search_strategies.fewer
@given(feed=search_strategies.feeds(), fields=selections)
def test_counts_of_own_fields_equal_a_plain_count(view: View, feed: list[Record], fields: dict[str, Any]) -> None:
    """Every bucket, total and number without a value, and the search's own total, are those of a loop."""
    view.define(Definitions([]))
    view.define(Definitions([searched.definition()]))
    view.apply(feed)
    selection = searched.select(**fields, limit=200)
    # What words find is another test's matter: here it is whatever the plain search by the same words finds.
    found = view.search(searched.select(q=selection.q, limit=200))["keys"] if selection.q else None
    known = [each for each in naive_search.alive(feed) if found is None or each.key in found]

    reply = view.search(selection)

    assert reply["total"] == sum(1 for record in known if _matches(record, selection))
    facets = [facet for facet in reply["facets"] if facet["name"] in KINDS]
    asked = [name for name in selection.counts if name in KINDS]
    assert facets == [_counted(known, selection, name) for name in asked]


def _values(record: Record, name: str) -> str:
    if name not in KINDS:
        reason = naive_search.missing(record, name, None)
        return "__missing__" if reason else naive_search.said(naive_search.answer(record, name) or {})
    found = naive_search.value(record, name)
    return "__missing__" if found is None else str(found).lower() if isinstance(found, bool) else str(found)


def _wanted(selection: Selection, name: str) -> list[str]:
    forms = {"no": "false", "+1": "1"} if name != "state_title" else {}
    return [forms.get(each, each) for each in selection.facets.get(name, ())]


def _matches(record: Record, selection: Selection, but: str | None = None) -> bool:
    if selection.scope not in {None, record.scope}:
        return False
    for name in selection.facets:
        least = selection.min_confidence if name not in KINDS else None
        unsure = name not in KINDS and naive_search.missing(record, name, least) is not None
        if name != but and ("__missing__" if unsure else _values(record, name)) not in _wanted(selection, name):
            return False
    return True


def _counted(known: list[Record], selection: Selection, name: str) -> dict[str, Any]:
    but = name if selection.facet_mode == "disjunctive" else None
    texts = [_values(record, name) for record in known if _matches(record, selection, but)]
    values = [
        naive_search.value(record, name)
        for record in known
        if _matches(record, selection, but) and naive_search.value(record, name) is not None
    ]
    wanted = {_of(name, each) for each in _wanted(selection, name) if each != "__missing__"}
    counts = {value: values.count(value) for value in {*values, *wanted}}
    enough = [value for value in counts if value in wanted or counts[value] >= selection.facet_min_count]
    enough.sort(key=lambda value: (value not in wanted, -counts[value], value))
    kept = enough[: max(selection.facet_size, len(wanted))]
    kept.sort(key=lambda value: (0 if selection.facet_sort == "alpha" else -counts[value], value))
    return {
        "name": name,
        "type": KINDS[name],
        "mode": selection.facet_mode,
        "total": len(texts),
        "buckets": [{"value": each, "count": counts[each], "selected": each in wanted} for each in kept],
        "other_count": len(values) - sum(counts[each] for each in kept),
        "truncated": len(kept) < len(enough),
        "missing": {"count": texts.count("__missing__")},
    }


def _of(name: str, text: str) -> Any:
    return {"text": str, "integer": int, "boolean": lambda each: each == "true"}[KINDS[name]](text)
