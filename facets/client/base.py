"""Base of both clients: URL, token, remembered tokens of writes, and the conversion of calls to httpx requests."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import httpx

from facetline.facets.client import calls
from facetline.facets.client.calls import Call, Lost, Patience, Reply
from facetline.facets.client.memory import Memory, base_url

Facets = Mapping[str, str | bool | int | Sequence[str | bool | int]]
Wait = Literal["none", "applied", "answered"]
TIMEOUT_S = 30.0
CONNECT_S = 5.0
MARGIN_S = 10.0
"""Time for an answer in addition to the requested waiting time."""
TOKENS_MAX = 16
"""Maximum number of tokens in one request."""
JOB_POLL_S = 1.0
ENDED = frozenset({"succeeded", "failed", "canceled"})


class Common:
    """Common state of both clients; the token is only in the headers and never shown."""

    def __init__(self, url: str, token: str | None, timeout_s: float, *, remembers: bool) -> None:
        self.url = base_url(url)
        self._timeout_s = timeout_s
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.memory = Memory(on=remembers)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def patience(self, call: Call) -> Patience:
        """Return the retry budget of a call, starting now."""
        return Patience(self._timeout_s + call.wait_s, time.monotonic())

    def request(self, call: Call) -> dict[str, Any]:
        """Return the arguments of httpx's `request`."""
        timeout = httpx.Timeout(call.wait_s + MARGIN_S, connect=CONNECT_S)
        headers = {**self._headers, **call.headers}
        address = self.url + call.path
        return {
            "method": call.method,
            "url": address,
            "params": list(call.params) or None,
            "content": call.body,
            "headers": headers,
            "timeout": timeout,
        }

    def lost(self, error: httpx.TransportError) -> Lost:
        """Return a `Lost` for a transport error."""
        return Lost(f"{self.url} does not answer ({type(error).__name__}); is 'facetline serve' running there?")

    def searching(
        self, collection: str, facets: Facets | None, options: Mapping[str, Any], *, remembered: bool = True
    ) -> Call:
        """Return a search that includes this client's earlier writes and reads, unless `remembered` is False."""
        given = dict(options)
        own = self.memory.for_search(collection) if remembered else ()
        tokens = dict.fromkeys([*(given.pop("at_least", None) or ()), *own])
        return calls.search(collection, facets, {**given, "at_least": list(tokens)[:TOKENS_MAX] or None})

    def over_texts(
        self,
        collection: str,
        what: str,
        pattern: str | None,
        facets: Facets | None,
        options: Mapping[str, Any],
    ) -> Call:
        """Return a `grep` or `glob` that includes this client's earlier writes and reads."""
        given = dict(options)
        tokens = dict.fromkeys([*(given.pop("at_least", None) or ()), *self.memory.for_search(collection)])
        return calls.of_texts(collection, what, pattern, facets, {**given, "at_least": list(tokens)[:TOKENS_MAX]})


def made(reply: httpx.Response) -> Reply:
    """Return a `Reply` from httpx's response."""
    return Reply(reply.status_code, reply.headers, reply.content)


def reindex(collection: str, key: str, options: Mapping[str, Any]) -> Call:
    """Return the start of a job."""
    body = calls.encoded(options)
    return Call("POST", f"/v1/collections/{calls.part(collection)}/reindex", body=body, key=key)


def job(job_id: str) -> Call:
    """Return the request for a job."""
    return Call("GET", f"/v1/jobs/{calls.part(job_id)}")


def items(job_id: str, status: str, cursor: str | None) -> Call:
    """Return a page of a job's documents."""
    params = [("status", status), *([("cursor", cursor)] if cursor else [])]
    return Call("GET", f"/v1/jobs/{calls.part(job_id)}/items", tuple(params))


def dead_letters(reason: str | None, cursor: str | None) -> Call:
    """Return a page of dead letters."""
    given = {"reason": reason, "cursor": cursor}
    return Call("GET", "/v1/dead-letters", tuple((name, value) for name, value in given.items() if value))


def dead_letter(letter_id: int, action: str = "") -> Call:
    """Return the request for one dead letter, or for an action on it: `redrive` or `discard`."""
    path = f"/v1/dead-letters/{int(letter_id)}"
    return Call("POST", f"{path}/{action}") if action else Call("GET", path)


def sql(
    text: str, params: Mapping[str, Any] | None, limit: int, timeout_ms: int, *, agents: bool, fields: str | None
) -> Call:
    """Return a statement."""
    content = {"sql": text, "params": dict(params or {}), "limit": limit, "timeout_ms": timeout_ms}
    body = calls.encoded({**content, "agents": True if agents else None, "fields": fields})
    return Call("POST", "/v1/sql", body=body, wait_s=timeout_ms / 1_000)
