"""Consistency tokens: what a write or a search hands out, so that a later reader can ask for at least that much.

Opaque to everybody else. A write's token names the document's version (or the event, while it is not applied); a
search's token names the feed's position, or how many changes of its one scope it knew. All name the store: positions
and versions of another one mean nothing.
"""

import base64
import binascii
import json
from dataclasses import dataclass

from facetline.facets import errors

CHARS_MAX = 16 * 1024
"""Above what two ids of 512 bytes need, each byte with an escape of six."""


@dataclass(frozen=True, slots=True)
class WriteToken:
    """At least this version of this document."""

    store_id: str
    uri: str
    version: int


@dataclass(frozen=True, slots=True)
class FeedToken:
    """At least this far along the feed."""

    store_id: str
    position: int


@dataclass(frozen=True, slots=True)
class ScopeToken:
    """At least so many changes of this scope of a collection; unlike the feed's position it reveals no other."""

    store_id: str
    collection: str
    scope: str
    changes: int


@dataclass(frozen=True, slots=True)
class EventToken:
    """At least what this event did: the write was sent, and not yet applied when its writer was answered."""

    store_id: str
    source: str
    event_id: str


Token = WriteToken | FeedToken | ScopeToken | EventToken


def encode(token: Token) -> str:
    """Return the token's text, safe in a URL."""
    parts: list[str | int]
    match token:
        case WriteToken(store_id, uri, version):
            parts = [store_id, uri, version]
        case FeedToken(store_id, position):
            parts = [store_id, position]
        case ScopeToken(store_id, collection, scope, changes):
            parts = [store_id, collection, scope, changes]
        case EventToken(store_id, source, event_id):
            parts = [store_id, source, event_id]
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(text: str) -> Token:
    """Return what a token's text says.

    Raises:
        InvalidCursor: the text is no token of ours.
    """
    if len(text) > CHARS_MAX:
        raise _damaged(text)
    try:
        parts = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise _damaged(text) from error
    match parts:
        case [str(store_id), str(uri), int(version)]:
            return WriteToken(store_id, uri, version)
        case [str(store_id), int(position)]:
            return FeedToken(store_id, position)
        case [str(store_id), str(collection), str(scope), int(changes)]:
            return ScopeToken(store_id, collection, scope, changes)
        case [str(store_id), str(source), str(event_id)]:
            return EventToken(store_id, source, event_id)
    raise _damaged(text)


def _damaged(text: str) -> errors.InvalidCursor:
    return errors.InvalidCursor(f"token {text[:40]!r} is damaged; pass one that a reply gave you")
