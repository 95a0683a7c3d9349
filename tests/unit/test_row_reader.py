"""All rows of a search: one snapshot, in order, given up by whoever reads, or by the view when too much has changed."""

import contextlib
import csv
import io
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import naive_search
import pytest
import search_strategies
import searched

from facetline.facets.api import row_streams
from facetline.facets.errors import SnapshotGone, UnknownCollection
from facetline.facets.search import row_stream
from facetline.facets.search.row_stream import RowReader, RowStream
from facetline.facets.table import record_arrays
from facetline.facets.view import compaction
from facetline.facets.view.view import View

QUESTIONS = Path(__file__).resolve().parents[3] / "shared" / "data" / "banking77.csv"


@pytest.fixture
def view() -> Iterator[View]:
    """A view of the collection `notes`."""
    made = searched.view()
    yield made
    made.close()


PAGE_ROWS = 3


def everything(reader: RowReader) -> list[dict[str, Any]]:
    """Return all rows that are left."""
    found = []
    while page := reader.page():
        assert len(page) <= row_stream.PAGE_ROWS
        found += page
    return found


@pytest.mark.parametrize("sort", [(), ("-severity", "state_due"), ("topic", "-state_title")])
def test_all_rows_come_in_order_with_their_cells(view: View, sort: tuple[str, ...]) -> None:
    """Every selected document once, in the asked order, each cell what a plain look at the record gives."""
    feed = [search_strategies.record_of(seed, number=seed + 1, key=f"n{seed}") for seed in range(40)]
    view.apply(feed)
    known = [record for record in naive_search.alive(feed) if record.scope == "alice"]

    reader = view.reader(searched.select(scope="alice", sort=sort, limit=1), page_rows=PAGE_ROWS)
    found = everything(reader)
    reader.close()

    assert reader.total == len(known) > 2 * PAGE_ROWS
    assert [row["doc_uri"] for row in found] == [record.uri for record in naive_search.ordered(known, sort)]
    by_uri = {record.uri: record for record in known}
    for row in found:
        assert tuple(row) == reader.columns
        for column, cell in row.items():
            expected = naive_search.value(by_uri[row["doc_uri"]], column)
            assert cell == (expected.replace(tzinfo=None) if isinstance(expected, datetime) else expected), column


def test_what_arrives_meanwhile_is_in_no_page(view: View) -> None:
    """A reader goes on in its own snapshot while documents change, arrive and go, and its table is made anew."""
    view.apply([searched.record(n, state={"title": "old"}) for n in range(1, 11)])
    reader = view.reader(searched.select(), page_rows=PAGE_ROWS)
    found = reader.page()

    view.apply([searched.record(n, version=3, state={"title": "new"}) for n in range(1, 21)])
    view.apply([searched.record(n, version=4, status="deleted", facets=None, state=None) for n in range(1, 6)])
    view._wear._tables["notes"].changes = compaction.CHANGES_MIN + 1
    view.apply([searched.record(30, state={"title": "new"})])
    found += everything(reader)

    assert [row["doc_key"] for row in found] == [f"n{n:03}" for n in range(1, 11)]
    assert {row["state_title"] for row in found} == {"old"}
    assert view.search(searched.select())["total"] == 16
    reader.close()


def test_a_slow_reader_loses_its_snapshot(view: View) -> None:
    """When more has changed than a snapshot may cost, it is given up: the reader is told, and others stay."""
    view.apply([searched.record(n) for n in range(1, 11)])
    slow = view.reader(searched.select(), changes_max=10)
    view.apply([searched.record(n, version=3) for n in range(1, 7)])
    later = view.reader(searched.select(), changes_max=10)

    view.apply([searched.record(n, version=4) for n in range(1, 6)])

    with pytest.raises(SnapshotGone):
        slow.page()
    assert len(later.page()) == 10
    slow.close()
    later.close()
    assert not view._readers


def test_a_closed_reader_is_told_so(view: View) -> None:
    """After `close`, which may come twice, or after the view's own end, a page is refused by name."""
    view.apply([searched.record(1)])
    closed, left = view.reader(searched.select()), view.reader(searched.select())

    closed.close()
    closed.close()
    view.close()

    for reader in (closed, left):
        with pytest.raises(SnapshotGone):
            reader.page()


def test_a_refused_selection_holds_nothing(view: View) -> None:
    """A selection that cannot be answered leaves no snapshot behind."""
    with pytest.raises(UnknownCollection):
        view.reader(searched.select("nots"))

    assert not view._readers


async def test_a_stream_reads_elsewhere_and_lets_go(view: View) -> None:
    """The asynchronous form has every page read by what it was given, and lets go of all it holds at its end."""
    view.apply([searched.record(n) for n in range(1, 4)])
    let_go, elsewhere = [], []
    held = contextlib.AsyncExitStack()
    held.callback(lambda: let_go.append(True))

    async def run(work: Any) -> Any:
        elsewhere.append(work)
        return work()

    stream = RowStream(view.reader(searched.select()), run, held)
    found = [row["doc_key"] async for page in stream.pages() for row in page]
    await stream.aclose()

    assert found == ["n001", "n002", "n003"]
    assert stream.total == len(found)
    assert stream.token == view.search(searched.select())["as_of"]["token"]
    assert len(elsewhere) == 2
    assert let_go == [True]
    assert not view._readers


@pytest.mark.skipif(not QUESTIONS.exists(), reason="needs Banking77's questions in ../shared/data")
def test_ten_thousand_rows_are_a_table(view: View) -> None:
    """All 10,003 questions come as CSV, texts as they are, the total and one line more."""
    with QUESTIONS.open(encoding="utf-8", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    like = record_arrays.shown(searched.record(1))  # plain ones: ten thousand models take seconds
    view.apply(
        [
            like._replace(
                feed_seq=n, uri=f"@alice/notes/r{n:05}", key=f"r{n:05}", state_json=json.dumps({"title": each})
            )
            for n, each in enumerate(texts, 1)
        ]
    )

    reader = view.reader(searched.select(sort="-doc_key"))
    pages = everything(reader)
    reader.close()

    lines = list(csv.reader(io.StringIO(row_streams.csv_text([row["state_title"]] for row in pages).decode())))
    assert [line[0].removeprefix("'") for line in reversed(lines)] == [text.removeprefix("'") for text in texts]
    assert reader.total == len(texts) == 10_003


def test_a_worn_table_is_made_anew(view: View) -> None:
    """Rows, order, guards against older versions and searches stay as they are; counting begins again."""
    feed = [search_strategies.record_of(seed, number=seed + 1, key=f"n{seed}") for seed in range(40)]
    view.apply(feed)
    selection = searched.select(counts="*", sort="-severity", limit=200)
    before = view.search(selection)

    view._wear._tables["notes"].changes = compaction.CHANGES_MIN + 1
    view.apply([record.model_copy(update={"version": 0}) for record in feed])

    after = view.search(selection)
    assert {**after, "took_ms": 0} == {**before, "took_ms": 0}
    assert view._wear.worn() == []
    assert view._wear._tables["notes"].changes == 0
