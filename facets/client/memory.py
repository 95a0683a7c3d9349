"""Tokens that a client remembers, so that it reads its own writes and never an older state than it has seen.

It keeps the newest token of each of the last 15 documents that it wrote or read, and of each collection that it
searched. They are meaningless for another store: `forget`.
"""

import threading
import urllib.parse
from collections import OrderedDict
from typing import Any

from facetline.facets import errors, loopback

WRITES_MAX = 15
"""Together with the collection's token these are as many as one request may have."""
COLLECTIONS_MAX = 256


class Memory:
    """Remembered tokens; thread-safe."""

    def __init__(self, *, on: bool) -> None:
        self._on = on
        self._lock = threading.Lock()
        self._writes: OrderedDict[str, str] = OrderedDict()
        self._searches: OrderedDict[str, str] = OrderedDict()

    def written(self, uri: str, reply: dict[str, Any]) -> dict[str, Any]:
        """Remember the token of a reply about one document, and return the reply."""
        self._keep(self._writes, uri, reply.get("token"), WRITES_MAX)
        return reply

    def found(self, collection: str, reply: dict[str, Any]) -> dict[str, Any]:
        """Remember the token of a search's reply, and return the reply."""
        self._keep(self._searches, collection, reply["as_of"]["token"], COLLECTIONS_MAX)
        return reply

    def for_search(self, collection: str) -> list[str]:
        """Return the tokens that a search must include."""
        with self._lock:
            own = self._searches.get(collection)
            return [*([own] if own else []), *self._writes.values()]

    def params_of(self, uri: str) -> tuple[tuple[str, str], ...]:
        """Return the token for reading a document, as URL parameters."""
        with self._lock:
            token = self._writes.get(uri)
            return (("at_least", token),) if token else ()

    def forget(self) -> bool:
        """Forget all tokens; return whether there were any."""
        with self._lock:
            had = bool(self._writes or self._searches)
            self._writes.clear()
            self._searches.clear()
            return had

    def _keep(self, tokens: OrderedDict[str, str], name: str, token: object, most: int) -> None:
        if not self._on or not isinstance(token, str):
            return
        with self._lock:
            tokens[name] = token
            tokens.move_to_end(name)
            if len(tokens) > most:
                tokens.popitem(last=False)


def base_url(url: str) -> str:
    """Return a server's URL without a trailing slash.

    Raises:
        InvalidSettings: it is not an http(s) URL, or contains credentials, a query or a fragment.
    """
    try:
        parts = urllib.parse.urlsplit(url.strip())
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise errors.InvalidSettings(f"{url[:80]!r} is not a server URL; use one like http://127.0.0.1:8080")
    if "@" in parts.netloc:
        raise errors.InvalidSettings("the URL contains a user name or password; pass the token as parameter 'token'")
    if parts.query or parts.fragment:
        raise errors.InvalidSettings(f"{url[:80]!r} has a query or fragment; remove what follows '?' or '#'")
    return url.strip().rstrip("/")


def is_loopback(url: str) -> bool:
    """Return whether a URL is this machine, for which no proxy is used."""
    return loopback.is_loopback(urllib.parse.urlsplit(url).hostname or "")
