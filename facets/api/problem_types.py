"""The kinds of problem that a reply can name: stable names, each with its status and title.

A name is the last part of the problem's `type`. It never changes its meaning; docs/api.md lists them all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

PREFIX = "/v1/problems/"
"""What a `type` begins with: relative to the server, which explains each under that address."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem; `mend` says what whoever meets it can do."""

    name: str
    status: int
    title: str
    mend: str

    @property
    def type(self) -> str:
        """The problem's `type`."""
        return PREFIX + self.name


_ALL = (
    # The request
    Kind("invalid-parameter", 400, "A parameter cannot be understood", "Send what `detail` says is taken."),
    Kind("unknown-parameter", 400, "There is no such parameter", "Use one of `known`; `nearest` is most like it."),
    Kind("invalid-json", 400, "The body is not JSON", "Send one JSON object, in UTF-8."),
    Kind("invalid-request", 400, "The body does not have the right form", "Send what `detail` says is taken."),
    Kind("bad-request", 400, "This is not an HTTP request", "Send HTTP/1.1."),
    Kind("request-timeout", 408, "The request came too slowly", "Send it whole within the time."),
    Kind("too-large", 413, "The request is too large", "Send less; `detail` says how much is taken."),
    Kind("unsupported-media-type", 415, "The body's type is not taken", "Send `content-type: application/json`."),
    Kind("head-too-large", 431, "The request's head is too large", "Send shorter headers, or POST what is long."),
    # Who asks
    Kind("unauthorized", 401, "A valid token is needed", "Send `Authorization: Bearer …`; see `facetline token`."),
    Kind("forbidden", 403, "The token does not have this right", "Use a token that has it."),
    Kind("foreign-host", 403, "Not a host that is answered for", "Use the address that the server was started with."),
    Kind("foreign-origin", 403, "Not a page that is answered to", "Have its origin added to the setting `origins`."),
    # What is not there
    Kind("not-found", 404, "There is nothing at this address", "See /openapi.json for the addresses that there are."),
    Kind("document-not-found", 404, "There is no such document", "Check the uri; a deleted document is not found."),
    Kind("event-not-found", 404, "There is no such event", "Ask as who wrote it, within 30 days."),
    Kind("job-not-found", 404, "There is no such job", "`GET /v1/jobs` lists those that there are."),
    Kind("dead-letter-not-found", 404, "There is no such dead letter", "`GET /v1/dead-letters` lists the open ones."),
    Kind("problem-not-found", 404, "There is no such kind of problem", "docs/api.md lists them."),
    Kind("unknown-collection", 404, "There is no such collection", "Use one of `allowed`."),
    Kind("method-not-allowed", 405, "This address does not take that method", "Use one of `allowed`."),
    # A search
    Kind("invalid-query", 400, "The search cannot be answered", "Send what `detail` says is taken."),
    Kind("unknown-facet", 400, "There is no such question", "Use one of `allowed`."),
    Kind("unknown-value", 400, "The question has no such option", "Use one of `allowed`."),
    Kind("filter-syntax", 400, "The filter cannot be read", "Look at `line` and `column`."),
    Kind("cursor-mismatch", 400, "The cursor or token does not fit", "Leave it out to start over."),
    Kind("search-timeout", 400, "The search ran for too long", "Send a shorter filter, or count fewer questions."),
    Kind("not-caught-up", 503, "Not as far yet as `at_least` asks", "Try again after `Retry-After` seconds."),
    # SQL
    Kind("sql-not-read-only", 400, "Not one statement that reads only", "Send one SELECT."),
    Kind("sql-error", 400, "The statement cannot be run", "Look at `detail`, `line` and `column`."),
    Kind("sql-too-large", 400, "The result is larger than is sent", "Ask for fewer or shorter values."),
    Kind("sql-timeout", 400, "The statement ran for too long", "Ask for less, or give a longer `timeout_ms`."),
    # A write or a job
    Kind("write-refused", 422, "The write was refused, and changed nothing", "`reason` says what is wrong."),
    Kind("conflict", 409, "Another request is in the way", "Wait for it to end, or cancel it."),
    Kind("key-reused", 422, "The Idempotency-Key was used for another request", "Use a new key."),
    Kind("write-in-doubt", 503, "The write was not acknowledged in time", "Send it again with the same key."),
    # The server
    Kind("busy", 503, "Server busy", "Try again after `Retry-After` seconds."),
    Kind("store-unavailable", 503, "The store cannot be reached", "Try again; `/readyz?verbose` says how it is."),
    Kind("broker-unavailable", 503, "The broker cannot be reached", "Try again; `/readyz?verbose` says how it is."),
    Kind("unavailable", 503, "Temporarily unavailable; retry", "Try again after `Retry-After` seconds."),
    Kind("not-alive", 503, "The process does not work", "Start it again; `checks` says what is wrong."),
    Kind("not-ready", 503, "The process cannot serve yet", "Wait; `checks` says what for."),
    Kind("internal-error", 500, "The server failed", "Look into its log for this time."),
)

KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _ALL})
