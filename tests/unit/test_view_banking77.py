"""The view on real input: 10,003 bank customers' questions, with random answers, against a plain filter."""

import csv
from pathlib import Path
from random import Random
from typing import Any

import naive_search
import pytest
import search_strategies
import searched

from facetline.facets.documents import Record

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "banking77.csv"

pytestmark = pytest.mark.skipif(not DATA.exists(), reason="needs Banking77's questions in ../shared/data")


def _title(record: Record) -> str:
    return naive_search.value(record, "state_title") or ""


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Return a record a row: its text as title, everything else drawn from a fixed seed."""
    with DATA.open(encoding="utf-8", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    seeds = Random(77)  # noqa: S311 (no secret)
    made = [search_strategies.record_of(seeds.getrandbits(32), number=n, key=f"r{n}") for n in range(1, len(texts) + 1)]
    return [
        record if record.state is None else record.model_copy(update={"state": {**record.state, "title": text}})
        for record, text in zip(made, texts, strict=True)
    ]


@pytest.mark.parametrize(
    ("fields", "condition", "holds"),
    [
        ({}, None, lambda _: True),
        ({"facets": {"topic": ("billing", "日本"), "mood": "angry"}, "min_confidence": 0.5}, None, lambda _: True),
        ({"facets": {"topic": ("__missing__", "other")}, "min_confidence": 0.8, "scope": "bob"}, None, lambda _: True),
        (
            {"facets": {"mood": "calm"}},
            "state_title LIKE '%card%' AND NOT state_title LIKE '%?'",
            lambda record: "card" in _title(record) and not _title(record).endswith("?"),
        ),
    ],
)
def test_ten_thousand_documents_are_found_and_counted(
    records: list[Record], fields: dict[str, Any], condition: str | None, holds: naive_search.Predicate
) -> None:
    """Pages, total and counts of 10,003 documents are those of a filter in plain Python."""
    view = searched.view()
    for start in range(0, len(records), 5_000):
        view.apply(records[start : start + 5_000])
    known = naive_search.alive(records)
    counts = tuple(searched.QUESTIONS)
    selection = searched.select(**fields, filter=condition, counts=counts, sort="-severity,state_title", limit=200)
    expected = [record for record in known if naive_search.matches(record, selection, holds)]

    first = view.search(selection)
    uris = [hit["uri"] for hit in first["hits"]]
    cursor = first["next_cursor"]
    while cursor is not None:
        reply = view.search(selection.model_copy(update={"cursor": cursor, "counts": ()}))
        uris += [hit["uri"] for hit in reply["hits"]]
        cursor = reply["next_cursor"]
    view.close()

    assert first["total"] == len(expected)
    assert uris == [record.uri for record in naive_search.ordered(expected, selection.sort)]
    assert first["facets"] == [naive_search.counted(known, selection, holds, each) for each in counts]
