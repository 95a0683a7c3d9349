"""JSON text and times in and out of the rows, and rows as the documents that everybody else sees.

All JSON in the store is written here, so that both databases hold the same bytes.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from facetline.facets.documents import Calls, Document, Evaluation, Record, SourceEvent, Status

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Made once: each answer and each statement with rows passes through it.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def dumps(value: Any) -> str:
    """Return compact JSON in insertion order, letters as they are.

    Raises:
        ValueError: a number is not finite.
    """
    return _encode(value)


def escaped(value: Any) -> str:
    """Return JSON in ASCII, for values whose text may hold NUL or half a surrogate pair."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def loads(text: str) -> Any:
    """Read what `dumps` wrote."""
    return json.loads(text)


def optional(text: str | None) -> Any:
    """Read what `dumps` wrote; None stays None."""
    return None if text is None else json.loads(text)


def moment(at_ms: int) -> datetime:
    """Return the store's milliseconds as a time in UTC."""
    return _EPOCH + timedelta(milliseconds=at_ms)


def timestamp(at_ms: int) -> str:
    """Return the store's milliseconds as JSON has a time, in UTC with `Z`."""
    return moment(at_ms).replace(tzinfo=None).isoformat() + "Z"


def milliseconds(at: datetime) -> int:
    """Return a time with a zone as the store's milliseconds, rounded down."""
    return (at - _EPOCH) // timedelta(milliseconds=1)


def record(row: sa.Row[Any]) -> Record:
    """Return a numbered row of `documents` as the feed carries it."""
    return Record(
        feed_seq=row.feed_seq,
        uri=row.uri,
        collection=row.collection,
        scope=row.scope,
        key=row.key,
        version=row.version,
        revision=row.revision,
        indexed_as=row.indexed_as,
        status=Status(row.status),
        reason=row.reason,
        facets=optional(row.facets),
        state=optional(row.state),
        fingerprint=row.fingerprint,
        written_at=moment(row.written_ms),
        classified_at=None if row.classified_ms is None else moment(row.classified_ms),
        evaluation=_evaluation(row.evaluation),
        source_event=SourceEvent(
            source=row.event_source,
            id=row.event_id,
            topic=row.log_topic,
            incarnation=row.log_incarnation,
            partition=row.log_partition,
            offset=row.log_offset,
        ),
        traceparent=row.traceparent,
    )


def document(row: sa.Row[Any], body: str | None) -> Document:
    """Return a row of `documents` and its text as `get` shows them."""
    return Document(
        uri=row.uri,
        collection=row.collection,
        scope=row.scope,
        key=row.key,
        body=body,
        state=optional(row.state),
        facets=optional(row.facets),
        version=row.version,
        revision=row.revision,
        indexed_as=row.indexed_as,
        status=Status(row.status),
        reason=row.reason,
        reason_message=row.reason_message,
        written_at=moment(row.written_ms),
        evaluation=_evaluation(row.evaluation),
        calls=Calls(made=row.calls_made, retries=row.retries, crashes=row.crashes),
    )


def _evaluation(text: str | None) -> Evaluation | None:
    return None if text is None else Evaluation.model_validate_json(text)
