"""Dead letters: bytes intact, paged by id, sent again and marked only as they were read."""

from dataclasses import replace

import judged
import pytest

from facetline.storage.db import engine
from facetline.storage.log import apply, dead_letters
from facetline.storage.log.events import DeadLetter, Event, Raw

HARD = Raw(
    key=b"\x00\xff key",
    value=bytes(range(256)) * 20,
    headers=(("ce_id", b"1"), ("", b""), ("dup", b"a"), ("dup", b"\x00\xfe"), ("n\ud800\0", b"x")),
    timestamp_ms=2**52,
)


async def reject(store: engine.Store, *reasons: str) -> list[int]:
    """Append events that were rejected for these reasons; return the ids of all letters."""
    await store.write(
        apply.append, "local", [judged.refused(reason=reason, event_id=f"{n}") for n, reason in enumerate(reasons)]
    )
    return [letter.id for letter in await store.read(dead_letters.find)]


@pytest.mark.parametrize("raw", [HARD, Raw(None, None, (), None), Raw(b"", b"", (), 0)], ids=["hard", "null", "empty"])
async def test_bytes_come_back_as_they_came(store: engine.Store, raw: Raw):
    """Key, value and headers are kept byte for byte, order and repeated names too; null is not empty."""
    await store.write(apply.append, "local", [replace(judged.refused(), raw=raw)])

    [letter] = await store.read(dead_letters.find)
    assert letter.raw == raw
    assert await store.read(dead_letters.get, letter.id) == letter


async def test_letters_are_paged_by_id(store: engine.Store):
    """Pages follow one another without overlap, filtered by reason and by state."""
    ids = await reject(store, "not_json", "too_large", "not_json", "not_json")

    first = await store.read(dead_letters.find, reason="not_json", limit=2)
    second = await store.read(dead_letters.find, reason="not_json", after=first[-1].id, limit=2)

    assert [letter.id for letter in (*first, *second)] == [ids[0], ids[2], ids[3]]
    assert await store.read(dead_letters.find, states=("redriven",)) == []
    assert await store.read(dead_letters.counts) == {"not_json": 3, "too_large": 1}


async def test_a_letter_that_is_not_there_is_none(store: engine.Store):
    """An unknown id is told as such."""
    assert await store.read(dead_letters.get, 7) is None


async def test_a_letter_is_marked_redriven_only_as_it_was_read(store: engine.Store):
    """A mark that comes after the event's next rejection, or after its success, does not hide the outcome."""
    await reject(store, "not_json", "not_json")
    first, second = await store.read(dead_letters.find)
    await store.write(apply.append, "local", [_again(first), _again(second, mended=True)])

    marked = [await store.write(dead_letters.mark_redriven, letter) for letter in (first, second)]
    [fresh] = await store.read(dead_letters.find)
    marked_fresh = await store.write(dead_letters.mark_redriven, fresh)

    assert (marked, marked_fresh) == ([False, False], True)
    states = [(await store.read(dead_letters.get, letter.id)).state for letter in (first, second)]
    assert states == ["redriving", "redriven"]


def _again(letter: DeadLetter, *, mended: bool = False) -> Event:
    event = judged.write("tickets/a", "x", event_id="mended") if mended else judged.refused(event_id="again")
    return replace(event, position=letter.position, redriven=True)


async def test_unsent_letters_are_those_the_topic_does_not_have(store: engine.Store):
    """A sent letter leaves the list, in pages by id, and comes back when its event is rejected again."""
    ids = await reject(store, "not_json", "not_json", "not_json")
    page = await store.read(dead_letters.unsent, 2)
    sent = await store.write(dead_letters.mark_sent, page)
    rest = await store.read(dead_letters.unsent, 2)

    await store.write(apply.append, "local", [_again(page[0])])

    assert ([letter.id for letter in page], sent, [letter.id for letter in rest]) == (ids[:2], 2, ids[2:])
    unsent = await store.read(dead_letters.unsent)
    assert [(letter.id, letter.attempts) for letter in unsent] == [(ids[0], 2), (ids[2], 1)]


async def test_a_letter_rejected_again_while_it_was_sent_stays_unsent(store: engine.Store):
    """What was put on the topic is the old rejection; the new one still has to go."""
    await reject(store, "not_json")
    page = await store.read(dead_letters.unsent)
    await store.write(apply.append, "local", [_again(page[0])])

    assert await store.write(dead_letters.mark_sent, page) == 0
    assert await store.write(dead_letters.mark_sent, []) == 0
    assert [letter.attempts for letter in await store.read(dead_letters.unsent)] == [2]


async def test_discarded_letter_is_closed_for_good(store: engine.Store):
    """It leaves list and numbers, keeps its bytes and who closed it when, and stays so whatever comes of its event."""
    ids = await reject(store, "not_json", "not_json", "too_large")
    first, second, _ = await store.read(dead_letters.find)
    assert await store.write(dead_letters.mark_redriven, first, "alice")

    closed = await store.write(dead_letters.discard, ids[:2], "bob")
    again = await store.write(dead_letters.discard, [*ids[:2], 0, 2**31, 2**63], "carol")
    marked = await store.write(dead_letters.mark_redriven, second)
    await store.write(apply.append, "local", [_again(first, mended=True), _again(second)])

    assert (closed, again, marked) == (ids[:2], [], False)
    assert [letter.id for letter in await store.read(dead_letters.find)] == ids[2:]
    assert await store.read(dead_letters.counts) == {"too_large": 1}
    found = [await store.read(dead_letters.get, each) for each in ids[:2]]
    assert [(each.state, each.handled_by, each.raw) for each in found] == [
        ("discarded", "bob", first.raw),
        ("discarded", "bob", second.raw),
    ]
    assert all(each.created_ms <= each.handled_ms for each in found)
    assert found[1].attempts == 2


async def test_lists_are_small_in_both_directions(store: engine.Store):
    """Lists hold waiting letters alone, forwards or from the newest back, with a bounded key and no value."""
    large = replace(judged.refused(reason="not_json"), raw=Raw(b"k" * 5_000, b"v" * 100_000, (("h", b"x"),), 1))
    await store.write(apply.append, "local", [large])
    ids = await reject(store, "not_json", "too_large", "not_json")
    await store.write(dead_letters.discard, [ids[1]])

    forwards = await store.read(dead_letters.listed, after=ids[0], limit=2)
    newest = await store.read(dead_letters.listed, before=2**31 - 1, limit=2)
    rest = await store.read(dead_letters.listed, before=newest[-1].id, limit=2)
    of_reason = await store.read(dead_letters.listed, before=2**31 - 1, reason="not_json")

    assert [each.id for each in forwards] == [ids[2], ids[3]]
    assert [each.id for each in (*newest, *rest)] == [ids[3], ids[2], ids[0]]
    assert [each.id for each in of_reason] == [ids[3], ids[0]]
    assert rest[0].raw == Raw(b"k" * dead_letters.KEY_BYTES_MAX, None, (), 1)


@pytest.mark.parametrize("letter_id", [0, -1, 2**31, 2**63, 10**30])
async def test_a_number_that_no_letter_has_is_none(store: engine.Store, letter_id: int):
    """A number beyond what the database takes is not there, like any other, and no failure."""
    assert await store.read(dead_letters.get, letter_id) is None
