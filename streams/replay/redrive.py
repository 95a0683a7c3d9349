"""Dead letters sent again, to the same log, with their ids and original positions, or discarded.

What becomes of one is decided where events are applied: it is applied, closed as superseded when its document has
taken a later event, or rejected once more.
"""

from collections.abc import Sequence
from typing import Any

from facetline.facets import errors
from facetline.facets.definitions import Definitions
from facetline.storage.db.engine import Store
from facetline.storage.log import dead_letters, events
from facetline.streams.pipeline import Pipeline
from facetline.streams.wire import codec as wire
from facetline.streams.wire.outgoing import Sent

IMPOSSIBLE = ("log_truncated", "undecodable")
"""Reasons of letters that stand for records which no longer exist, or never were such."""
CHUNK = 100
COMMAND = "command"
"""What letters name as who handled them when a command did."""
Going = tuple[events.DeadLetter, Sent]


async def redrive(
    pipeline: Pipeline, *, ids: Sequence[int], reason: str | None, by: str = COMMAND
) -> list[dict[str, Any]]:
    """Send letters again: those with these ids, or all with this reason. Returns id, outcome and reason of each.

    The outcome is `sent` where a worker will apply the event. `by`: the credential that the letters are marked with.

    Raises:
        NotFound: an id is not that of a dead letter.
    """
    active = await pipeline.definitions()
    results = []
    if reason is None:
        letters = [await find(pipeline.store, letter_id) for letter_id in ids]
        for start in range(0, len(letters), CHUNK):
            results.extend(await _send(pipeline, active, letters[start : start + CHUNK], by))
        return results
    after = 0
    while letters := await pipeline.store.read(dead_letters.find, reason=reason, after=after, limit=CHUNK):
        after = letters[-1].id
        results.extend(await _send(pipeline, active, letters, by))
    return results


async def discard(store: Store, *, ids: Sequence[int], reason: str | None, by: str = COMMAND) -> dict[int, str]:
    """Close letters permanently without sending them: those with these ids, or all with this reason.

    Returns by id the state that the letter is in: `discarded`, or that in which it was closed before.

    Raises:
        NotFound: an id is not that of a dead letter.
    """
    states: dict[int, str] = {}
    if reason is None:
        for letter_id in ids:
            await find(store, letter_id)  # all are there before the first is closed
        for letter_id in ids:
            await store.write(dead_letters.discard, [letter_id], by)
            states[letter_id] = (await find(store, letter_id)).state
        return states
    after = 0
    while letters := await store.read(dead_letters.listed, reason=reason, after=after, limit=CHUNK):
        after = letters[-1].id
        closed = await store.write(dead_letters.discard, [each.id for each in letters], by)
        states.update(dict.fromkeys(closed, "discarded"))
    return states


async def find(store: Store, letter_id: int) -> events.DeadLetter:
    """Return a letter.

    Raises:
        NotFound: there is none with this id.
    """
    found = await store.read(dead_letters.get, letter_id)
    if found is None:
        raise errors.NotFound(f"there is no dead letter {letter_id}; list them with 'facetline dlq list'")
    return found


async def _send(
    pipeline: Pipeline, active: Definitions, letters: Sequence[events.DeadLetter], by: str
) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    going: list[Going] = []
    for letter in letters:
        if letter.reason in IMPOSSIBLE:
            results.append({"id": letter.id, "outcome": "impossible", "reason": letter.reason})
        elif await pipeline.store.write(dead_letters.mark_redriven, letter, by):
            going.append((letter, _again(letter, active)))
        else:
            results.append({"id": letter.id, "outcome": "closed", "reason": letter.reason})
    try:
        return results + await _appended(pipeline, going)
    except errors.InvalidEvent:  # one of them cannot be sent; what was sent beside it may be sent twice
        for one in going:
            results += await _alone(pipeline, one)
        return results


async def _alone(pipeline: Pipeline, one: Going) -> list[dict[str, Any]]:
    try:
        return await _appended(pipeline, [one])
    except errors.InvalidEvent as refused:
        return [{"id": one[0].id, "outcome": "impossible", "reason": refused.reason}]


async def _appended(pipeline: Pipeline, going: Sequence[Going]) -> list[dict[str, Any]]:
    outcomes = await pipeline.append([sent for _, sent in going])
    results = []
    for place, (letter, _) in enumerate(going):
        outcome = outcomes[place] if outcomes is not None else None
        message = "sent" if outcome is None else outcome.outcome
        results.append({"id": letter.id, "outcome": message, "reason": outcome.reason if outcome else None})
    return results


def _again(letter: events.DeadLetter, active: Definitions) -> Sent:
    message = wire.redrive(letter)
    raw = events.Raw(message.key, message.value, message.headers, None)
    return Sent(message, wire.decode(raw, letter.position, active))
