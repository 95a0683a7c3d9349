"""What the words of a query stand for in a reader's texts: the word itself, words of its stem, of its prefix, a typo.

Only words that texts of the reader's scope have are of account, so that neither a correction nor a prefix says what
others write.
"""

# ruff: noqa: S608 (names come from a table's own columns, ids are numbers)

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from facetline.facets.text.query import Word
from facetline.facets.text.scoring import STEM_TENTHS, TENTHS
from facetline.facets.view.text_index import Stem
from facetline.facets.view.text_tables import TextTables

if TYPE_CHECKING:
    import duckdb

PREFIX_WORDS_MAX = 50
WORDS_MAX = 256
"""Of a query, all expansions together: a cursor carries them."""
TYPO_LETTERS_MIN = 5
TWO_TYPOS_LETTERS_MIN = 9


@dataclass(frozen=True, slots=True)
class Expanded:
    """What one word of a query stands for: words of the dictionary and what an occurrence of each counts, in tenths."""

    words: tuple[tuple[str, int], ...] = ()
    corrected: str | None = None
    """The word that was looked for in place of the given one."""
    ids: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    """The same as `words`, by the words' numbers."""


Ids = Collection[int]
TextsOf = Mapping[int, int]


class Dictionary:
    """Looks words up in a snapshot, for the reader of one scope."""

    def __init__(
        self, cursor: "duckdb.DuckDBPyConnection", tables: TextTables, stem: Stem, texts: Callable[[Ids], TextsOf]
    ) -> None:
        """`texts` returns how many of the reader's texts have these words, of those that any has."""
        self._cursor = cursor
        self._tables = tables
        self._stem = stem
        self._texts = texts

    def expand(self, words: Sequence[tuple[Word, bool]]) -> list[Expanded]:
        """Return what each word stands for; nothing where no text has it. With True a word stands for itself alone."""
        candidates = [self._candidates(word, exact=exact) for word, exact in words]
        listed = self._looked_up(words)
        for found in candidates:
            if found is None:
                continue
            listed |= {text: (number, "") for text, number in found}
        texts = self._texts({number for number, _ in listed.values()})
        return [
            self._expand(word, exact=exact, found=found, listed=listed, texts=texts)
            for (word, exact), found in zip(words, candidates, strict=True)
        ]

    def known(self, expanded: Sequence[tuple[Sequence[tuple[str, int]], str | None]]) -> list[Expanded]:
        """Return expansions that a cursor carried."""
        ids = dict(self._rows(f"word IN ({_listed([word for words, _ in expanded for word, _ in words])})"))
        return [
            Expanded(tuple(words), corrected, tuple((ids[word], tenths) for word, tenths in words if word in ids))
            for words, corrected in expanded
        ]

    def _candidates(self, word: Word, *, exact: bool) -> list[tuple[str, int]] | None:
        """Return the words that begin as a prefix, or hold a single character of a script without blanks."""
        if word.prefix:
            return self._rows("starts_with(word, ?)", word.text)
        if len(word.text) == 1 and not word.text.isascii() and not exact:
            return self._rows("length(word) <= 2 AND contains(word, ?)", word.text)
        return None

    def _looked_up(self, words: Sequence[tuple[Word, bool]]) -> dict[str, tuple[int, str]]:
        """Return number and stem of the words themselves and of those of their stems."""
        plain = [word.text for word, _ in words if not word.prefix]
        if not plain:
            return {}
        stems = [self._stem(word.text) for word, exact in words if not (exact or word.prefix)]
        condition = f"word IN ({_listed(plain)})" + (f" OR stem IN ({_listed(stems)})" if stems else "")
        statement = f"SELECT word, id, stem FROM {self._tables.name('words')} WHERE {condition}"
        return {word: (number, stem) for word, number, stem in self._cursor.execute(statement).fetchall()}

    def _expand(
        self,
        word: Word,
        *,
        exact: bool,
        found: list[tuple[str, int]] | None,
        listed: dict[str, tuple[int, str]],
        texts: TextsOf,
    ) -> Expanded:
        if found is not None:
            alive = sorted((-texts[number], text, number) for text, number in found if number in texts)
            return _expanded([(text, number, TENTHS) for _, text, number in alive[:PREFIX_WORDS_MAX]])
        stem = None if exact else self._stem(word.text)
        alike = [
            (text, number, TENTHS if text == word.text else STEM_TENTHS)
            for text, (number, own_stem) in listed.items()
            if number in texts and (text == word.text or (stem is not None and own_stem == stem))
        ]
        if alike or exact or not _may_be_typo(word.text):
            return _expanded(sorted(alike, key=lambda each: (each[0] != word.text, each[0])))
        correction = self._correction(word.text)
        if correction is None:
            return Expanded()
        [corrected] = self.expand([(Word(correction), False)])
        return Expanded(corrected.words, correction, corrected.ids)

    def _correction(self, word: str) -> str | None:
        """Return the nearest word that texts have: two letters exchanged, or one or two edits away."""
        exchanged = [word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(len(word) - 1)]
        near = self._commonest(self._rows(f"word IN ({_listed(exchanged)})"))
        if near is not None:
            return near
        for edits in range(1, 1 + 1 + (len(word) >= TWO_TYPOS_LETTERS_MIN)):
            condition = (
                f"length(word) BETWEEN {len(word) - edits} AND {len(word) + edits} "
                f"AND NOT regexp_matches(word, '[0-9]') AND levenshtein(word, ?) <= {edits}"
            )
            near = self._commonest(self._rows(condition, word))
            if near is not None:
                return near
        return None

    def _rows(self, condition: str, *values: Any) -> list[tuple[str, int]]:
        statement = f"SELECT word, id FROM {self._tables.name('words')} WHERE {condition}"
        return self._cursor.execute(statement, values).fetchall()

    def _commonest(self, found: list[tuple[str, int]]) -> str | None:
        texts = self._texts([number for _, number in found])
        alive = [(-texts[number], word) for word, number in found if number in texts]
        return min(alive)[1] if alive else None


def _expanded(found: list[tuple[str, int, int]]) -> Expanded:
    return Expanded(
        tuple((text, tenths) for text, _, tenths in found), None, tuple((number, tenths) for _, number, tenths in found)
    )


def _listed(words: Sequence[str]) -> str:
    """Return text literals; words are letters and digits, and a quote could not stand in one."""
    return ", ".join("'{}'".format(word.replace("'", "''")) for word in words) or "NULL"


def _may_be_typo(word: str) -> bool:
    return len(word) >= TYPO_LETTERS_MIN and word.isalpha()
