"""Sessions of signed-in visitors: the browser keeps a random name, the token stays on the server.

Sessions are kept in memory: after a restart, or on another server behind a load balancer, visitors sign in again. The
token is checked at each request, so that a revoked one stops working immediately.
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

COOKIE = "facetline_session"
LIFE_S = 12 * 3_600
# Sessions per token, some 300 bytes each: a further one replaces the token's oldest, never another token's.
SESSIONS_EACH_MAX = 20


@dataclass(frozen=True, slots=True)
class _Session:
    token: str
    ends: float


class Sessions:
    """Sessions by the hash of their name; `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_hash: OrderedDict[bytes, _Session] = OrderedDict()

    def open(self, token: str) -> str:
        """Open a session for a token and return its random name."""
        now = self._clock()
        while self._by_hash and next(iter(self._by_hash.values())).ends <= now:  # oldest first
            self._by_hash.popitem(last=False)
        of_token = [key for key, each in self._by_hash.items() if each.token == token]
        for key in of_token[: max(0, len(of_token) + 1 - SESSIONS_EACH_MAX)]:
            del self._by_hash[key]
        name = secrets.token_urlsafe(32)
        self._by_hash[_hash(name)] = _Session(token, now + LIFE_S)
        return name

    def token(self, name: str | None) -> str | None:
        """Return the token of a session; None if it is unknown or expired."""
        found = self._by_hash.get(_hash(name)) if name else None
        if name and found is not None and found.ends <= self._clock():
            self.close(name)
            return None
        return None if found is None else found.token

    def close(self, name: str | None) -> None:
        """Close a session."""
        if name:
            self._by_hash.pop(_hash(name), None)


class Forms:
    """CSRF tokens ("marks") of this process's forms, so that no other page can submit them.

    A mark belongs to one session. Without tokens all visitors on this machine share one: a foreign page still cannot
    read the mark, and is refused by its origin before that.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def mark(self, session: str | None) -> str:
        """Return the mark of a session's forms."""
        return hmac.new(self._key, (session or "").encode(), hashlib.sha256).hexdigest()

    def genuine(self, session: str | None, mark: str) -> bool:
        """Return whether the mark belongs to the session."""
        return hmac.compare_digest(self.mark(session).encode(), mark.encode(errors="replace"))


def _hash(name: str) -> bytes:
    # Looked up by hash, so that the lookup time reveals nothing about the names.
    return hashlib.sha256(name.encode(errors="replace")).digest()
