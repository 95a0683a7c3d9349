"""Splits a text into words: one function for documents and queries, in every script.

A text is compatibility-composed (NFKC), case-folded and freed of accents; words are its runs of letters and digits.
Scripts that are written without spaces (Han, kana, Hangul, Thai, Lao, Burmese, Khmer) become overlapping pairs of
characters, a single character stays; a symbol such as an emoji is a word. `folded` gives the words joined by blanks;
for a text in ASCII this is what `lower` and `FOLDED_WORD` give, so that DuckDB can split those itself.
"""

import functools
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

WORD_CHARS_MAX = 64
"""What follows in a longer run (a hash, encoded data) is left out of its word."""
FOLDED_WORD = r"[0-9a-z\x{80}-\x{10FFFF}]+"
"""A word of a folded text, as a regular expression of RE2."""

_ASCII_WORD = re.compile(r"[0-9a-z]+")
# Written without spaces. In pairs they are found by any part of two characters.
_PAIRED = (
    "\u0e00-\u0e7f"  # Thai
    "\u0e80-\u0eff"  # Lao
    "\u1000-\u109f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff"  # kana, and the marks that repeat
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\uac00-\ud7a3"  # Hangul
)
# Accents and vowel points that writers leave out at will: Latin, Greek, Cyrillic; Hebrew; Arabic.
_DROPPED = re.compile("[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u0652\u0670\u0640]")


@dataclass(frozen=True, slots=True)
class Span:
    """A word and where it stands in the text as it was given, in code points."""

    word: str
    start: int
    end: int


def words(text: str) -> list[str]:
    """Return the words of a text, in order."""
    if text.isascii():
        return [word[:WORD_CHARS_MAX] for word in _ASCII_WORD.findall(text.lower())]
    return [word for run in _runs().finditer(_fold(text)) for word, _, _ in _of_run(run)]


def folded(text: str) -> str | None:
    """Return the words joined by blanks; None where lower case alone gives the same words (ASCII)."""
    return None if text.isascii() else " ".join(words(text))


def spans(text: str) -> Iterator[Span]:
    """Yield the words of a text with their places in it."""
    if text.isascii():
        for found in _ASCII_WORD.finditer(text.lower()):
            yield Span(found[0][:WORD_CHARS_MAX], found.start(), found.end())
        return
    plain, places = _folded_with_places(text)
    for run in _runs().finditer(plain):
        for word, start, end in _of_run(run):
            yield Span(word, places[start][0], places[end - 1][1])


def _fold(text: str) -> str:
    split = _DROPPED.sub("", unicodedata.normalize("NFKD", text).casefold())
    # Case folding may give what is not composed, and composition is what keeps Hangul's syllables whole.
    return unicodedata.normalize("NFKC", _DROPPED.sub("", unicodedata.normalize("NFKD", split)))


def _folded_with_places(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the folded text, and for each of its characters start and end of what it comes from."""
    plain: list[str] = []
    places: list[tuple[int, int]] = []
    for start, end in _clusters(text):
        part = _fold(text[start:end])
        plain.append(part)
        places += [(start, end)] * len(part)
    return "".join(plain), places


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """Yield a base character and what combines with it: they are composed together."""
    start = 0
    for place in range(1, len(text) + 1):
        if place == len(text) or not (unicodedata.combining(text[place]) or _is_jamo(text[place])):
            yield start, place
            start = place


def _is_jamo(character: str) -> bool:
    return "\u1160" <= character <= "\u11ff"


@functools.cache
def _runs() -> re.Pattern[str]:
    marks = _ranges([code for code in range(0x300, 0x10000) if unicodedata.category(chr(code)) in {"Mn", "Mc"}])
    symbols = _ranges([code for code in range(0x2190, 0x1FB00) if unicodedata.category(chr(code)) == "So"])
    return re.compile(f"(?P<paired>[{_PAIRED}]+)|(?:(?![{_PAIRED}])[^\\W_][{marks}]*)+|[{symbols}]")


def _ranges(codes: list[int]) -> str:
    found: list[list[int]] = []
    for code in codes:
        if found and code == found[-1][1] + 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in found)


def _of_run(run: re.Match[str]) -> Iterator[tuple[str, int, int]]:
    text, start = run[0], run.start()
    if run["paired"] is None:
        yield text[:WORD_CHARS_MAX], start, run.end()
        return
    for place in range(max(1, len(text) - 1)):
        pair = text[place : place + 2]
        yield pair, start + place, start + place + len(pair)
