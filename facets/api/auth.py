"""Access control: hosts, origins, tokens and rights. What a token may see is decided by the backend.

A browser sends requests of any page to this server. A request is therefore answered only if it does not come from a
page of another site and, where requests without a token have all rights, only under a loopback host name: another site
could point its own name at this machine (DNS rebinding), but cannot take a loopback name.
"""

import re
from collections.abc import Collection

from starlette.datastructures import Headers

from facetline.facets.api.problems import Problem
from facetline.facets.backend import LOCAL, Caller, Right, StatusBackend
from facetline.facets.loopback import is_loopback

_REALM = 'Bearer realm="facetline"'
TOKEN_CHARS_MAX = 512


class Access:
    """Checks requests by their headers.

    Args:
        node: Resolves tokens to callers.
        loopback: The server listens on a loopback address.
        hosts: Accepted host names (with their port, if it is not the scheme's), besides loopback names; empty: any.
        origins: Origins whose pages may read replies, such as `https://app.example`.
    """

    def __init__(
        self, node: StatusBackend, *, loopback: bool, hosts: Collection[str] = (), origins: Collection[str] = ()
    ) -> None:
        self._node = node
        self._loopback = loopback
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origins)

    def allowed_origin(self, headers: Headers) -> str | None:
        """Return the request's origin if its pages may read replies, else None."""
        origin = headers.get("origin")
        return origin if origin in self._origins else None

    async def check_site(self, headers: Headers) -> None:
        """Refuse requests for another host, and requests of pages of another origin.

        Raises:
            Problem: `foreign-host` or `foreign-origin`.
        """
        host = headers.get("host", "").lower()
        if host and not _name(host):
            raise _foreign_host(host)
        # Commands on this machine use its loopback address; no other site can take that name.
        if self._hosts and host not in self._hosts and not is_loopback(_name(host)):
            raise _foreign_host(host)
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins and not _is_own(origin, host):
            raise Problem(
                "foreign-origin",
                f"requests from pages of {origin[:200]!r} are refused; add it to the setting 'origins'",
            )
        if origin is None and _is_foreign_resource(headers):
            raise Problem("foreign-origin", "requests from pages of other sites are refused")

    @staticmethod
    def check_own(headers: Headers) -> None:
        """Refuse navigation from other sites (links, frames): without tokens it would run with all rights.

        Raises:
            Problem: `foreign-origin`.
        """
        if headers.get("sec-fetch-site") == "cross-site" and "origin" not in headers:
            raise Problem("foreign-origin", "Cross-site navigation refused; open the URL directly")

    async def caller(self, headers: Headers) -> Caller:
        """Return the caller of a request.

        Raises:
            Problem: `unauthorized` without a valid token, or with an Authorization header that holds none;
                `foreign-host` without a token under a host name that is not loopback.
        """
        token = _bearer(headers.get("authorization"))
        found = await self._node.authenticate(token)
        if found is None:
            raise unauthorized(given=token is not None)
        if found == LOCAL:
            self._check_local(headers)
        return found

    def _check_local(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if not self._loopback or not is_loopback(_name(host)):
            raise _foreign_host(host)


def require(caller: Caller, right: Right, *, everywhere: bool = False) -> None:
    """Refuse a caller without the right; with `everywhere` also a caller that is limited to one scope.

    Raises:
        Problem: `forbidden`.
    """
    if right not in caller.rights:
        raise Problem("forbidden", f"a token with the right '{right}' is required")
    if everywhere and caller.scope is not None:
        raise Problem("forbidden", "a token without a scope is required")


def unauthorized(*, given: bool) -> Problem:
    """Return the problem for a token that is missing or invalid."""
    detail = "the token is not valid, or was revoked" if given else "send a token: Authorization: Bearer …"
    challenge = f'{_REALM}, error="invalid_token"' if given else _REALM
    return Problem("unauthorized", detail, headers={"WWW-Authenticate": challenge})


def _bearer(header: str | None) -> str | None:
    """Return the token of an Authorization header; "-", which matches no token, where the value cannot be one.

    Raises:
        Problem: `unauthorized`, for a header in another scheme.
    """
    if header is None:
        return None
    scheme, space, rest = header.partition(" ")
    if scheme.lower() != "bearer" or not space:
        raise unauthorized(given=False)
    token = rest.strip()
    return token if 0 < len(token) <= TOKEN_CHARS_MAX else "-"


# A name or an IP address with an optional port, and nothing else (no user part).
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?(?::\d{0,5})?", re.IGNORECASE | re.ASCII)


def _name(host: str) -> str:
    """Return the host of a Host header without port and trailing dot; empty if the header is malformed."""
    found = _HOST.fullmatch(host)
    return found[1] if found else ""


def _is_own(origin: str, host: str) -> bool:
    # Only name and port: behind a proxy that terminates TLS the scheme differs.
    scheme, mark, authority = origin.partition("://")
    return bool(mark) and scheme in {"http", "https"} and bool(host) and authority.lower() == host


def _is_foreign_resource(headers: Headers) -> bool:
    """Return whether a page of another site loads this as a resource (image, script).

    Following a link to a page is allowed; to the API it is not (`Access.check_own`).
    """
    return headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"


def _foreign_host(host: str) -> Problem:
    return Problem(
        "foreign-host", f"host {host[:200]!r} is not served; use the server's address, or add it to the setting 'hosts'"
    )
