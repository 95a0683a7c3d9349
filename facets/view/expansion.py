"""What the words of a query stand for in a reader's texts: the word itself, words of its stem, of its prefix, a typo.

Only words that texts of the reader's scope have are of account, so that neither a correction nor a prefix says what
others write.
"""

# ruff: noqa: S608 (names come from a table's own columns, ids are numbers)

from collections.abc import Sequence
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
_TYPOS_LOOKED_AT = 20


@dataclass(frozen=True, slots=True)
class Expanded:
    """What one word of a query stands for: words of the dictionary and what an occurrence of each counts, in tenths."""

    words: tuple[tuple[str, int], ...] = ()
    corrected: str | None = None
    """The word that was looked for in place of the given one."""
    ids: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    """The same as `words`, by the words' numbers."""


class Dictionary:
    """Looks words up in a snapshot, for the reader of one scope."""

    def __init__(self, cursor: "duckdb.DuckDBPyConnection", tables: TextTables, alive: str, stem: Stem) -> None:
        """`alive` is the condition that a posting is of a text of the reader's scope."""
        self._cursor = cursor
        self._tables = tables
        self._alive = alive
        self._stem = stem

    def expand(self, word: Word, *, exact: bool) -> Expanded:
        """Return what a word stands for; nothing where no text has it. `exact`: no stems and no typos."""
        found = self._plain(word, exact=exact)
        if found or exact or word.prefix or not _may_be_typo(word.text):
            return self._expanded(found)
        correction = self._correction(word.text)
        if correction is None:
            return Expanded()
        return self._expanded(self._plain(Word(correction), exact=False), correction)

    def known(self, words: Sequence[tuple[str, int]], corrected: str | None) -> Expanded:
        """Return an expansion that a cursor carried."""
        ids = dict(self._rows("word IN (SELECT unnest(?))", [word for word, _ in words]))
        found = [(word, ids[word], tenths) for word, tenths in words if word in ids]
        return Expanded(tuple(words), corrected, tuple((number, tenths) for _, number, tenths in found))

    def _plain(self, word: Word, *, exact: bool) -> list[tuple[str, int, int]]:
        """Return words with their numbers and tenths, the given one first."""
        wanted: dict[str, tuple[int, int]] = {}
        if word.prefix:
            for text, number, _ in self._with_texts(self._rows("starts_with(word, ?)", word.text), PREFIX_WORDS_MAX):
                wanted[text] = (number, TENTHS)
        elif len(word.text) == 1 and not word.text.isascii():
            # In scripts without blanks it stands in pairs.
            pairs = self._with_texts(self._rows("length(word) <= 2 AND contains(word, ?)", word.text), PREFIX_WORDS_MAX)
            wanted = {text: (number, TENTHS) for text, number, _ in pairs}
        elif exact:
            wanted = {text: (number, TENTHS) for text, number in self._rows("word = ?", word.text)}
        else:
            for text, number in self._rows("word = ? OR stem = ?", word.text, self._stem(word.text)):
                wanted[text] = (number, TENTHS if text == word.text else STEM_TENTHS)
        alive = {text for text, _, _ in self._with_texts([(text, number) for text, (number, _) in wanted.items()])}
        listed = [(text, number, tenths) for text, (number, tenths) in wanted.items() if text in alive]
        return sorted(listed, key=lambda each: (each[0] != word.text, each[0]))

    def _expanded(self, found: list[tuple[str, int, int]], corrected: str | None = None) -> Expanded:
        return Expanded(
            tuple((text, tenths) for text, _, tenths in found),
            corrected,
            tuple((number, tenths) for _, number, tenths in found),
        )

    def _correction(self, word: str) -> str | None:
        """Return the nearest word that texts have: two letters exchanged, or one or two edits away."""
        exchanged = [word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(len(word) - 1)]
        near = self._with_texts(self._rows("word IN (SELECT unnest(?))", exchanged))
        if near:
            return near[0][0]
        for edits in range(1, 1 + 1 + (len(word) >= TWO_TYPOS_LETTERS_MIN)):
            condition = (
                f"length(word) BETWEEN {len(word) - edits} AND {len(word) + edits} "
                f"AND NOT regexp_matches(word, '[0-9]') AND levenshtein(word, ?) <= {edits}"
            )
            near = self._with_texts(self._rows(condition, word))
            if near:
                return near[0][0]
        return None

    def _rows(self, condition: str, *values: Any) -> list[tuple[str, int]]:
        statement = f"SELECT word, id FROM {self._tables.name('words')} WHERE {condition}"
        return self._cursor.execute(statement, values).fetchall()

    def _with_texts(self, found: list[tuple[str, int]], most: int | None = None) -> list[tuple[str, int, int]]:
        """Return those words that texts of the reader have, with their number of texts, the commonest first."""
        if not found:
            return []
        ids = ", ".join(str(number) for _, number in found)
        postings = self._tables.name("postings")
        statement = f"SELECT word, count(*) FROM {postings} WHERE word IN ({ids}) AND {self._alive} GROUP BY word"
        texts = dict(self._cursor.execute(statement).fetchall())
        counted = [(word, number, texts[number]) for word, number in found if number in texts]
        return sorted(counted, key=lambda each: (-each[2], each[0]))[:most]


def _may_be_typo(word: str) -> bool:
    return len(word) >= TYPO_LETTERS_MIN and word.isalpha()
