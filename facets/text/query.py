"""A text query as typed: words, phrases and what is excluded. Nothing a person types is a syntax error.

Syntax is only `"a phrase"`, `-word`, `-"a phrase"` and `word*`; everything else is text. A token with punctuation
inside, such as `ORD-48213377` or `config.yaml`, needs all its parts.
"""

import re
from dataclasses import dataclass

from facetline.facets.errors import InvalidQuery
from facetline.facets.text.words import words

CHARS_MAX = 1_000
WORDS_MAX = 32

# A quote opens a phrase only where a token begins: an inch mark or an apostrophe in a word is text.
_TOKEN = re.compile(r'(?P<minus>-?)"(?P<phrase>[^"]*)"|(?P<plain>\S+)')
_PAIR = 2


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a query; `prefix`: any word that begins so."""

    text: str
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class TextQuery:
    """What is looked for; phrases are tuples of words that follow each other."""

    words: tuple[Word, ...]
    tokens: tuple[tuple[int, ...], ...]
    """Places in `words`: a word counts where all words of one of its tokens are."""
    phrases: tuple[tuple[str, ...], ...]
    excluded: tuple[tuple[Word, ...], ...]
    """Texts with all words of one of these are left out."""
    excluded_phrases: tuple[tuple[str, ...], ...]


def parse(text: str) -> TextQuery:
    """Return a query.

    Raises:
        InvalidQuery: it is too long, or has too many words.
    """
    if len(text) > CHARS_MAX:
        raise InvalidQuery(f"q has {len(text)} characters; at most {CHARS_MAX} are taken")
    reading = _Reading()
    for token in _TOKEN.finditer(text):
        reading.take(token)
    count = len(reading.words) + sum(map(len, reading.excluded))
    if count > WORDS_MAX:
        raise InvalidQuery(f"q has {count} words; at most {WORDS_MAX} are taken")
    return TextQuery(
        tuple(reading.words),
        tuple(dict.fromkeys(reading.tokens)),
        tuple(dict.fromkeys(reading.phrases)),
        tuple(dict.fromkeys(reading.excluded)),
        tuple(dict.fromkeys(reading.excluded_phrases)),
    )


class _Reading:
    def __init__(self) -> None:
        self.words: dict[Word, int] = {}
        self.tokens: list[tuple[int, ...]] = []
        self.phrases: list[tuple[str, ...]] = []
        self.excluded: list[tuple[Word, ...]] = []
        self.excluded_phrases: list[tuple[str, ...]] = []

    def take(self, token: re.Match[str]) -> None:
        if token["phrase"] is not None:
            self._take_phrase(tuple(words(token["phrase"])), excluded=bool(token["minus"]))
            return
        plain = token["plain"]
        if plain[0] == "-" and words(plain[1:2]):
            self.excluded.append(_words_of(plain[1:]))
            return
        found = _words_of(plain)
        # Pairs of one run of characters are tokens of their own: a sentence without blanks is not one word.
        apart = all(_is_pair(word.text) for word in found)
        for part in [(word,) for word in found] if apart else [found]:
            self._add(part)

    def _take_phrase(self, found: tuple[str, ...], *, excluded: bool) -> None:
        if not found:
            return
        parts = tuple(map(Word, found))
        if not excluded:
            self._add(parts)
        elif len(found) == 1:
            self.excluded.append(parts)
        if len(found) > 1:
            (self.excluded_phrases if excluded else self.phrases).append(found)

    def _add(self, found: tuple[Word, ...]) -> None:
        self.tokens.append(tuple(self.words.setdefault(word, len(self.words)) for word in found))


def _words_of(plain: str) -> tuple[Word, ...]:
    found = words(plain)
    prefix = plain[-1:] == "*" and bool(words(plain[-2:-1]))
    last = len(found) - 1
    return tuple(Word(word, prefix=prefix and place == last) for place, word in enumerate(found))


def _is_pair(word: str) -> bool:
    return len(word) <= _PAIR and not word.isascii()
