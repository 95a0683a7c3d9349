"""The HTTP client that asks model servers: one pooled session a loop, one request a call, and a bound on every reply.

Nothing is retried and no redirect is followed: status, headers and body go to the caller as they came. A reply is read
up to a number of bytes, decompressed bytes included; beyond it the connection is closed. Proxies are those of the
environment (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`), and certificates are checked as litellm does.
"""

import asyncio
import urllib.request
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from facetline.evaluators.litellm_adapter.reply_bound import Reading

if TYPE_CHECKING:
    import aiohttp

KEEP_ALIVE_S = 15.0
"""How long an unused connection is kept: servers and balancers close theirs after 20 seconds or more, and a request
that meets a closing connection is lost."""

PROXIES_KEPT = 256
"""Origins whose proxy is remembered; more of them are looked up again."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A reply as it came; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str


_sessions: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession]" = weakref.WeakKeyDictionary()
_proxies: dict[tuple[str, str], str | None] = {}


async def post(url: str, *, headers: Mapping[str, str], data: bytes, reply_bytes_max: int) -> HttpReply:
    """Send one request and return the reply.

    Raises:
        ReplyTooLong: it is longer than `reply_bytes_max`.
        InvalidAnswer: it is compressed in a way that was not asked for.
        aiohttp.ClientError: the server was not reached, or the connection broke.
    """
    session = _session()
    # Replies are small, and what is not compressed cannot expand.
    sent = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "facetline", **headers}
    async with session.post(url, data=data, headers=sent, allow_redirects=False, proxy=_proxy(url)) as response:
        fields = {name.lower(): value for name, value in response.headers.items()}
        is_read = response.status < 300 or response.status >= 400  # noqa: PLR2004 (what a redirect says is not needed)
        try:
            body = await _body(response, reply_bytes_max) if is_read else b""
        except BaseException:
            response.close()  # the rest of it must not be read for the next request's sake
            raise
        if not is_read:
            response.close()
        return HttpReply(response.status, fields, body, url)


async def close() -> None:
    """Close this loop's connections; later requests open new ones."""
    session = _sessions.pop(asyncio.get_running_loop(), None)
    if session is not None:
        await session.close()


def _session() -> "aiohttp.ClientSession":
    loop = asyncio.get_running_loop()
    session = _sessions.get(loop)
    if session is None or session.closed:
        import aiohttp

        session = _sessions[loop] = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ssl=_verification()),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # the caller's clock bounds the whole call
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,  # bounded below
        )
    return session


def _verification() -> Any:
    """Return how certificates are checked: `SSL_VERIFY`, `SSL_CERT_FILE` and `REQUESTS_CA_BUNDLE` as litellm has it."""
    from litellm.llms.custom_httpx import http_handler

    return http_handler.get_ssl_configuration()


def _proxy(url: str) -> str | None:
    parts = urlsplit(url)
    origin = parts.scheme, parts.netloc
    if origin not in _proxies:
        if len(_proxies) >= PROXIES_KEPT:
            _proxies.clear()
        known = urllib.request.getproxies()
        bypassed = urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2])
        _proxies[origin] = None if bypassed else known.get(parts.scheme) or known.get("all")
    return _proxies[origin]


async def _body(response: "aiohttp.ClientResponse", bytes_max: int) -> bytes:
    reading = Reading(response.headers.get("Content-Encoding", ""), response.content_length, bytes_max)
    found = bytearray()
    async for piece in response.content.iter_any():
        found += reading.take(piece)
    return bytes(found)
