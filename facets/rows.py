"""Records as rows of a collection's table: pure, and the only place that reads answers out of a record.

A row holds an answer only while its document is indexed, and only in the terms of the questions declared now: an option
or level that is no longer declared, or an answer of another type, is left out, which makes it missing.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from facets import columns, states
from facets.documents import Record, Shown, Status
from facets.questions import Boolean, Choice, Question
from facets.tables import Table

Row = dict[str, Any]
_Reader = Callable[[Mapping[str, Any], Row], None]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_A_DAY = 86_400
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

# Records come from a store that takes neither NaN nor cycles.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, allow_nan=False).encode


def fold(records: Iterable[Record | Shown]) -> list[Record | Shown]:
    """Return the newest record of each uri: DuckDB silently keeps the older of two equal keys in one statement."""
    newest: dict[str, Record | Shown] = {}
    for record in records:
        known = newest.get(record.uri)
        if known is None or record.version > known.version:
            newest[record.uri] = record
    return list(newest.values())


def microseconds(moment: datetime) -> int:
    """Return a moment as microseconds since 1970 in UTC, exactly; one without a zone is taken as UTC."""
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    # By hand: dividing by a timedelta takes three times as long, and this is done for every record.
    return (since.days * _SECONDS_A_DAY + since.seconds) * 1_000_000 + since.microseconds


class RowMaker:
    """Turns the records of one collection into the JSON text of a batch."""

    def __init__(self, table: Table) -> None:
        self._fingerprint = table.definition.fingerprint
        self._columns = [column.name for column in table.stored]
        self._answers = [_reader(name, question) for name, question in table.questions.items()]
        types = states.column_types(table.definition.state_schema)
        self._state = [(name, columns.state_column(name), _STATE_READERS[kind]) for name, kind in types.items()]

    def batch(self, records: Iterable[Record | Shown]) -> str:
        """Return the rows of folded records as one JSON object, an array for each column; absent cells are null.

        By columns: names stand once and not in every row, which halves the text.
        """
        made = [self.row(record) for record in records]
        return _encode({name: [row.get(name) for row in made] for name in self._columns})

    def row(self, record: Record | Shown) -> Row:
        """Return the cells of one record; moments are microseconds."""
        row: Row = {
            "doc_uri": record.uri,
            "doc_key": record.key,
            "doc_scope": record.scope,
            "doc_status": record.status,
            "doc_version": record.version,
            "doc_revision": record.revision,
            "doc_indexed_as": record.indexed_as,
            "doc_written_at": microseconds(record.written_at),
            "doc_outdated": False,
        }
        if record.reason is not None:
            row["doc_reason"] = record.reason
        if record.classified_at is not None:
            row["doc_classified_at"] = microseconds(record.classified_at)
        if record.status is Status.INDEXED:
            self._add_answers(record, row)
        if record.status is not Status.DELETED:
            self._add_state(record, row)
        return row

    def _add_answers(self, record: Record | Shown, row: Row) -> None:
        facets = record.facets or {}
        row["doc_outdated"] = record.fingerprint != self._fingerprint
        row["doc_facets"] = record.facets_json or "{}"
        for read in self._answers:
            read(facets, row)

    def _add_state(self, record: Record | Shown, row: Row) -> None:
        state = record.state
        if state is None:
            return
        row["doc_state"] = record.state_json
        for name, column, read in self._state:
            value = state.get(name)
            # A state that was checked against an older schema may hold another type: it has no value in this column.
            if value is not None and (cell := read(value)) is not None:
                row[column] = cell


def _reader(name: str, question: Question) -> _Reader:
    if isinstance(question, Choice):
        return _choice_reader(name, frozenset(question.options))
    if isinstance(question, Boolean):
        return _boolean_reader(name)
    return _score_reader(name, frozenset(question.levels))


def _choice_reader(name: str, options: frozenset[str]) -> _Reader:
    confidence = f"{name}_confidence"

    def read(facets: Mapping[str, Any], row: Row) -> None:
        facet = facets.get(name)
        if facet is not None and facet.get("type") == "choice" and facet["choice"] in options:
            row[name] = facet["choice"]
            row[confidence] = facet.get("confidence")

    return read


def _boolean_reader(name: str) -> _Reader:
    def read(facets: Mapping[str, Any], row: Row) -> None:
        facet = facets.get(name)
        if facet is not None and facet.get("type") == "boolean":
            row[name] = facet["value"]
            row[f"{name}_probability"] = facet["probability"]
            row[f"{name}_confidence"] = facet.get("confidence")

    return read


def _score_reader(name: str, levels: frozenset[str]) -> _Reader:
    def read(facets: Mapping[str, Any], row: Row) -> None:
        facet = facets.get(name)
        if facet is not None and facet.get("type") == "score" and facet["level"] in levels:
            row[name] = facet["score"]
            row[f"{name}_level"] = facet["level"]
            row[f"{name}_confidence"] = facet.get("confidence")

    return read


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _integer(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and _INT64_MIN <= value <= _INT64_MAX
    return value if whole else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _datetime(value: Any) -> int | None:
    try:
        return microseconds(datetime.fromisoformat(value)) if isinstance(value, str) else None
    except ValueError:
        return None


_STATE_READERS: Mapping[str, Callable[[Any], Any]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "datetime": _datetime,
}
