"""Publishing the feed to a topic: one elected sender, a position that never goes back, and what could not be sent.

Sending happens outside of any transaction: feed rows first, then `advance` from the position that they were read at.
A sender that dies in between sends them again, and readers find the same versions. A sender that lost its lease to
another, or whose position is not what it was, changes nothing.
"""

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from facetline.storage.db import engine, models

MESSAGE_CHARS_MAX = 1_000
WAIT_MAX_MS = 3_600_000
"""The longest wait before something that was set aside is tried again."""

_PUBLICATIONS = models.PUBLICATIONS
_ASIDE = models.SET_ASIDE
_P = _PUBLICATIONS.c
_A = _ASIDE.c


@dataclass(frozen=True, slots=True)
class SetAside:
    """A document whose record could not be sent: why the last time, how often, and when it is tried again."""

    uri: str
    message: str
    attempts: int
    due_ms: int


def elect(tx: engine.Tx, topic: str, owner: str, lease_ms: int) -> int | None:
    """Become or stay the sender for `lease_ms`; return the feed position, None while another one's lease runs."""
    insert = sqlite.insert(_PUBLICATIONS) if tx.dialect == "sqlite" else postgresql.insert(_PUBLICATIONS)
    tx.execute(insert.on_conflict_do_nothing(), {"topic": topic, "feed_position": 0})
    # A lease that ends later than ours would is of before the clock went back: all have one length.
    over = sa.or_(_P.lease_until_ms <= tx.now_ms, _P.lease_until_ms > tx.now_ms + lease_ms)
    free = sa.or_(_P.owner.is_(None), _P.owner == owner, over)
    elected = sa.update(_PUBLICATIONS).where(_P.topic == topic, free)
    leased = elected.values(owner=owner, lease_until_ms=tx.now_ms + lease_ms).returning(_P.feed_position)
    position = tx.execute(leased).scalar_one_or_none()
    return None if position is None else int(position)


def resign(tx: engine.Tx, topic: str, owner: str) -> None:
    """End the lease now, so that another process goes on at once."""
    ours = sa.update(_PUBLICATIONS).where(_P.topic == topic, _P.owner == owner)
    tx.execute(ours.values(owner=None, lease_until_ms=None))


def advance(tx: engine.Tx, topic: str, owner: str, position: int, *, start: int) -> bool:
    """Record that everything after `start` and up to `position` was sent; False, and no change, when it is not so.

    It is not when another is the sender by now, or when the recorded position is not `start` any more: the store was
    restored meanwhile, or someone else has sent.
    """
    ours = sa.update(_PUBLICATIONS).where(_P.topic == topic, _P.owner == owner, _P.feed_position == start)
    return tx.execute(ours.values(feed_position=max(start, position)).returning(_P.topic)).first() is not None


def own_position(tx: engine.Tx, topic: str, owner: str) -> int | None:
    """Return how far the feed has been sent; None when another is the sender by now."""
    ours = sa.select(_P.feed_position).where(_P.topic == topic, _P.owner == owner)
    return tx.execute(ours).scalar_one_or_none()


def position(tx: engine.Tx, topic: str) -> int:
    """Return how far the feed has been sent; 0 before the first time."""
    return known_position(tx, topic) or 0


def known_position(tx: engine.Tx, topic: str) -> int | None:
    """Return how far the feed has been sent; None while no publisher ever was elected."""
    return tx.execute(sa.select(_P.feed_position).where(_P.topic == topic)).scalar_one_or_none()


def set_aside(tx: engine.Tx, topic: str, uri: str, message: str, delay_ms: int) -> int:
    """Keep a document whose record could not be sent, to be tried again alone; return the attempts so far."""
    insert = sqlite.insert(_ASIDE) if tx.dialect == "sqlite" else postgresql.insert(_ASIDE)
    again = {"message": insert.excluded.message, "due_ms": insert.excluded.due_ms, "attempts": _A.attempts + 1}
    upsert = insert.on_conflict_do_update(index_elements=["topic", "uri"], set_=again).returning(_A.attempts)
    text = message[:MESSAGE_CHARS_MAX].encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
    row = {"topic": topic, "uri": uri, "message": text, "attempts": 1, "due_ms": tx.now_ms + delay_ms}
    return int(tx.execute(upsert, row).scalar_one())


def due_again(tx: engine.Tx, topic: str, limit: int, *, wait_max_ms: int = WAIT_MAX_MS) -> list[SetAside]:
    """Return what was set aside and is due to be tried again, longest due first.

    What lies further ahead than `wait_max_ms` was set aside before the clock went back, and is due as well.
    """
    due = sa.or_(_A.due_ms <= tx.now_ms, _A.due_ms > tx.now_ms + wait_max_ms)
    query = sa.select(_A.uri, _A.message, _A.attempts, _A.due_ms).where(_A.topic == topic, due)
    return [SetAside(*tuple(row)) for row in tx.execute(query.order_by(_A.due_ms, _A.uri).limit(limit))]


def clear(tx: engine.Tx, topic: str, uris: Collection[str]) -> None:
    """Forget what was set aside: it, or a newer record of the document, has been sent."""
    if uris:
        tx.execute(sa.delete(_ASIDE).where(_A.topic == topic, _A.uri.in_(sorted(uris))))
