"""Judged events for tests of the write side: what the wire layer would hand over."""

import hashlib
from dataclasses import replace
from typing import Any

from facetline.storage.db import json_rows
from facetline.storage.log.events import Batch, Content, Event, Position, Raw

TOPIC = "documents"


def write(
    uri: str,
    body: str | None = None,
    state: dict[str, Any] | None = None,
    *,
    offset: int = 0,
    event_id: str | None = None,
    unless_equal: bool = False,
) -> Event:
    """Return a valid write; without `event_id` its offset is its id."""
    content = Content(
        body=body,
        body_hash=None if body is None else hashlib.sha256(body.encode(errors="surrogatepass")).hexdigest(),
        blank=body is not None and not body.strip(),
        state=None if state is None else json_rows.dumps(state),
        deleted=False,
        unless_equal=unless_equal,
    )
    return _event(uri, content, offset, event_id)


def delete(uri: str, *, offset: int = 0, event_id: str | None = None) -> Event:
    """Return a valid delete."""
    content = Content(body=None, body_hash=None, blank=False, state=None, deleted=True, unless_equal=False)
    return _event(uri, content, offset, event_id)


def refused(uri: str | None = None, *, reason: str = "not_json", offset: int = 0, event_id: str | None = None) -> Event:
    """Return an event that the wire layer has rejected."""
    event = _event(uri or "tickets/none", None, offset, event_id)
    return replace(event, uri=uri, reason=reason, message="the value is not JSON")


def again(event: Event) -> Event:
    """Return the event as redrive sends it: with its original position."""
    return replace(event, redriven=True)


def batch(*events: Event, start: int | None = None, end: int | None = None, partition: int = 0) -> Batch:
    """Return a batch of events that lie one after another in the log; by default from the first one's offset."""
    first = events[0].position.offset if start is None else start
    offsets = tuple(range(first, first + len(events)))
    return Batch(
        topic=TOPIC,
        incarnation=1,
        partition=partition,
        start=first,
        end=first + len(events) if end is None else end,
        events=events,
        offsets=offsets,
        last_timestamp_ms=first + len(events),
        last_hash=f"h{first + len(events)}",
    )


def _event(uri: str, content: Content | None, offset: int, event_id: str | None) -> Event:
    collection, _, key = uri.rpartition("/")
    said = repr((uri, content and (content.body, content.state, content.deleted)))
    return Event(
        position=Position(TOPIC, 1, 0, offset),
        redriven=False,
        source="test",
        id=event_id or f"e{offset}",
        digest=hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest(),
        uri=uri,
        collection=collection,
        scope="",
        key=key,
        content=content,
        reason=None,
        message=None,
        stage="decode",
        raw=Raw(
            key=uri.encode(errors="surrogatepass"),
            value=b"\x00\xff",
            headers=(("h", b"1"), ("h", b"\xff")),
            timestamp_ms=7,
        ),
        traceparent=None,
    )
