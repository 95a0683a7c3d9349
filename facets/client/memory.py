"""What a client remembers, so that it reads its own writes and never an older state than it has seen.

Of each document it wrote or read the newest token, of the last 15 of them, and of each collection it searched how far
that was. Where the store is another one, none of it means anything: `forget`.
"""

import threading
import urllib.parse
from collections import OrderedDict
from typing import Any

from facetline.facets import errors, loopback

WRITES_MAX = 15
"""With a collection's own, as many tokens as one request may carry."""
COLLECTIONS_MAX = 256


class Memory:
    """Tokens; threads may share it."""

    def __init__(self, *, on: bool) -> None:
        self._on = on
        self._lock = threading.Lock()
        self._writes: OrderedDict[str, str] = OrderedDict()
        self._searches: OrderedDict[str, str] = OrderedDict()

    def written(self, uri: str, reply: dict[str, Any]) -> dict[str, Any]:
        """Remember what a reply about one document says, and return it."""
        self._keep(self._writes, uri, reply.get("token"), WRITES_MAX)
        return reply

    def found(self, collection: str, reply: dict[str, Any]) -> dict[str, Any]:
        """Remember how far a search's reply was, and return it."""
        self._keep(self._searches, collection, reply["as_of"]["token"], COLLECTIONS_MAX)
        return reply

    def for_search(self, collection: str) -> list[str]:
        """Return what a search must know."""
        with self._lock:
            own = self._searches.get(collection)
            return [*([own] if own else []), *self._writes.values()]

    def params_of(self, uri: str) -> tuple[tuple[str, str], ...]:
        """Return what a document's reader must know, as parameters of its address."""
        with self._lock:
            token = self._writes.get(uri)
            return (("at_least", token),) if token else ()

    def forget(self) -> bool:
        """Forget everything; say whether there was anything."""
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
    """Return a server's address without a slash at its end.

    Raises:
        InvalidSettings: it is none, or holds a name and password.
    """
    try:
        parts = urllib.parse.urlsplit(url.strip())
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise errors.InvalidSettings(f"{url[:80]!r} is no address of a server; give one like http://127.0.0.1:8080")
    if "@" in parts.netloc:
        raise errors.InvalidSettings("the address holds a name or password; give the token by the parameter 'token'")
    if parts.query or parts.fragment:
        raise errors.InvalidSettings(f"{url[:80]!r} has more than an address; leave out what follows '?' or '#'")
    return url.strip().rstrip("/")


def is_loopback(url: str) -> bool:
    """Say whether an address is this machine: then no proxy is asked."""
    return loopback.is_loopback(urllib.parse.urlsplit(url).hostname or "")
