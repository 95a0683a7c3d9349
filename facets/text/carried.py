"""What a cursor carries of a text search, so that later pages have the scores of the first one.

Documents are written between two pages: with the statistics and the expanded words of the first page the score of what
has not changed stays the same, so nothing of it repeats or is passed over.
"""

from typing import Any, NamedTuple

_PAIR = 2


class Carried(NamedTuple):
    """The reader's texts, their words, the texts with each word, and what each word stands for (with tenths)."""

    texts: int
    words: int
    with_word: tuple[int, ...]
    expanded: tuple[tuple[tuple[tuple[str, int], ...], str | None], ...]


def from_json(value: Any) -> Carried | None:
    """Return what was carried; None where it is not what a cursor carries."""
    try:
        texts, words, with_word, expanded = value
        found = Carried(
            _whole(texts),
            _whole(words),
            tuple(map(_whole, with_word)),
            tuple((tuple(map(_word, listed)), _text_or_none(corrected)) for listed, corrected in expanded),
        )
    except (TypeError, ValueError):
        return None
    return found if len(found.with_word) == len(found.expanded) else None


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise ValueError
    return value


def _word(value: Any) -> tuple[str, int]:
    word, tenths = value
    if not isinstance(word, str):
        raise TypeError
    word.encode()
    return word, _whole(tenths)


def _text_or_none(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError
    return value
