"""Requests of the clients, interpretation of replies, and retries. Pure; `facets.client.client` does the I/O.

Every call can be repeated: reads change nothing, writes and jobs have an `Idempotency-Key`, so that the same key is
applied once. `talk` decides what is sent again, and when.
"""

import json
import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from facetline.facets import documents, errors

TRIES_MAX = 5
PAUSE_FIRST_S, PAUSE_MAX_S = 0.1, 5.0
AGAIN = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, 503, HTTPStatus.GATEWAY_TIMEOUT})
SHOWN_BYTES_MAX = 2_000
PAGE_HITS, PAGE_HITS_WITH_TEXTS = 200, 50
"""Maximum hits of one page."""
SEARCH_S = 20.0
"""The server's time limit of a search; a slow search is not sent again before."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request; `path` is percent-encoded, `wait_s` is how long the server may wait before it answers."""

    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    key: str | None = None
    wait_s: float = 0.0

    @property
    def headers(self) -> dict[str, str]:
        """The headers of this call."""
        found = {"Accept": "application/json"}
        if self.body is not None:
            found["Content-Type"] = "application/json"
        if self.key is not None:
            found["Idempotency-Key"] = self.key
        return found


@dataclass(frozen=True, slots=True)
class Reply:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Lost:
    """No response; `why` is a readable reason."""

    why: str


@dataclass(frozen=True, slots=True)
class Pause:
    """A wait before the next step."""

    seconds: float


@dataclass(slots=True)
class Patience:
    """Retry budget of a call: `timeout_s` from `started_s` on (monotonic seconds), at most `TRIES_MAX` tries."""

    timeout_s: float
    started_s: float
    jitter: random.Random = field(default_factory=random.Random)

    def pause_s(self, tries: int, retry_after_s: float | None, now_s: float) -> float | None:
        """Return the wait before the next try in seconds; None if the budget is used up."""
        if tries >= TRIES_MAX:
            return None
        grown = min(PAUSE_FIRST_S * 2 ** (tries - 1), PAUSE_MAX_S) * (0.5 + self.jitter.random())
        pause = max(grown, retry_after_s or 0.0)
        return pause if now_s + pause < self.started_s + self.timeout_s else None


Steps = Generator[Call | Pause, Reply | Lost | None, Any]
"""Yields calls to send (resumed with the result) and pauses (resumed with None)."""


def talk(call: Call, patience: Patience, clock: Callable[[], float]) -> Steps:
    """Send a call until it is answered or the retry budget is used up; return the JSON value of the answer.

    Raises:
        PipelineError: the server's refusal, or why no answer came.
    """
    tries = 0
    while True:
        came = yield call
        tries += 1
        if isinstance(came, Reply) and came.status not in AGAIN:
            return value_of(came)
        retry_after_s = _retry_after_s(came) if isinstance(came, Reply) else None
        pause_s = patience.pause_s(tries, retry_after_s, clock())
        if pause_s is None:
            raise error_of(came) if isinstance(came, Reply) else errors.ServerUnavailable(came.why if came else None)
        yield Pause(pause_s)


def value_of(reply: Reply) -> Any:
    """Return the JSON of a reply.

    Raises:
        PipelineError: the reply is a problem.
    """
    if reply.status >= HTTPStatus.MULTIPLE_CHOICES:
        raise error_of(reply)
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        raise errors.ServerUnavailable(
            f"the reply is not JSON: {_shown(reply)}; check that the URL is a 'facetline serve'"
        ) from None


_QUERIES: Mapping[str, type[errors.InvalidQuery]] = {
    "unknown-collection": errors.UnknownCollection,
    "unknown-facet": errors.UnknownFacet,
    "unknown-value": errors.UnknownValue,
    "cursor-mismatch": errors.InvalidCursor,
    "search-timeout": errors.SearchTimeout,
    "sql-not-read-only": errors.SqlRefused,
    "sql-timeout": errors.SqlTimeout,
    "sql-too-large": errors.SqlTooLarge,
}
_PLACED: Mapping[str, type[errors.InvalidText]] = {
    "filter-syntax": errors.InvalidFilter,
    "sql-error": errors.SqlFailed,
}
_OTHERS: Mapping[str, type[errors.PipelineError]] = {
    "conflict": errors.Conflict,
    "key-reused": errors.KeyReused,
    "forbidden": errors.Forbidden,
    "unauthorized": errors.Forbidden,
    "foreign-host": errors.Forbidden,
    "foreign-origin": errors.Forbidden,
    "not-caught-up": errors.NotCaughtUp,
    "write-in-doubt": errors.WriteInDoubt,
    "store-unavailable": errors.StoreUnavailable,
    "broker-unavailable": errors.BrokerUnavailable,
}
_REFUSED = frozenset({"write-refused", "too-large", "key-reused", "unknown-collection"})


def error_of(reply: Reply) -> errors.PipelineError:
    """Return a problem (RFC 9457) as the server's error."""
    problem = _problem(reply)
    name = str(problem.get("type", "")).rsplit("/", 1)[-1]
    message = str(problem.get("detail") or problem.get("title") or _shown(reply))
    reason = problem.get("reason")
    if isinstance(reason, str) and name in _REFUSED:
        return errors.InvalidEvent(reason, message)
    if name in _OTHERS:
        return _OTHERS[name](message)
    if name in _QUERIES or name in _PLACED:
        return _query(name, message, problem)
    if name.endswith("not-found") or (not problem and reply.status == HTTPStatus.NOT_FOUND):
        return errors.NotFound(message)
    if name and HTTPStatus.BAD_REQUEST <= reply.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return _query(name, message, problem)
    return errors.ServerUnavailable(message)


def _query(name: str, message: str, problem: Mapping[str, Any]) -> errors.InvalidQuery:
    listed = problem.get("allowed") or problem.get("known") or ()
    allowed = tuple(str(each) for each in listed) if isinstance(listed, list) else ()
    if name in _PLACED:
        return _PLACED[name](message, allowed=allowed, line=problem.get("line"), column=problem.get("column"))
    error = _QUERIES.get(name, errors.InvalidQuery)(message)
    error.allowed, error.code = allowed, name
    return error


def _problem(reply: Reply) -> dict[str, Any]:
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _shown(reply: Reply) -> str:
    text = reply.body[:SHOWN_BYTES_MAX].decode("utf-8", "replace")
    return f"HTTP {reply.status} {' '.join(text.split())[:200]}".rstrip()


def _retry_after_s(reply: Reply) -> float | None:
    value = reply.headers.get("retry-after", "").strip()
    if value.isdecimal():
        return float(value[:9])
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None


# Requests


def encoded(content: Mapping[str, Any]) -> bytes:
    """Return a JSON body without members that are None.

    Raises:
        InvalidQuery: it cannot be JSON, or is not valid Unicode.
    """
    given = {name: value for name, value in content.items() if value is not None}
    try:
        return json.dumps(given, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise errors.InvalidQuery("a text contains a lone surrogate; send valid Unicode") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.InvalidQuery(f"an argument is not JSON: {error}") from None


def document(uri: str) -> str:
    """Return the path of a document.

    Raises:
        InvalidEvent: the uri is invalid.
    """
    documents.parse_uri(uri)
    return f"/v1/documents/{quote(uri, safe='/@')}"


def part(name: str) -> str:
    """Return a name as one percent-encoded path segment."""
    return quote(name, safe="")


def write(uri: str, body: str | None, state: Mapping[str, Any] | None, key: str, waiting: "Waiting") -> Call:
    """Return a write."""
    content = encoded({"body": body, "state": None if state is None else dict(state)})
    return Call("PUT", document(uri), waiting.params, content, key, waiting.timeout_s)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a write waits for, and for how many seconds."""

    wait: str
    timeout_s: float

    @property
    def params(self) -> tuple[tuple[str, str], ...]:
        """The URL parameters."""
        return (("wait", self.wait), ("timeout", f"{round(self.timeout_s * 1000)}ms"))


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many hits are still to be read (None: all), and the cursor of the next page."""

    left: int | None
    most: int
    cursor: str | None = None

    @property
    def page(self) -> int:
        """The number of hits to request next; 0 at the end."""
        return self.most if self.left is None else min(self.most, self.left)

    def after(self, page: Mapping[str, Any]) -> "Wanted":
        """Return what remains after a page."""
        left = None if self.left is None else self.left - len(page["hits"])
        return replace(self, left=left if page["next_cursor"] else 0, cursor=page["next_cursor"])


def wanted(limit: int | None, options: Mapping[str, Any]) -> Wanted:
    """Return the initial state for reading `limit` hits (None: all).

    Raises:
        InvalidQuery: the limit is negative.
    """
    if limit is not None and limit < 0:
        raise errors.InvalidQuery(f"limit is {limit}; set the number of hits, or omit it for all")
    return Wanted(limit, PAGE_HITS_WITH_TEXTS if options.get("fields") else PAGE_HITS)


_LISTS = ("facets", "mc", "at_least")


def of_texts(
    collection: str, what: str, pattern: str | None, facets: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> Call:
    """Return a `grep` or `glob`; `options` are the parameters of its route."""
    pairs: list[tuple[str, str]] = [("pattern", pattern)] if pattern else []
    for name, value in (facets or {}).items():
        values = [value] if isinstance(value, str | bool | int) else value
        pairs += [(f"f.{name}", _parameter(each)) for each in values]
    pairs += [(f"mc.{name}", _parameter(value)) for name, value in (options.get("mc") or {}).items()]
    pairs += [("at_least", token) for token in options.get("at_least") or ()]
    pairs += [(name, _parameter(value)) for name, value in options.items() if name not in _LISTS and value is not None]
    wait_s = float(options.get("wait_ms") or 2_000) / 1_000 + SEARCH_S
    return Call("GET", f"/v1/collections/{part(collection)}/{what}", tuple(pairs), wait_s=wait_s)


def _parameter(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def search(collection: str, facets: Mapping[str, Any] | None, options: Mapping[str, Any]) -> Call:
    """Return a search; `options` are the fields of `POST …/search`."""
    chosen = {
        name: value if isinstance(value, str | bool | int) else list(value) for name, value in (facets or {}).items()
    }
    wait_s = float(options.get("wait_ms") or 2_000) / 1_000 + SEARCH_S
    body = encoded({**options, "facets": chosen or None})
    return Call("POST", f"/v1/collections/{part(collection)}/search", body=body, wait_s=wait_s)
