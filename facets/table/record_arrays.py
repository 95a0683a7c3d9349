"""Records as what DuckDB is handed: for a batch, an array for each given column (`facets.table.column_sql`).

Everything that SQL can take out of the store's own JSON is left to it. What is made here is what SQL would read
otherwise than Python does, and what depends on the definition: moments in a state, and whether answers are outdated.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from facetline.facets.documents import Record, Shown, Status
from facetline.facets.schema import columns
from facetline.facets.table import column_sql
from facetline.facets.table.tables import Column, Table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Given = Mapping[str, NDArray[np.generic]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_A_DAY = 86_400
_INDEXED = Status.INDEXED.value
_NONE = "{}"


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
    # By hand: dividing by a timedelta takes three times as long.
    return (since.days * _SECONDS_A_DAY + since.seconds) * 1_000_000 + since.microseconds


def shown(record: Record) -> Shown:
    """Return as much of a record as a view takes."""
    return Shown(
        feed_seq=record.feed_seq,
        uri=record.uri,
        collection=record.collection,
        scope=record.scope,
        key=record.key,
        version=record.version,
        revision=record.revision,
        indexed_as=record.indexed_as,
        status=record.status.value,
        reason=record.reason,
        facets_json=record.facets_json,
        state_json=record.state_json,
        fingerprint=record.fingerprint,
        written_us=microseconds(record.written_at),
        classified_us=None if record.classified_at is None else microseconds(record.classified_at),
    )


class RowMaker:
    """Turns the records of one collection into the arrays of a batch."""

    def __init__(self, table: Table) -> None:
        self._fingerprint = table.definition.fingerprint
        self._columns = column_sql.given(table)
        self._moments = column_sql.moments(table)

    def batch(self, records: Iterable[Record | Shown]) -> "Given":
        """Return folded records, at least one, as arrays by the names of the given columns."""
        those = [record if isinstance(record, Shown) else shown(record) for record in records]
        taken: dict[str, Sequence[Any]] = dict(zip(Shown._fields, zip(*those, strict=True), strict=True))
        indexed = [status == _INDEXED for status in taken["status"]]
        made: dict[str, Sequence[Any]] = {
            **{f"doc_{name}": cell for name, cell in taken.items()},
            "doc_written_at": taken["written_us"],
            "doc_classified_at": taken["classified_us"],
            "doc_outdated": [
                answered and own != self._fingerprint
                for answered, own in zip(indexed, taken["fingerprint"], strict=True)
            ],
            # A document that is not indexed has no answers, whatever its record holds.
            "doc_facets": [
                (text or _NONE) if answered else None
                for answered, text in zip(indexed, taken["facets_json"], strict=True)
            ],
            "doc_state": taken["state_json"],
            # Until the view has taken the texts in, and gives them numbers.
            "doc_text": [-1] * len(those),
            "doc_words": [0] * len(those),
        }
        if self._moments:
            found = [{} if text is None else from_json(text) for text in taken["state_json"]]
            for name in self._moments:
                made[columns.state_column(name)] = [_moment(state.get(name)) for state in found]
        return {column.name: _array(column, made[column.name]) for column in self._columns}


def _array(column: Column, values: Sequence[Any]) -> "NDArray[np.generic]":
    # Imported here: it takes a tenth of a second, and only a view needs it.
    import numpy as np

    if column.kind == "datetime":
        return np.array([column_sql.NO_MOMENT if value is None else value for value in values], dtype=np.int64)
    return np.array(values, dtype={"integer": np.int64, "boolean": np.bool_}.get(column.kind, np.object_))


def _moment(value: Any) -> int | None:
    """Return a state's moment in microseconds; a state checked against an older schema may hold something else."""
    try:
        return microseconds(datetime.fromisoformat(value)) if isinstance(value, str) else None
    except ValueError:
        return None
