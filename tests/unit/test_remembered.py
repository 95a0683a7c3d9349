"""What is remembered of searches: of one state, bounded in bytes and entries."""

import pytest

from facetline.facets.view.result_cache import ENTRIES_MAX, Found, Remembered


def found(characters: int = 0) -> Found:
    """Return something that takes twice as many bytes, and some."""
    return Found([("x" * characters,)], [], "token")


def test_only_the_same_question_in_the_same_state_finds_it() -> None:
    """What was kept is found by its question as long as the state is the same."""
    remembered, kept = Remembered(), found()

    remembered.keep(3, "a", kept)

    assert remembered.find(3, "a") is kept
    assert remembered.find(3, "b") is None
    assert remembered.find(4, "a") is None
    assert remembered.find(2, "a") is None


def test_a_newer_state_forgets_the_older() -> None:
    """The first thing kept of a newer state drops everything older, and an older one is not kept any more."""
    remembered = Remembered()
    remembered.keep(3, "a", found())

    remembered.keep(4, "b", found())
    remembered.keep(3, "c", found())

    assert remembered.find(3, "a") is None
    assert remembered.find(3, "c") is None
    assert remembered.find(4, "b") is not None
    assert len(remembered._entries) == 1


@pytest.mark.parametrize(("characters", "kept"), [(100, 8), (1_000_000, 0)])
def test_bytes_are_bounded(characters: int, kept: int) -> None:
    """The oldest makes room; what takes a large part of all the room is not kept at all."""
    remembered = Remembered(bytes_max=8 * found(100).size)

    for number in range(50):
        remembered.keep(1, number, found(characters))

    assert [n for n in range(50) if remembered.find(1, n)] == list(range(50 - kept, 50))


def test_entries_are_bounded() -> None:
    """However small they are, there are no more than so many."""
    remembered = Remembered()

    for number in range(ENTRIES_MAX + 10):
        remembered.keep(1, number, Found([], [], ""))

    assert len(remembered._entries) == ENTRIES_MAX
    assert remembered.find(1, 9) is None
    assert remembered.find(1, ENTRIES_MAX + 9) is not None
