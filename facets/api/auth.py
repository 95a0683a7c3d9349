"""Who may ask: hosts, origins, tokens and rights. What a token sees is the node's business.

A browser sends any page's requests to this server. So a request is answered only when no other site's page made it,
and, where everybody on this machine has all rights, only under a name of this machine that no other site can take.
"""

import re
from collections.abc import Collection

from starlette.datastructures import Headers

from facetline.facets.api.problems import Problem
from facetline.facets.backend import LOCAL, Backend, Caller, Right
from facetline.facets.loopback import is_loopback

_REALM = 'Bearer realm="facetline"'
TOKEN_CHARS_MAX = 512


class Access:
    """Judges requests by their headers.

    Args:
        node: What knows the tokens.
        loopback: The server listens on a loopback address.
        hosts: Names (with their port, if it is not the scheme's) that are answered for, beside those of this machine
            itself; empty: any.
        origins: Origins whose pages may read replies, such as `https://app.example`.
    """

    def __init__(
        self, node: Backend, *, loopback: bool, hosts: Collection[str] = (), origins: Collection[str] = ()
    ) -> None:
        self._node = node
        self._loopback = loopback
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origins)

    def allowed_origin(self, headers: Headers) -> str | None:
        """Return the request's origin if it is one whose pages may read replies."""
        origin = headers.get("origin")
        return origin if origin in self._origins else None

    async def check_site(self, headers: Headers) -> None:
        """Refuse requests under a foreign name, and those of foreign pages.

        Raises:
            Problem: `foreign-host` or `foreign-origin`.
        """
        host = headers.get("host", "").lower()
        if host and not _name(host):
            raise _foreign_host(host)
        # Commands on this machine ask it by its loopback address; no other site can take that name.
        if self._hosts and host not in self._hosts and not is_loopback(_name(host)):
            raise _foreign_host(host)
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins and not _is_own(origin, host):
            raise Problem("foreign-origin", f"pages of {origin[:200]!r} are not answered")
        if origin is None and _is_foreign_resource(headers):
            raise Problem("foreign-origin", "pages of other sites are not answered")

    @staticmethod
    def check_own(headers: Headers) -> None:
        """Refuse links and frames of other sites: who is nobody may be everybody here, and work costs.

        Raises:
            Problem: `foreign-origin`.
        """
        if headers.get("sec-fetch-site") == "cross-site" and "origin" not in headers:
            raise Problem("foreign-origin", "Cross-site navigation refused; open the URL directly")

    async def caller(self, headers: Headers) -> Caller:
        """Return who asks.

        Raises:
            Problem: `unauthorized` without a valid token, or with a header that holds none; `foreign-host` without any
                under a foreign name.
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
    """Refuse who does not have the right; with `everywhere` also who sees one scope only.

    Raises:
        Problem: `forbidden`.
    """
    if right not in caller.rights:
        raise Problem("forbidden", f"this needs a token with the right '{right}'")
    if everywhere and caller.scope is not None:
        raise Problem("forbidden", "this needs a token without a scope")


def unauthorized(*, given: bool) -> Problem:
    """Return the problem of a token that is missing or not valid."""
    detail = "the token is not valid, or was revoked" if given else "send a token: Authorization: Bearer …"
    challenge = f'{_REALM}, error="invalid_token"' if given else _REALM
    return Problem("unauthorized", detail, headers={"WWW-Authenticate": challenge})


def _bearer(header: str | None) -> str | None:
    """Return the token of an Authorization header; what cannot be one is a token that is nobody's.

    Raises:
        Problem: `unauthorized`, of a header in another scheme.
    """
    if header is None:
        return None
    scheme, space, rest = header.partition(" ")
    if scheme.lower() != "bearer" or not space:
        raise unauthorized(given=False)
    token = rest.strip()
    return token if 0 < len(token) <= TOKEN_CHARS_MAX else "-"


# A name or an address, and a port: nothing before it, as in a URL with a user, and nothing behind it.
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?(?::\d{0,5})?", re.IGNORECASE | re.ASCII)


def _name(host: str) -> str:
    """Return the host of a Host header without its port and the root's dot; empty when it is none."""
    found = _HOST.fullmatch(host)
    return found[1] if found else ""


def _is_own(origin: str, host: str) -> bool:
    # Only the name and port: behind a proxy that ends TLS the scheme is another one.
    scheme, mark, authority = origin.partition("://")
    return bool(mark) and scheme in {"http", "https"} and bool(host) and authority.lower() == host


def _is_foreign_resource(headers: Headers) -> bool:
    """Say whether a page of another site fetches this (an image, a script); following a link to a page of ours is no
    such thing, to the API it is (`Access.check_own`).
    """
    return headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"


def _foreign_host(host: str) -> Problem:
    return Problem("foreign-host", f"this server does not answer for host {host[:200]!r}")
