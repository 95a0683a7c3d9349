"""Problem replies (RFC 9457): the one format of every error reply.

`of_error` is the only place that maps the pipeline's errors to statuses. A problem is shown to the client: it never
contains a token, a body, anything of another scope, or the address of the store or the broker.
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
"""Default of `Retry-After`, in seconds."""
NAMES_MAX = 300
"""Maximum number of names in `allowed`: more than a choice has options."""


class Problem(Exception):
    """A request that is answered with a problem; `more` are further members, omitted if None."""

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
        self.detail = display.block(detail)  # it may quote the request or a document
        self.headers = dict(headers or {})
        self.more = {key: value for key, value in more.items() if value is not None}
        if self.status == KINDS["busy"].status:
            self.headers.setdefault("Retry-After", str(RETRY_S))

    def members(self, instance: str) -> dict[str, Any]:
        """Return the members of the JSON object."""
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
    """Return JSON in UTF-8; a lone surrogate, which a client may have sent, is escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def instance_of(request: HTTPConnection) -> str:
    """Return a problem's `instance`: the path of the request as it was sent, without parameters."""
    raw = request.scope.get("raw_path")
    return raw.decode("ascii", "replace") if isinstance(raw, bytes) else str(request.scope.get("path", ""))


def unknown(kind: str, name: str, known: list[str]) -> Problem:
    """Return the problem for an unknown name, with the known ones and the nearest of them."""
    shown = name[:80]
    listed = ", ".join(known) or "none"
    hint = errors.nearest(shown, known)
    if not hint and "f.NAME" in known:
        hint = f". Filter with f.{shown}=VALUE"
    return Problem(
        "unknown-parameter",
        f"unknown {kind} {shown!r}{hint}; known: {listed}",
        known=known,
        nearest=near(name, known),
    )


def near(word: str, known: list[str]) -> str | None:
    """Return the known name most similar to a word, or None."""
    return errors.likeliest(word[:80], known)


def of_error(error: errors.PipelineError, *, missing: str = "not-found") -> Problem:
    """Return the problem for an error; `missing` is the kind for `NotFound`."""
    if isinstance(error, errors.InvalidEvent):
        return _of_event(error)
    if isinstance(error, errors.InvalidQuery):
        return _of_query(error)
    found = (name for kind, name in _KINDS.items() if isinstance(error, kind))
    name = missing if isinstance(error, errors.NotFound) else next(found, "internal-error")
    if name == "internal-error":
        return Problem(name, FAILED)
    return Problem(name, public_messages.message_of(error))


FAILED = "the request failed; see the server's log"
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
"""Kind of problem by class of error; the first match counts."""


def _of_event(error: errors.InvalidEvent) -> Problem:
    if error.reason == "too_large":
        return Problem("too-large", error.message, reason=error.reason)
    if error.reason == "unknown_collection":
        return Problem("unknown-collection", error.message, reason=error.reason)
    if error.reason == "id_reused":
        return Problem("key-reused", error.message, reason=error.reason)
    if error.reason == "expired":  # it was not applied; the same event may be sent again
        return Problem("write-in-doubt", error.message, reason=error.reason)
    return Problem("write-refused", error.message, reason=error.reason)


def _of_query(error: errors.InvalidQuery) -> Problem:
    allowed = list(error.allowed)[:NAMES_MAX]
    return Problem(
        error.code if error.code in KINDS else "invalid-query",
        error.message,
        allowed=allowed or None,
        nearest=_suggested(error.message, allowed),
        line=getattr(error, "line", None),
        column=getattr(error, "column", None),
    )


def _suggested(message: str, allowed: list[str]) -> str | None:
    """Return the name that the message suggests, so that `detail` and `nearest` never differ."""
    _, suggested, rest = message.partition("(did you mean '")
    name = rest.partition("'?)")[0]
    return name if suggested and (not allowed or name in allowed) else None
