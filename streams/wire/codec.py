"""Bytes to events and back: the one place that knows the wire.

In: CloudEvents 1.0 in binary mode, or a bare JSON value. Nothing here raises for bad input: `decode` returns an event
that carries its rejection, so that a bad record is an outcome like any other. Out: writes, facets records, and dead
letters, which keep key, value and headers byte for byte.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

from facetline.facets import documents, errors
from facetline.facets.definitions import Definition, Definitions
from facetline.facets.documents import EventReason, Record, Status
from facetline.storage.log import events
from facetline.streams.wire import imported_answers
from facetline.streams.wire.undecodable import Undecodable

WRITTEN = "facetline.document.written.v1"
IMPORTED = "facetline.document.imported.v1"
DELETED = "facetline.document.deleted.v1"
FACETS = "facetline.document.facets.v1"
ORIGIN_HEADER = "facetline_origin"
"""`topic/incarnation/partition/offset` of a redriven or replayed event; a slash cannot stand in a topic's name."""
ERROR_HEADER = "__facetline.errors."
DEADLINE_HEADER = "ce_deadline"
ID_BYTES_MAX = 512
PLACE_DIGITS_MAX = 19
"""Digits of the largest offset."""
TRACEPARENT_CHARS_MAX = 128
"""Twice what W3C's version 00 has."""
DATA_KEYS: dict[str, tuple[str, ...]] = {
    WRITTEN: ("body", "state"),
    IMPORTED: ("body", "state", "facets", "evaluation"),
}

Header = tuple[str, bytes]


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


# Made once: `json.loads` and `json.dumps` with arguments make a new one for every event.
_decode = json.JSONDecoder(parse_constant=_no_constant).decode
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_sorted = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Message:
    """What goes to Kafka; a None value is a tombstone."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def encode_write(
    uri: str,
    *,
    body: str | None,
    state: dict[str, Any] | None,
    source: str,
    event_id: str,
    deadline_ms: int | None = None,
    unless_equal: bool = False,
    traceparent: str | None = None,
    facets: dict[str, Any] | None = None,
    evaluation: dict[str, Any] | None = None,
) -> Message:
    """Return the event that writes a document; a None body or state is left as it is in the document.

    With `facets`, answers of an earlier system, it is one that imports a document: `evaluation` says where from.
    """
    parts = {"body": body, "state": state, "facets": facets, "evaluation": evaluation}
    data = {name: value for name, value in parts.items() if value is not None}
    kind = WRITTEN if facets is None else IMPORTED
    headers = _write_headers(kind, uri, source, event_id, deadline_ms, traceparent)
    if unless_equal:
        headers.append(("ce_unlessequal", b"true"))
    return Message(uri.encode(), to_json(data), tuple(headers))


def encode_delete(
    uri: str, *, source: str, event_id: str, deadline_ms: int | None = None, traceparent: str | None = None
) -> Message:
    """Return the event that deletes a document: a tombstone."""
    return Message(uri.encode(), None, tuple(_write_headers(DELETED, uri, source, event_id, deadline_ms, traceparent)))


def _write_headers(
    kind: str, uri: str, source: str, event_id: str, deadline_ms: int | None, traceparent: str | None
) -> list[Header]:
    headers = _cloud_event(kind, source=source, event_id=event_id, subject=uri, time=datetime.now(UTC))
    if deadline_ms is not None:
        headers.append((DEADLINE_HEADER, _timestamp(datetime.fromtimestamp(deadline_ms / 1000, UTC)).encode()))
    if traceparent:
        headers.append(("traceparent", traceparent.encode()))
    return headers


def _cloud_event(kind: str, *, source: str, event_id: str, subject: str, time: datetime) -> list[Header]:
    named = {"specversion": "1.0", "id": event_id, "source": source, "type": kind, "subject": subject}
    headers = [(f"ce_{name}", value.encode()) for name, value in {**named, "time": _timestamp(time)}.items()]
    return [*headers, ("content-type", b"application/json")]


def _timestamp(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_json(value: Any) -> bytes:
    """Return compact UTF-8 JSON without ASCII escapes; NaN and infinities are refused."""
    return _encode(value).encode()


def encode_record(record: Record) -> Message:
    """Return the facets topic's record of a document; a tombstone for a deleted one, its version in a header."""
    changed = record.classified_at or record.written_at
    headers = _cloud_event(
        FACETS, source="facetline", event_id=f"{record.uri}@{record.version}", subject=record.uri, time=changed
    )
    headers.append(("ce_version", str(record.version).encode()))
    if record.traceparent:
        headers.append(("traceparent", record.traceparent.encode()))
    value = None if record.status is Status.DELETED else to_json(record_value(record))
    return Message(record.uri.encode(), value, tuple(headers))


def record_value(record: Record) -> dict[str, Any]:
    """Return what the facets topic says about a document that is not deleted."""
    dumped = record.model_dump(mode="json", include=RECORD_FIELDS)
    evaluation = record.evaluation
    if evaluation is not None:
        dumped["evaluation"] = {
            "evaluator": evaluation.evaluator,
            "model": evaluation.model,
            "fingerprint": evaluation.fingerprint,
            "time": _timestamp(evaluation.classified_at),
        }
    return dumped


RECORD_FIELDS = {
    *("uri", "version", "revision", "indexed_as", "status", "reason", "facets", "state", "evaluation", "source_event"),
}


def encode_dead_letter(letter: events.DeadLetter) -> Message:
    """Return the dead letter topic's record: the original, with where it stood and why it failed added."""
    fields = {
        "topic": letter.position.topic,
        "partition": letter.position.partition,
        "offset": letter.position.offset,
        "stage": letter.stage,
        "exception": letter.reason,
        "message": letter.message,
        "attempts": letter.attempts,
    }
    added = [(ERROR_HEADER + name, str(value).encode()) for name, value in fields.items()]
    return Message(letter.raw.key, letter.raw.value, (*letter.raw.headers, *added))


def redrive(letter: events.DeadLetter) -> Message:
    """Return the event to send again: the same bytes and id, its original position, no deadline."""
    kept = [header for header in letter.raw.headers if header[0] not in {DEADLINE_HEADER, ORIGIN_HEADER}]
    at = letter.position
    origin = f"{at.topic}/{at.incarnation}/{at.partition}/{at.offset}".encode()
    return Message(letter.raw.key, letter.raw.value, (*kept, (ORIGIN_HEADER, origin)))


class _Rejected(Exception):
    def __init__(self, reason: EventReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(slots=True)
class _Reading:
    """What is known of a record so far, so that a rejection names as much as could be read."""

    raw: events.Raw
    position: events.Position
    redriven: bool = False
    source: str = ""
    id: str = ""
    digest: str = ""
    uri: str | None = None
    collection: str | None = None
    scope: str | None = None
    key: str | None = None
    traceparent: str | None = None


def decode(raw: events.Raw, position: events.Position, definitions: Definitions) -> events.Event:
    """Judge one record by the active definitions.

    A record with an origin header is taken to stand at its original position. Never raises for what a producer sent.
    """
    reading = _Reading(raw, position)
    reading.source, reading.id = _identity(position)
    if isinstance(raw.value, Undecodable):
        span = f"{position.offset} to {raw.value.end - 1}"
        message = f"the batch of offsets {span} cannot be decoded: {raw.value.reason}; its producer must send it again"
        return _event(reading, None, EventReason.UNDECODABLE, message)
    try:
        content = _read(reading, definitions)
    except _Rejected as rejected:
        return _event(reading, None, rejected.reason, rejected.message)
    except errors.InvalidEvent as invalid:
        return _event(reading, None, EventReason(invalid.reason), invalid.message)
    return _event(reading, content, None, None)


def _raw_digest(raw: events.Raw) -> str:
    """Return the hash of an event that was rejected before it was understood: that of its bytes."""
    return hashlib.sha256(b"\0".join((raw.key or b"", b"", raw.value or b""))).hexdigest()


def _event(
    reading: _Reading, content: events.Content | None, reason: EventReason | None, message: str | None
) -> events.Event:
    return events.Event(
        position=reading.position,
        redriven=reading.redriven,
        source=reading.source,
        id=reading.id,
        digest=reading.digest or _raw_digest(reading.raw),
        uri=reading.uri,
        collection=reading.collection,
        scope=reading.scope,
        key=reading.key,
        content=content,
        reason=reason.value if reason else None,
        message=message,
        stage="decode",
        raw=reading.raw,
        traceparent=reading.traceparent,
    )


def _identity(position: events.Position) -> tuple[str, str]:
    """Return (source, id) where no header says otherwise: the record's own place in the log."""
    return f"log:{position.topic}", f"{position.incarnation}/{position.partition}/{position.offset}"


def _read(reading: _Reading, definitions: Definitions) -> events.Content:
    headers = _headers(reading.raw.headers)
    _take_origin(reading, headers)
    reading.source, reading.id = _identity(reading.position)
    if "ce_id" in headers:
        reading.source, reading.id = headers.get("ce_source", reading.source), headers["ce_id"]
    if max(len(reading.source.encode()), len(reading.id.encode())) > ID_BYTES_MAX:
        reading.source, reading.id = _identity(reading.position)
        _reject(EventReason.TOO_LARGE, f"ce_id and ce_source take at most {ID_BYTES_MAX} bytes each")
    reading.traceparent = _traceparent(headers)
    definition = _locate(reading, definitions)
    kind = _kind(headers, reading.raw.value)
    data = {} if kind == DELETED else _data(reading.raw.value, DATA_KEYS[kind])
    reading.digest = _digest(reading.uri or "", kind, data)
    _check_deadline(reading, headers)  # after the digest: by it the writer of a late event asks what became of it
    if kind == DELETED:
        return events.Content(body=None, body_hash=None, blank=False, state=None, deleted=True, unless_equal=False)
    content = _content(definition, data, unless_equal=headers.get("ce_unlessequal") == "true")
    return content if kind == WRITTEN else _with_answers(definition, data, content)


def _headers(raw: Iterable[Header]) -> dict[str, str]:
    """Return the headers that we read, as text; ours and CloudEvents' may stand only once."""
    found: dict[str, str] = {}
    for name, value in raw:
        if not (name.startswith("ce_") or name in {"traceparent", ORIGIN_HEADER}):
            continue
        if name in found:
            _reject(EventReason.UNKNOWN_TYPE, f"header {name} stands twice; send each header once")
        try:
            found[name] = (value or b"").decode()
        except UnicodeDecodeError:
            _reject(EventReason.INVALID_TEXT, f"header {name} is not UTF-8 text")
        if "\0" in found[name]:
            _reject(EventReason.INVALID_TEXT, f"header {name} holds a NUL character")
    return found


def _traceparent(headers: dict[str, str]) -> str | None:
    """Return the trace that an event belongs to; what is too long for one is ignored, and rejects no event."""
    text = headers.get("traceparent", "")
    return text if 0 < len(text) <= TRACEPARENT_CHARS_MAX else None


def _take_origin(reading: _Reading, headers: dict[str, str]) -> None:
    if ORIGIN_HEADER not in headers:
        return
    topic, *numbers = headers[ORIGIN_HEADER].split("/")
    if len(numbers) != 3 or not all(map(_is_place, numbers)):  # noqa: PLR2004
        _reject(EventReason.UNKNOWN_TYPE, f"header {ORIGIN_HEADER} is not topic/incarnation/partition/offset")
    reading.position = events.Position(topic, *(int(number) for number in numbers))
    reading.redriven = True


def _is_place(number: str) -> bool:
    """Say whether it is a number that an offset can be; Python itself refuses to read one of thousands of digits."""
    return number.isascii() and number.isdigit() and len(number) <= PLACE_DIGITS_MAX and int(number) < 2**63


def _locate(reading: _Reading, definitions: Definitions) -> Definition:
    if reading.raw.key is None:
        _reject(EventReason.NULL_KEY, "the record has no key; the key is the document's uri")
    try:
        text = reading.raw.key.decode()
    except UnicodeDecodeError:
        _reject(EventReason.INVALID_URI, f"key {reading.raw.key[:40]!r} is not UTF-8 text")
    uri = documents.parse_uri(text)
    reading.uri = uri.text
    definition, reading.key = definitions.locate(uri)
    reading.collection, reading.scope = definition.name, uri.scope
    return definition


def _check_deadline(reading: _Reading, headers: dict[str, str]) -> None:
    if DEADLINE_HEADER not in headers or reading.redriven or reading.raw.timestamp_ms is None:
        return
    try:
        deadline = datetime.fromisoformat(headers[DEADLINE_HEADER])
    except ValueError:
        deadline = datetime.min  # noqa: DTZ901 (a time without an offset is refused just below)
    if deadline.tzinfo is None:
        _reject(EventReason.UNKNOWN_TYPE, f"header {DEADLINE_HEADER} is not an RFC 3339 time with its offset")
    late_ms = reading.raw.timestamp_ms - round(deadline.timestamp() * 1000)
    if late_ms > 0:
        _reject(EventReason.EXPIRED, f"appended to the log {late_ms} ms after its deadline; write it again")


def _kind(headers: dict[str, str], value: bytes | None) -> str:
    kind = headers.get("ce_type", WRITTEN)
    if kind not in {WRITTEN, IMPORTED, DELETED}:
        _reject(EventReason.UNKNOWN_TYPE, f"ce_type {kind[:80]!r} is not known; use {WRITTEN}, {IMPORTED} or {DELETED}")
    return DELETED if value is None else kind


def _data(value: bytes | None, keys: tuple[str, ...]) -> dict[str, Any]:
    try:
        data = _decode((value or b"").decode())
    except UnicodeDecodeError:
        _reject(EventReason.NOT_JSON, "the value is not UTF-8")
    except RecursionError:
        _reject(EventReason.NOT_JSON, "the value is nested too deeply")
    except ValueError as error:
        _reject(EventReason.NOT_JSON, f"the value is not JSON: {str(error)[:200]}")
    if not isinstance(data, dict):
        _reject(EventReason.INVALID_BODY, 'the value is not an object; send {"body": "…", "state": {…}}')
    unknown = sorted(set(data).difference(keys))
    if unknown:
        guess = errors.nearest(unknown[0], keys)
        taken = f"{', '.join(keys[:-1])} and {keys[-1]}"
        _reject(EventReason.INVALID_BODY, f"unknown member {unknown[0][:80]!r}{guess}; only {taken} are taken")
    if not data:
        _reject(EventReason.INVALID_BODY, "neither body nor state; send at least one")
    return data


def _content(definition: Definition, data: dict[str, Any], *, unless_equal: bool) -> events.Content:
    body = data.get("body")
    body_hash = None
    if "body" in data:
        body_hash = hashlib.sha256(_checked_body(body)).hexdigest()
    state = None
    if "state" in data:
        state = _checked_state(data["state"], definition)
    return events.Content(
        body=body,
        body_hash=body_hash,
        blank=body is not None and not body.strip(),
        state=state,
        deleted=False,
        unless_equal=unless_equal,
    )


def _with_answers(definition: Definition, data: dict[str, Any], content: events.Content) -> events.Content:
    """Return the content of an import: answers of an earlier system are about a body that comes with them."""
    if content.body is None or content.blank:
        _reject(EventReason.INVALID_FACETS, "imported answers are about a body; send the body that they are about")
    answered = imported_answers.answered(definition, data.get("facets"), data.get("evaluation"))
    return dataclasses.replace(content, answered=answered)


def _checked_body(body: Any) -> bytes:
    """Return the body's UTF-8 bytes, or reject it."""
    if not isinstance(body, str):
        what = "null" if body is None else type(body).__name__
        _reject(EventReason.INVALID_BODY, f"body is {what}, not text; leave it out to keep the stored one")
    try:
        encoded = body.encode()
    except UnicodeEncodeError:
        _reject(EventReason.INVALID_TEXT, "body holds half a surrogate pair; send valid Unicode")
    if b"\0" in encoded:
        _reject(EventReason.INVALID_TEXT, "body holds a NUL character; remove it")
    if len(encoded) > documents.BODY_BYTES_MAX:
        limit = documents.BODY_BYTES_MAX
        _reject(EventReason.TOO_LARGE, f"body has {len(encoded)} bytes, at most {limit} are taken; split the document")
    return encoded


def _checked_state(state: Any, definition: Definition) -> str:
    """Return the canonical JSON of a state, or reject it."""
    if not isinstance(state, dict):
        what = "null" if state is None else type(state).__name__
        _reject(EventReason.INVALID_STATE, f"state is {what}, not an object; leave it out to keep the stored one")
    text = to_json(definition.check_state(state))
    if len(text) > documents.STATE_BYTES_MAX:
        limit = documents.STATE_BYTES_MAX
        _reject(EventReason.TOO_LARGE, f"state has {len(text)} bytes as JSON, at most {limit} are taken")
    return text.decode()


def _digest(uri: str, kind: str, data: dict[str, Any]) -> str:
    """Return the hash of what an event says; equal ids with another digest are a reused id."""
    try:
        canonical = _encode_sorted([uri, kind, data])
    except RecursionError:  # one level deeper than what could be read
        _reject(EventReason.NOT_JSON, "the value is nested too deeply")
    return hashlib.sha256(canonical.encode()).hexdigest()


def _reject(reason: EventReason, message: str) -> NoReturn:
    raise _Rejected(reason, message)
