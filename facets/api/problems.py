"""Problems: every reply that is not what was asked for, in the one shape of RFC 9457.

`of_error` is the one place where the pipeline's errors become statuses. What a problem says is for whoever caused it:
it never holds a token, a body, anything of another scope, or where the store and the broker are.
"""

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import HTTPConnection
from starlette.responses import Response

from facetline.facets import display, errors, public_messages
from facetline.facets.api.problem_types import KINDS, Kind

MEDIA_TYPE = "application/problem+json"
RETRY_S = 1
"""What `Retry-After` says where nothing better is known."""
NAMES_MAX = 300
"""Names in `allowed` and `known`: more than a choice has options."""


class Problem(Exception):
    """A request that is answered with a problem; `more` are its further members, None of which are left out."""

    def __init__(
        self,
        name: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        status: int | None = None,
        **more: Any,
    ) -> None:
        super().__init__(name)
        self.kind: Kind = KINDS[name]
        self.status = status or self.kind.status
        self.detail = display.block(detail)  # it may repeat what was sent, or stood in a document
        self.headers = dict(headers or {})
        self.more = {key: value for key, value in more.items() if value is not None}
        if self.status == KINDS["busy"].status:
            self.headers.setdefault("Retry-After", str(RETRY_S))

    def members(self, instance: str) -> dict[str, Any]:
        """Return the problem as JSON shows it."""
        return {
            "type": self.kind.type,
            "title": self.kind.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            **self.more,
        }

    def response(self, instance: str) -> Response:
        """Return the reply."""
        return Response(encoded(self.members(instance)), self.status, self.headers, MEDIA_TYPE)


def encoded(value: Any) -> bytes:
    """Return JSON in UTF-8; half a surrogate pair, which a client may have sent, is shown escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def instance_of(request: HTTPConnection) -> str:
    """Return what a problem names as `instance`: the address without its parameters, as it was sent."""
    raw = request.scope.get("raw_path")
    return raw.decode("ascii", "replace") if isinstance(raw, bytes) else str(request.scope.get("path", ""))


def unknown(kind: str, name: str, known: list[str]) -> Problem:
    """Return the problem of a name that is not known, with the nearest of those that are."""
    shown = name[:80]
    listed = ", ".join(known) or "none"
    hint = errors.nearest(shown, known)
    if not hint and "f.NAME" in known:
        hint = f" (a question is asked for as 'f.{shown}')"
    return Problem(
        "unknown-parameter",
        f"there is no {kind} {shown!r}{hint}; known: {listed}",
        known=known,
        nearest=near(name, known),
    )


def near(word: str, known: list[str]) -> str | None:
    """Return the name most like a word, if one is."""
    return errors.likeliest(word[:80], known)


def of_error(error: errors.PipelineError, *, missing: str = "not-found") -> Problem:
    """Return the problem that an error is to a client; `missing` is the kind of what is looked for."""
    if isinstance(error, errors.InvalidEvent):
        return _of_event(error)
    if isinstance(error, errors.InvalidQuery):
        return _of_query(error)
    found = (name for kind, name in _KINDS.items() if isinstance(error, kind))
    name = missing if isinstance(error, errors.NotFound) else next(found, "internal-error")
    if name == "internal-error":
        return Problem(name, FAILED)
    return Problem(name, public_messages.message_of(error))


FAILED = "the request could not be answered; the server's log says why"
_KINDS: Mapping[type[errors.PipelineError], str] = {
    errors.Forbidden: "forbidden",
    errors.KeyReused: "key-reused",
    errors.Conflict: "conflict",
    errors.NotCaughtUp: "not-caught-up",
    errors.SqlBusy: "busy",
    errors.WriteInDoubt: "write-in-doubt",
    errors.StoreUnavailable: "store-unavailable",
    errors.BrokerUnavailable: "broker-unavailable",
    errors.TransientError: "unavailable",
}
"""The kind of problem by the kind of error; the first that fits."""


def _of_event(error: errors.InvalidEvent) -> Problem:
    if error.reason == "too_large":
        return Problem("too-large", error.message, reason=error.reason)
    if error.reason == "unknown_collection":
        return Problem("unknown-collection", error.message, reason=error.reason)
    if error.reason == "id_reused":
        return Problem("key-reused", error.message, reason=error.reason)
    if error.reason == "expired":  # it was not applied, and the same event is judged afresh
        return Problem("write-in-doubt", error.message, reason=error.reason)
    return Problem("write-refused", error.message, reason=error.reason)


def _of_query(error: errors.InvalidQuery) -> Problem:
    allowed = list(error.allowed)[:NAMES_MAX]
    return Problem(
        error.code if error.code in KINDS else "invalid-query",
        error.message,
        allowed=allowed or None,
        nearest=_nearest_in(error.message, allowed),
        line=getattr(error, "line", None),
        column=getattr(error, "column", None),
    )


def _nearest_in(message: str, allowed: list[str]) -> str | None:
    """Return the name that the message suggests, so that text and member never differ."""
    _, suggested, rest = message.partition("(did you mean '")
    name = rest.partition("'?)")[0]
    return name if suggested and (not allowed or name in allowed) else None
