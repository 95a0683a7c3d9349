"""JSON replies with their headers, and ETags that change if and only if the content changes."""

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
"""The client may cache the reply and revalidates it each time."""


def json_reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a reply with the value as JSON, and its freshness token as a header if it has one."""
    reply = Response(problems.encoded(value), status, headers, JSON)
    token = token_of(value)
    if token is not None:
        reply.headers[AS_OF] = token
    return reply


def tagged(request: Request, value: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """Return a reply with its `ETag`, or 304 without a body if the client has it already.

    The tag is weak: it omits what differs in every reply (the token and the time taken).
    """
    tag = _tag(value)
    common = {**CONDITIONAL, "ETag": tag, **(headers or {})}
    if not _has(request, tag):
        return json_reply(value, headers=common)
    token = token_of(value)
    return Response(status_code=304, headers={**common, AS_OF: token} if token else common)


def token_of(value: Any) -> str | None:
    """Return the token of a reply: its `token`, or that of its `as_of`."""
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
    content = {key: each for key, each in value.items() if key not in {"took_ms", "token"}}
    if isinstance(content.get("as_of"), Mapping):
        content["as_of"] = {key: each for key, each in content["as_of"].items() if key != "token"}
    return f'W/"{hashlib.sha256(problems.encoded(content)).hexdigest()[:32]}"'


def _has(request: Request, tag: str) -> bool:
    given = [each.strip() for header in request.headers.getlist("if-none-match") for each in header.split(",")]
    return "*" in given or tag.removeprefix("W/") in {each.removeprefix("W/") for each in given}
