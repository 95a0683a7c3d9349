"""What DuckDB takes out of a record's JSON is what plain Python reads there, whatever stands in it."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import naive_search
import pytest
import search_strategies
import searched
from hypothesis import given
from hypothesis import strategies as st

from facetline.facets.definitions import Definitions
from facetline.facets.documents import Record
from facetline.facets.questions import Boolean, Choice
from facetline.facets.table import tables
from facetline.facets.view.view import View

TABLE = tables.table_of(searched.definition())
NAMES = [column.name for column in TABLE.stored if column.name not in {"doc_text", "doc_words"}]

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
    st.sampled_from(("", "5", "-1.5", "true", "null", '"', "\\", "\x01", "é\u2028😀", "[1]", "{}")),
)
moments = st.sampled_from(
    (
        *("2026-01-01T12:00:00Z", "2026-01-01T12:00:00.000001Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"),
        # What a field that was text before may hold: moments to Python, in other spellings, and none.
        *(
            "2026-01-01",
            "20260101",
            "2026-W01-1",
            "2026-01-01 12:00",
            "2026-01-01T12:00:00+05:30",
            "2026-02-30",
            "noon",
        ),
    )
)
numbers = st.one_of(
    st.sampled_from((2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**25, -(2**63), -(2**63) - 1, 2**53 + 1, -0.0, 1e300, 3.0)),
    st.integers(-5, 5),
    st.floats(allow_nan=False, allow_infinity=False),
)
anything = st.one_of(
    *(texts, moments, numbers, st.none(), st.booleans()), st.just([1, "a"]), st.just({"type": "choice", "a": None})
)
states = st.fixed_dictionaries({}, optional=dict.fromkeys((*searched.STATE, "gone"), anything))

confidences = st.one_of(st.none(), st.floats(0, 1))
answers = st.one_of(
    st.builds(searched.chosen, st.one_of(st.sampled_from((*searched.TOPICS, *searched.MOODS)), texts), confidences),
    st.builds(searched.yes, st.floats(0, 1), confidences),
    st.builds(searched.scored, st.floats(0, 2), confidences, levels=st.permutations((*searched.LEVELS, "retired"))),
    st.just({"type": "choice", "choice": "billing"}),
)
facets = st.one_of(st.none(), st.fixed_dictionaries({}, optional=dict.fromkeys((*searched.QUESTIONS, "gone"), answers)))


@pytest.fixture(scope="module")
def view() -> Iterator[View]:
    """A view that every example empties for itself."""
    made = View(store_id="store")
    yield made
    made.close()


@search_strategies.fewer
@given(
    given=st.lists(st.tuples(st.sampled_from(("indexed", "pending", "deleted")), facets, states), max_size=8),
    fingerprint=st.sampled_from((searched.definition().fingerprint, "old", None)),
)
def test_cells_are_what_a_plain_reading_finds(
    view: View, given: list[tuple[str, Any, Any]], fingerprint: str | None
) -> None:
    """Every cell of every row is the declared part of the record, of the declared type, or null."""
    records = [
        searched.record(n, status=status, facets=facets, state=state, fingerprint=fingerprint)
        for n, (status, facets, state) in enumerate(given, 1)
    ]
    view.define(Definitions([]))
    view.define(Definitions([searched.definition()]))

    view.apply(records)

    found = view._connection.execute(f'SELECT {", ".join(NAMES)} FROM live.main."notes" ORDER BY doc_uri').fetchall()
    assert [dict(zip(NAMES, row, strict=True)) for row in found] == [_plain(record) for record in records]


def _plain(record: Record) -> dict[str, Any]:
    indexed = record.status == "indexed"
    row: dict[str, Any] = dict.fromkeys(NAMES)
    for name in ("uri", "key", "scope", "reason", "version", "revision", "indexed_as"):
        row[f"doc_{name}"] = getattr(record, name)
    row["doc_status"] = record.status.value
    row["doc_written_at"] = record.written_at.replace(tzinfo=None)
    row["doc_outdated"] = indexed and record.fingerprint != searched.definition().fingerprint
    row["doc_facets"] = (record.facets_json or "{}") if indexed else None
    row["doc_state"] = record.state_json
    for name, value in (record.facets or {}).items() if indexed else ():
        row.update(_answer(name, value))
    for name, value in (record.state or {}).items():
        if name in searched.STATE:
            row[f"state_{name}"] = _typed(searched.STATE[name], value)
    return row


def _answer(name: str, value: dict[str, Any]) -> dict[str, Any]:
    asked = searched.QUESTIONS.get(name)
    if asked is None or value["type"] != asked.type:
        return {}
    confidence = {f"{name}_confidence": naive_search.confidence(value)}
    if isinstance(asked, Boolean):
        return {name: value["value"], f"{name}_probability": value["probability"], **confidence}
    if isinstance(asked, Choice):
        return {name: value["choice"], **confidence} if value["choice"] in asked.options else {}
    if value["level"] not in asked.levels:
        return {}
    return {name: value["score"], f"{name}_level": value["level"], **confidence}


def _typed(kind: str, value: Any) -> Any:
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if kind == "string":
        return value if isinstance(value, str) else None
    if kind == "datetime":
        return _moment(value) if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if kind == "integer":
        return value if isinstance(value, int) and -(2**63) <= value < 2**63 else None
    return float(value) if math.isfinite(float(value)) else None


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).replace(tzinfo=None)
