"""Documents as everybody but the store sees them: uris, statuses, and the record that the feed carries.

A uri is judged here and nowhere else. It is never normalised: one spelling, one document.
"""

import json
import unicodedata
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from facetline.facets.errors import InvalidEvent

URI_BYTES_MAX = 512
BODY_BYTES_MAX = 512 * 1024
STATE_BYTES_MAX = 64 * 1024

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class Status(StrEnum):
    """Where a document stands; see docs/concepts.md."""

    PENDING = "pending"
    INDEXED = "indexed"
    FAILED = "failed"
    EMPTY = "empty"
    DELETED = "deleted"


class DocumentReason(StrEnum):
    """Why a document is `failed`."""

    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"
    INVALID_ANSWER = "invalid_answer"
    REFUSED = "refused"
    CONTENT_FILTER = "content_filter"
    TOO_LONG = "too_long"
    EVALUATOR_ERROR = "evaluator_error"


class EventReason(StrEnum):
    """Why an event was rejected."""

    NOT_JSON = "not_json"
    UNKNOWN_TYPE = "unknown_type"
    UNKNOWN_COLLECTION = "unknown_collection"
    NULL_KEY = "null_key"
    INVALID_URI = "invalid_uri"
    TOO_LARGE = "too_large"
    INVALID_BODY = "invalid_body"
    INVALID_TEXT = "invalid_text"
    INVALID_STATE = "invalid_state"
    INVALID_FACETS = "invalid_facets"
    NO_DOCUMENT = "no_document"
    ID_REUSED = "id_reused"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    LOG_TRUNCATED = "log_truncated"
    UNDECODABLE = "undecodable"


@dataclass(frozen=True, slots=True)
class Uri:
    """A uri taken apart: `scope` is "" in an unscoped collection, `path` is what follows the scope."""

    text: str
    scope: str
    path: str


def parse_uri(text: str) -> Uri:
    """Take a uri apart.

    Raises:
        InvalidEvent: `invalid_uri`, when the text is not a uri; the message says what to change.
    """
    problem = _uri_problem(text)
    if problem:
        raise InvalidEvent(EventReason.INVALID_URI, f"uri {text[:80]!r}: {problem}")
    if not text.startswith("@"):
        return Uri(text, "", text)
    scope, _, path = text[1:].partition("/")
    if not scope or not path:
        raise InvalidEvent(EventReason.INVALID_URI, f"uri {text[:80]!r}: a scoped uri is '@scope/path'")
    return Uri(text, scope, path)


def _uri_problem(text: str) -> str | None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "it holds half a surrogate pair; send valid Unicode"
    if size > URI_BYTES_MAX:
        return f"{size} bytes, at most {URI_BYTES_MAX} are taken"
    if not text.isprintable() and any(unicodedata.category(letter) == "Cc" for letter in text):
        return "control characters are not taken"
    if not unicodedata.is_normalized("NFC", text):
        return f"not in Unicode's NFC form; send {unicodedata.normalize('NFC', text)!r}"
    if any(segment in {"", ".", ".."} for segment in text.split("/")):
        return "an empty, '.' or '..' segment is not taken"
    return None


class Evaluation(BaseModel):
    """Who answered, when, and on what authority; `confidence_source` is None where no confidence is given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    evaluator: str
    kind: str
    model: str
    fingerprint: str
    classified_at: datetime
    confidence_source: str | None = None
    cached: bool = False
    usage: dict[str, Any] | None = None
    cost_usd: float | None = None
    notes: dict[str, Any] | None = None


class SourceEvent(BaseModel):
    """The event that a document's present content came from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    id: str
    topic: str | None = None
    incarnation: int | None = None
    partition: int | None = None
    offset: int | None = None


class Calls(BaseModel):
    """Model calls made for the present `indexed_as`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    made: int = 0
    retries: int = 0
    crashes: int = 0


class Record(BaseModel):
    """One document as the feed carries it: everything but the body. Times are UTC."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    feed_seq: int
    uri: str
    collection: str
    scope: str
    key: str
    version: int
    revision: int
    indexed_as: int
    status: Status
    reason: str | None = None
    facets: dict[str, dict[str, Any]] | None = None
    state: dict[str, Any] | None = None
    fingerprint: str | None = None
    written_at: datetime
    classified_at: datetime | None = None
    evaluation: Evaluation | None = None
    source_event: SourceEvent | None = None
    traceparent: str | None = None

    @property
    def facets_json(self) -> str | None:
        """The facets as the store keeps them."""
        return None if self.facets is None else _encode(self.facets)

    @property
    def state_json(self) -> str | None:
        """The state as the store keeps it."""
        return None if self.state is None else _encode(self.state)


class Shown(NamedTuple):
    """As much of a record as a view takes; facets and state are the JSON texts of the store, times microseconds in UTC.

    Plain, and as the store has it: a view is built from a million of these.
    """

    feed_seq: int
    uri: str
    collection: str
    scope: str
    key: str
    version: int
    revision: int
    indexed_as: int
    status: str
    reason: str | None
    facets_json: str | None
    state_json: str | None
    fingerprint: str | None
    written_us: int
    classified_us: int | None
    body: str | None = None
    """None: it was not read, since the view has it."""


class Document(BaseModel):
    """One document whole, as `get` shows it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uri: str
    collection: str
    scope: str
    key: str
    body: str | None
    state: dict[str, Any] | None
    facets: dict[str, dict[str, Any]] | None
    version: int
    revision: int
    indexed_as: int
    status: Status
    reason: str | None = None
    reason_message: str | None = None
    written_at: datetime
    evaluation: Evaluation | None = None
    calls: Calls = Calls()
