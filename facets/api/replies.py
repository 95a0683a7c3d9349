"""Replies: JSON with its headers, and a tag that changes when and only when what is said does."""

import hashlib
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response

from facetline.facets.api import problems

AS_OF = "Facetline-As-Of"
JSON = "application/json"
CONDITIONAL = {"Cache-Control": "private, no-cache", "Vary": "Accept, Authorization"}
"""May be kept by its reader, who asks each time whether it is still so."""


def json_reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a reply with the value as JSON, and how new it is where it says so."""
    reply = Response(problems.encoded(value), status, headers, JSON)
    token = token_of(value)
    if token is not None:
        reply.headers[AS_OF] = token
    return reply


def tagged(request: Request, value: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """Return a reply with its `ETag`; 304 without a body to a client that has it already.

    The tag is of all but what is new in every reply: its token and the time it took. So it is a weak one.
    """
    tag = _tag(value)
    own = {**CONDITIONAL, "ETag": tag, **(headers or {})}
    if not _has(request, tag):
        return json_reply(value, headers=own)
    token = token_of(value)
    return Response(status_code=304, headers={**own, AS_OF: token} if token else own)


def token_of(value: Any) -> str | None:
    """Return the token of a reply, its own or that of its `as_of`."""
    if not isinstance(value, Mapping):
        return None
    as_of = value.get("as_of")
    found = as_of.get("token") if isinstance(as_of, Mapping) else value.get("token", as_of)
    return found if isinstance(found, str) else None


def add_link(headers: MutableHeaders, address: str, relation: str) -> None:
    """Add a link of RFC 8288."""
    link = f'<{address}>; rel="{relation}"'
    headers["Link"] = f"{headers['Link']}, {link}" if "Link" in headers else link


def _tag(value: Mapping[str, Any]) -> str:
    fields = {key: each for key, each in value.items() if key not in {"took_ms", "token"}}
    if isinstance(fields.get("as_of"), Mapping):
        fields["as_of"] = {key: each for key, each in fields["as_of"].items() if key != "token"}
    return f'W/"{hashlib.sha256(problems.encoded(fields)).hexdigest()[:32]}"'


def _has(request: Request, tag: str) -> bool:
    given = [each.strip() for header in request.headers.getlist("if-none-match") for each in header.split(",")]
    return "*" in given or tag.removeprefix("W/") in {each.removeprefix("W/") for each in given}
