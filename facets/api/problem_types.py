"""Kinds of problem (RFC 9457): stable names, each with status, title and what the client can do.

A name is the last part of the problem's `type`. Its meaning never changes; docs/api.md lists all kinds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

PREFIX = "/v1/problems/"
"""Prefix of `type`, relative to the server, which describes each kind at that URL."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem; `fix` says what the client can do about it."""

    name: str
    status: int
    title: str
    fix: str

    @property
    def type(self) -> str:
        """The problem's `type`."""
        return PREFIX + self.name


_ALL = (
    # The request
    Kind("invalid-parameter", 400, "Invalid parameter", "Send a value as described in `detail`."),
    Kind("unknown-parameter", 400, "Unknown parameter", "Use one of `known`; `nearest` is the most similar."),
    Kind("invalid-json", 400, "Invalid JSON body", "Send one JSON object in UTF-8."),
    Kind("invalid-request", 400, "Invalid request body", "Send a body as described in `detail`."),
    Kind("bad-request", 400, "Not an HTTP request", "Send HTTP/1.1."),
    Kind("request-timeout", 408, "Request too slow", "Send the complete request within the time limit."),
    Kind("too-large", 413, "Request too large", "Send less; `detail` states the limit."),
    Kind("unsupported-media-type", 415, "Unsupported media type", "Send `content-type: application/json`."),
    Kind("head-too-large", 431, "Request head too large", "Send shorter headers, or use POST for long searches."),
    # Who asks
    Kind("unauthorized", 401, "Valid token required", "Send `Authorization: Bearer …`; see `facetline token`."),
    Kind("forbidden", 403, "Missing right", "Use a token with the right that `detail` names."),
    Kind("foreign-host", 403, "Unknown host name", "Use the server's address, or add the host to the setting `hosts`."),
    Kind("foreign-origin", 403, "Foreign origin", "Add the page's origin to the setting `origins`."),
    # What is not there
    Kind("not-found", 404, "Unknown route", "See /openapi.json for all routes."),
    Kind("document-not-found", 404, "Document not found", "Check the uri; a deleted document is not found."),
    Kind("event-not-found", 404, "Event not found", "Use the token that wrote it, within 30 days."),
    Kind("job-not-found", 404, "Job not found", "`GET /v1/jobs` lists all jobs."),
    Kind("dead-letter-not-found", 404, "Dead letter not found", "`GET /v1/dead-letters` lists the open ones."),
    Kind("problem-not-found", 404, "Unknown kind of problem", "docs/api.md lists them."),
    Kind("unknown-collection", 404, "Unknown collection", "Use one of `allowed`."),
    Kind("method-not-allowed", 405, "Method not allowed", "Use one of `allowed`."),
    # A search
    Kind("invalid-query", 400, "Invalid search", "Correct it as described in `detail`."),
    Kind("unknown-facet", 400, "Unknown question", "Use one of `allowed`."),
    Kind("unknown-value", 400, "Unknown option", "Use one of `allowed`."),
    Kind("filter-syntax", 400, "Invalid filter", "See `line` and `column`."),
    Kind("cursor-mismatch", 400, "Cursor or token does not match", "Omit it to start over."),
    Kind("search-timeout", 400, "Search timed out", "Use a shorter filter, or count fewer questions."),
    Kind("not-caught-up", 503, "Not as new as `at_least` requires", "Retry after `Retry-After` seconds."),
    # SQL
    Kind("sql-not-read-only", 400, "Not a single read-only statement", "Send one SELECT."),
    Kind("sql-error", 400, "SQL error", "See `detail`, `line` and `column`."),
    Kind("sql-too-large", 400, "Result too large", "Select fewer or shorter values."),
    Kind("sql-timeout", 400, "Statement timed out", "Select less, or set a longer `timeout_ms`."),
    # A write or a job
    Kind("write-refused", 422, "Write refused; nothing was changed", "`reason` says what is wrong."),
    Kind("conflict", 409, "Conflict with another request", "Wait for it to finish, or cancel it."),
    Kind("key-reused", 422, "Idempotency-Key used for another request", "Use a new key."),
    Kind("write-in-doubt", 503, "Write not acknowledged in time", "Send it again with the same key."),
    # The server
    Kind("busy", 503, "Server busy", "Retry after `Retry-After` seconds."),
    Kind("store-unavailable", 503, "Store unreachable", "Retry; `/readyz?verbose` shows its state."),
    Kind("broker-unavailable", 503, "Broker unreachable", "Retry; `/readyz?verbose` shows its state."),
    Kind("unavailable", 503, "Temporarily unavailable; retry", "Retry after `Retry-After` seconds."),
    Kind("not-alive", 503, "Process not alive", "Restart it; `detail` says what is wrong."),
    Kind("not-ready", 503, "Process not ready", "Wait; `checks` says what for."),
    Kind("internal-error", 500, "Internal error", "See the server's log for this time."),
)

KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _ALL})
