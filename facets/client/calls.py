"""What the clients send, and what replies mean to them: pure. How it travels is `facets.client.client`'s.

Every call can be repeated: reads change nothing, writes and jobs carry an `Idempotency-Key`, so a second one with the
same key is not a second write. `talk` decides what is sent again, and when.
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
SAID_CHARS_MAX = 2_000
PAGE_HITS, PAGE_HITS_WITH_TEXTS = 200, 50
"""As many as a page may have."""
SEARCH_S = 20.0
"""How long a server lets a search run; one that is slow is not asked again meanwhile."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request; `path` is percent-encoded, `wait_s` how long the server may wait before it answers."""

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
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Lost:
    """Nothing came back; `why` is for people."""

    why: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so long before the next step."""

    seconds: float


@dataclass(slots=True)
class Patience:
    """How long a call is tried: `timeout_s` from `started_s` on (monotonic seconds), `TRIES_MAX` times at most."""

    timeout_s: float
    started_s: float
    jitter: random.Random = field(default_factory=random.Random)

    def pause_s(self, tries: int, retry_after_s: float | None, now_s: float) -> float | None:
        """Return how long to wait before the next try; None: there is no time or try left."""
        if tries >= TRIES_MAX:
            return None
        grown = min(PAUSE_FIRST_S * 2 ** (tries - 1), PAUSE_MAX_S) * (0.5 + self.jitter.random())
        pause = max(grown, retry_after_s or 0.0)
        return pause if now_s + pause < self.started_s + self.timeout_s else None


Steps = Generator[Call | Pause, Reply | Lost | None, Any]
"""Asks for a call to be sent (answered with what came) or for a pause (answered with None)."""


def talk(call: Call, patience: Patience, clock: Callable[[], float]) -> Steps:
    """Send a call until it has an answer, or patience ends; return the JSON value of the answer.

    Raises:
        PipelineError: what the server refused, or why no answer came.
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
        raise errors.ServerUnavailable(f"the reply is no JSON: {_shown(reply)}; is this a facetline serve?") from None


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
    """Return a problem (RFC 9457) as the error that it was on the server."""
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
    text = reply.body[:SAID_CHARS_MAX].decode("utf-8", "replace")
    return f"HTTP {reply.status} {' '.join(text.split())[:200]}".rstrip()


def _retry_after_s(reply: Reply) -> float | None:
    message = reply.headers.get("retry-after", "").strip()
    if message.isdecimal():
        return float(message[:9])
    try:
        return max(0.0, (parsedate_to_datetime(message) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None


# What is sent


def encoded(content: Mapping[str, Any]) -> bytes:
    """Return a body; what is None is left out.

    Raises:
        InvalidQuery: it is no JSON, or no valid Unicode.
    """
    given = {name: value for name, value in content.items() if value is not None}
    try:
        return json.dumps(given, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise errors.InvalidQuery("a text holds half a surrogate pair; send valid Unicode") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.InvalidQuery(f"an argument is not JSON: {error}") from None


def document(uri: str) -> str:
    """Return the address of a document.

    Raises:
        InvalidEvent: it is no uri.
    """
    documents.parse_uri(uri)
    return f"/v1/documents/{quote(uri, safe='/@')}"


def part(name: str) -> str:
    """Return a name as one part of an address."""
    return quote(name, safe="")


def write(uri: str, body: str | None, state: Mapping[str, Any] | None, key: str, waiting: "Waiting") -> Call:
    """Return a write."""
    content = encoded({"body": body, "state": None if state is None else dict(state)})
    return Call("PUT", document(uri), waiting.params, content, key, waiting.timeout_s)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a write waits for, and how long (seconds)."""

    wait: str
    timeout_s: float

    @property
    def params(self) -> tuple[tuple[str, str], ...]:
        """As parameters of an address."""
        return (("wait", self.wait), ("timeout", f"{round(self.timeout_s * 1000)}ms"))


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many hits are still wanted (None: all), and where the next page begins."""

    left: int | None
    most: int
    cursor: str | None = None

    @property
    def page(self) -> int:
        """The hits to ask for next; 0 when nothing more is wanted."""
        return self.most if self.left is None else min(self.most, self.left)

    def after(self, page: Mapping[str, Any]) -> "Wanted":
        """Return what is wanted behind a page."""
        left = None if self.left is None else self.left - len(page["hits"])
        return replace(self, left=left if page["next_cursor"] else 0, cursor=page["next_cursor"])


def wanted(limit: int | None, options: Mapping[str, Any]) -> Wanted:
    """Return what is wanted of a search at first.

    Raises:
        InvalidQuery: it is a negative number of hits.
    """
    if limit is not None and limit < 0:
        raise errors.InvalidQuery(f"limit is {limit}; give the number of hits that you want, or leave it out")
    return Wanted(limit, PAGE_HITS_WITH_TEXTS if options.get("fields") else PAGE_HITS)


def search(collection: str, facets: Mapping[str, Any] | None, options: Mapping[str, Any]) -> Call:
    """Return a search; `options` are the fields of `POST …/search`."""
    chosen = {name: value if isinstance(value, str | bool) else list(value) for name, value in (facets or {}).items()}
    wait_s = float(options.get("wait_ms") or 2_000) / 1_000 + SEARCH_S
    body = encoded({**options, "facets": chosen or None})
    return Call("POST", f"/v1/collections/{part(collection)}/search", body=body, wait_s=wait_s)
