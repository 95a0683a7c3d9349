"""Sessions of people who signed in with a token: what the browser keeps is a random name, the token stays here.

Kept in the process: a restart, or another node behind a balancer, asks to sign in again. Each request still asks the
node whose token it is, so that one that was revoked is nobody's here as soon as it is anywhere.
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

COOKIE = "facetline_session"
LIFE_S = 12 * 3_600
# Sessions of one token, some 300 bytes each: one more takes the place of its oldest, never of another token's.
SESSIONS_EACH_MAX = 20


@dataclass(frozen=True, slots=True)
class _Session:
    token: str
    ends: float


class Sessions:
    """Sessions by the hash of their name; `clock` counts seconds and never goes back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_hash: OrderedDict[bytes, _Session] = OrderedDict()

    def open(self, token: str) -> str:
        """Keep a token and return the session's name, which nobody can guess."""
        now = self._clock()
        while self._by_hash and next(iter(self._by_hash.values())).ends <= now:  # in the order in which they began
            self._by_hash.popitem(last=False)
        of_token = [key for key, each in self._by_hash.items() if each.token == token]
        for key in of_token[: max(0, len(of_token) + 1 - SESSIONS_EACH_MAX)]:
            del self._by_hash[key]
        name = secrets.token_urlsafe(32)
        self._by_hash[_hash(name)] = _Session(token, now + LIFE_S)
        return name

    def token(self, name: str | None) -> str | None:
        """Return the token of a session; None when there is none, or it has ended."""
        found = self._by_hash.get(_hash(name)) if name else None
        if name and found is not None and found.ends <= self._clock():
            self.close(name)
            return None
        return None if found is None else found.token

    def close(self, name: str | None) -> None:
        """Forget a session."""
        if name:
            self._by_hash.pop(_hash(name), None)


class Forms:
    """Marks the forms of this process, so that no other page can send them.

    The mark belongs to one session. Without tokens everybody on this machine is one: a foreign page still cannot read
    the mark, and is refused by its origin before that.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def mark(self, session: str | None) -> str:
        """Return the mark of a session's forms."""
        return hmac.new(self._key, (session or "").encode(), hashlib.sha256).hexdigest()

    def genuine(self, session: str | None, mark: str) -> bool:
        """Say whether a form with this mark is of this session."""
        return hmac.compare_digest(self.mark(session).encode(), mark.encode(errors="replace"))


def _hash(name: str) -> bytes:
    # The map is looked up by a hash: how long that takes says nothing about the names in it.
    return hashlib.sha256(name.encode(errors="replace")).digest()
