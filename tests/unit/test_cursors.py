"""Cursors: they lead on in their own search and are refused everywhere else."""

import base64
import json
from typing import Any

import pytest
import searched

from facetline.facets.errors import InvalidCursor
from facetline.facets.search import cursors, sql
from facetline.facets.table import tables
from facetline.facets.table.tables import Table
from facetline.facets.text.carried import Carried

TABLE = tables.table_of(searched.definition())
SORT = ("-severity", "state_due", "topic")
CARRIED = (1.5, None, "日本", "@alice/notes/n1")


def query(fields: dict[str, Any], table: Table = TABLE) -> sql.Query:
    """Return the query of a search."""
    return sql.Query(table, searched.select(**fields), None)


def cursor(carried: tuple[Any, ...] = CARRIED, **fields: Any) -> str:
    """Return a cursor of the search by `SORT`."""
    return cursors.encode(carried, None, query({"sort": SORT, **fields}))


def test_a_cursor_carries_its_values() -> None:
    """What was carried comes back with its types, in a text that is safe in a URL."""
    text = cursor()

    found = cursors.decode(query({"sort": SORT, "cursor": text, "limit": 3, "counts": "topic"}))

    assert found == (CARRIED, None)
    assert text.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize(
    "fields",
    [
        {"sort": SORT[:2]},
        {"sort": ("severity", *SORT[1:])},
        {"facets": {"topic": "billing"}},
        {"facets": {"topic": "billing"}, "min_confidence": 0.5},
        {"facets": {"topic": "billing"}, "mc": {"topic": 0.5}},
        {"filter": "urgent"},
        {"scope": "alice"},
        {"q": "card"},
        {"grep": "card"},
        {"glob": "n*"},
    ],
)
def test_a_cursor_is_refused_by_another_search(fields: dict[str, Any]) -> None:
    """Whatever changes the rows or their order, the cursor no longer fits."""
    other = query({"sort": SORT, **fields, "cursor": cursor()})

    with pytest.raises(InvalidCursor, match="belongs to another search"):
        cursors.decode(other)


@pytest.mark.parametrize("changes", [{"state": {}}, {"questions": {"topic": searched.QUESTIONS["topic"]}}])
def test_a_cursor_is_refused_by_another_definition(changes: dict[str, Any]) -> None:
    """A cursor from before the collection's columns changed is refused."""
    text = cursors.encode(("u",), None, query({}))

    with pytest.raises(InvalidCursor):
        cursors.decode(query({"cursor": text}, tables.table_of(searched.definition(**changes))))


def test_the_order_of_values_is_of_no_account() -> None:
    """The same options in another order are the same search."""
    one, other = ({"topic": ("billing", "other")}, {"topic": ("other", "billing")})

    text = cursor(facets=one)

    assert cursors.decode(query({"sort": SORT, "facets": other, "cursor": text})) == (CARRIED, None)


def test_a_cursor_carries_the_statistics_of_its_first_page() -> None:
    """A search by words goes on with the numbers of its first page; without them its cursor is damaged."""
    carried = Carried(3, 12, (2, 0), (((("card", 10), ("cards", 8)), None), ((("refund", 10),), "refund")))
    words = {"q": "card refnud"}
    text = cursors.encode((700, "notes/n1"), carried, query(words))

    assert cursors.decode(query({**words, "cursor": text})) == ((700, "notes/n1"), carried)
    damaged = cursors.encode((700, "notes/n1"), None, query(words))
    with pytest.raises(InvalidCursor, match="damaged"):
        cursors.decode(query({**words, "cursor": damaged}))


def _forged(*parts: Any) -> str:
    binding = json.loads(base64.urlsafe_b64decode(cursor() + "=="))[0]
    return base64.urlsafe_b64encode(json.dumps([binding, *parts]).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?",
        "é",
        "AAAA",
        cursor()[:-3],
        "A" * 100_000,
        base64.urlsafe_b64encode(b"[" * 20_000).decode().rstrip("="),
        base64.urlsafe_b64encode(b"{}").decode(),
        base64.urlsafe_b64encode(b"[]").decode(),
        _forged(),
        _forged(1.5, None, "billing"),
        _forged(1.5, None, "billing", None),
        _forged("1.5", None, "billing", "u"),
        _forged(True, None, "billing", "u"),
        _forged(1.5, 2**63, "billing", "u"),
        _forged(1.5, 1.5, "billing", "u"),
        _forged(1.5, None, "\ud800", "u"),
        _forged(1.5, None, ["billing"], "u"),
    ],
)
def test_damaged_cursors_are_refused(text: str) -> None:
    """A text that is no cursor, or carries what the columns cannot hold, never reaches the database."""
    with pytest.raises(InvalidCursor, match="leave it out to start over"):
        cursors.decode(query({"sort": SORT, "cursor": text}))
