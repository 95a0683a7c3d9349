"""Dead letters as clients see them: JSON objects for lists, one whole within bounds, and what is done with one."""

import base64
from typing import TYPE_CHECKING, Any

from facetline.facets import errors
from facetline.facets.documents import EventReason
from facetline.storage.db import json_rows
from facetline.storage.log import dead_letters
from facetline.storage.log.events import DeadLetter
from facetline.streams.replay import redrive as redriving

if TYPE_CHECKING:
    from facetline.storage.db.engine import Store
    from facetline.streams.pipeline import Pipeline

PAGE_MAX = 200
VALUE_BYTES_MAX = 256 * 1024
PART_BYTES_MAX = 8 * 1024
"""Of a key, and of a header's name or value."""
HEADERS_MAX = 100
ID_DIGITS_MAX = 10


def summary(letter: DeadLetter) -> dict[str, Any]:
    """Return a letter without its record."""
    at = letter.position
    return {
        "id": letter.id,
        "reason": letter.reason,
        "message": letter.message,
        "uri": letter.uri,
        "topic": at.topic,
        "incarnation": at.incarnation,
        "partition": at.partition,
        "offset": at.offset,
        "stage": letter.stage,
        "attempts": letter.attempts,
        "state": letter.state,
        "created_at": json_rows.timestamp(letter.created_ms),
        "handled_at": None if letter.handled_ms is None else json_rows.timestamp(letter.handled_ms),
        "handled_by": letter.handled_by,
    }


def shown(letter: DeadLetter) -> dict[str, Any]:
    """Return a letter with its record: each part as text where it is UTF-8, else in base64, within bounds."""
    headers = letter.raw.headers
    return {
        **summary(letter),
        "key": part(letter.raw.key, PART_BYTES_MAX),
        "value": part(letter.raw.value, VALUE_BYTES_MAX),
        "headers": [
            {"name": name[:PART_BYTES_MAX], **(part(value, PART_BYTES_MAX) or {})}
            for name, value in headers[:HEADERS_MAX]
        ],
        "headers_total": len(headers),
    }


def part(data: bytes | None, most: int) -> dict[str, Any] | None:
    """Return bytes as `encoding` (`utf-8` or `base64`), `data` (of the first `most` bytes), `bytes` and `truncated`."""
    if data is None:
        return None
    fields = {"bytes": len(data), "truncated": len(data) > most}
    try:
        data.decode()
    except UnicodeDecodeError:
        return {"encoding": "base64", "data": base64.b64encode(data[:most]).decode("ascii"), **fields}
    return {"encoding": "utf-8", "data": data[:most].decode(errors="ignore"), **fields}  # the cut may be in a character


async def page(store: "Store", *, reason: str | None, cursor: str | None, limit: int) -> dict[str, Any]:
    """Return waiting letters, the newest first, how many there are by reason, and where the next page begins.

    Raises:
        InvalidQuery: there is no such reason, or the limit is out of bounds.
        InvalidCursor: the cursor is none.
    """
    if reason is not None and reason not in set(EventReason):
        hint = errors.nearest(reason[:80], EventReason)
        raise errors.InvalidQuery(f"reason is {reason[:80]!r}{hint}; there is no such reason", allowed=EventReason)
    if not 1 <= limit <= PAGE_MAX:
        raise errors.InvalidQuery(f"limit is {limit}; it goes from 1 to {PAGE_MAX}")
    before = dead_letters.ID_MAX if cursor is None else number(cursor)
    if before is None:
        raise errors.InvalidCursor("the cursor is damaged; leave it out to start over")
    found = await store.read(
        dead_letters.listed, reason=reason, before=min(before, dead_letters.ID_MAX), limit=limit + 1
    )
    return {
        "dead_letters": [{**summary(each), "key": part(each.raw.key, PART_BYTES_MAX)} for each in found[:limit]],
        "counts": await store.read(dead_letters.counts),
        "next_cursor": str(found[limit - 1].id) if len(found) > limit else None,
    }


def number(text: str) -> int | None:
    """Return the number that an id or cursor is, None where it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= ID_DIGITS_MAX else None


async def one(store: "Store", letter_id: str) -> DeadLetter:
    """Return a letter by the id that a client sends.

    Raises:
        NotFound: there is none.
    """
    found = await store.read(dead_letters.get, number(letter_id) or 0)
    if found is None:
        raise errors.NotFound(f"there is no dead letter {letter_id[:80]!r}")
    return found


async def redrive(pipeline: "Pipeline", letter_id: str, by: str) -> dict[str, Any]:
    """Send a letter again and return its id, the outcome and that one's reason.

    Raises:
        NotFound: there is none.
        Conflict: it is closed, or stands for a record that cannot be sent.
    """
    letter = await one(pipeline.store, letter_id)
    (result,) = await redriving.redrive(pipeline, ids=[letter.id], reason=None, by=by)
    if result["outcome"] == "closed":
        state = (await one(pipeline.store, letter_id)).state
        raise errors.Conflict(f"dead letter {letter.id} is closed ({state}); only open letters are sent again")
    if result["outcome"] == "impossible":
        raise errors.Conflict(f"dead letter {letter.id} ({result['reason']}) cannot be sent again; discard it")
    return result


async def discard(store: "Store", letter_id: str, by: str) -> dict[str, Any]:
    """Discard a letter and return it; one that is discarded stays as it is.

    Raises:
        NotFound: there is none.
        Conflict: it was closed in another way.
    """
    letter = await one(store, letter_id)
    states = await redriving.discard(store, ids=[letter.id], reason=None, by=by)
    if states[letter.id] != "discarded":
        raise errors.Conflict(
            f"dead letter {letter.id} is closed ({states[letter.id]}); only open letters are discarded"
        )
    return summary(await one(store, letter_id))
