"""The texts of one collection in a view: takes new ones in, keeps the postings sorted, drops what is dead.

Only the view's one writer calls it, and commits. Texts and facet rows stand in two catalogs, which DuckDB writes in two
transactions: the view commits both in one moment in which no snapshot is taken.
"""

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from facetline.facets.table.tables import Table
from facetline.facets.text_settings import NO_LANGUAGE
from facetline.facets.view import text_tables
from facetline.facets.view.text_batches import TextBatch
from facetline.facets.view.text_tables import TextTables

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    from numpy.typing import NDArray

TAIL_MIN = 500_000
"""Postings that came since the last sorting, before they are sorted at the end of a long way: 25,000 texts."""
TAIL_ON_THE_WAY = 8
"""How many times as many there may be before, and while single texts come: unsorted they cost a search some ms."""
DEAD_MIN = 20_000
"""Texts that are dead before they are dropped."""

Stem = Callable[[str], str]


class TextIndex:
    """Writes the texts of one collection."""

    def __init__(self, table: Table) -> None:
        self.tables = TextTables(table)
        self.settings = table.definition.text
        self.stem = stemmer(self.settings.language)
        self.next_number = 1
        """Above every number that was ever given."""
        self._next_word = 0
        self._scopes: dict[str, int] = {"": 0}
        self._tail = 0
        self._sorted = 0
        self._dead = 0
        self._alive = 0

    def scope_number(self, scope: str) -> int:
        """Return the number of a scope in the postings; -1 for one that has no text."""
        return self._scopes.get(scope, -1)

    def take(
        self, cursor: "duckdb.DuckDBPyConnection", batch: TextBatch
    ) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
        """Write the texts of a batch inside the cursor's transaction; return number and length for each record."""
        import numpy as np

        numbers = np.array(batch.numbers, np.int64)
        lengths = np.zeros(len(numbers), np.int64)
        if not batch.bodies:
            return numbers, lengths
        first = self.next_number
        self.next_number += len(batch.bodies)
        own = np.arange(first, self.next_number, dtype=np.int32)
        places = np.array(batch.places, np.int64)
        numbers[places] = own
        self._give(cursor, batch, own)
        cursor.execute(self.tables.count_words())
        self._add_new_words(cursor)
        [(added,)] = cursor.execute(self.tables.add_postings()).fetchall()
        self._tail += added
        if self.settings.bodies != "off":
            cursor.execute(self.tables.add_bodies())
        counted = cursor.execute(self.tables.lengths()).fetchnumpy()
        lengths[places[counted["text"] - first]] = counted["words"]
        for name in (text_tables.PARTS, text_tables.BODIES):
            cursor.unregister(name)
        return numbers, lengths

    def _give(self, cursor: "duckdb.DuckDBPyConnection", batch: TextBatch, own: "NDArray[np.int32]") -> None:
        import numpy as np

        scopes = np.array([self._scopes.setdefault(each, len(self._scopes)) for each in batch.scopes], np.int32)
        of_text = np.array([number for number, _, _ in batch.parts], np.int64)
        parts = {
            "text": own[of_text],
            "scope": scopes[of_text],
            "weight": np.array([weight for _, weight, _ in batch.parts], np.int32),
            "part": np.array([part for _, _, part in batch.parts], np.object_),
        }
        bodies = {
            "text": own,
            "body": np.array(batch.bodies, np.object_),
            "folded": np.array(batch.folded, np.object_),
        }
        cursor.register(text_tables.PARTS, parts)
        cursor.register(text_tables.BODIES, bodies)

    def _add_new_words(self, cursor: "duckdb.DuckDBPyConnection") -> None:
        import numpy as np

        new = [word for (word,) in cursor.execute(self.tables.new_words()).fetchall()]
        if not new:
            return
        given = {
            "word": np.array(new, np.object_),
            "id": np.arange(self._next_word, self._next_word + len(new), dtype=np.int32),
            "stem": np.array([self.stem(word) for word in new], np.object_),
        }
        self._next_word += len(new)
        cursor.register(text_tables.WORDS, given)
        cursor.execute(self.tables.add_words())
        cursor.unregister(text_tables.WORDS)

    def note_dead(
        self,
        cursor: "duckdb.DuckDBPyConnection",
        before: "NDArray[np.int64]",
        numbers: "NDArray[np.int64]",
        after: "NDArray[np.int64]",
    ) -> None:
        """Write which numbers have no document after a batch, in the facet table's transaction.

        They are those that its documents had `before`, and those of the batch, but for what they have `after` it.
        """
        import numpy as np

        candidates = np.union1d(before, numbers[numbers > 0])
        dead = np.setdiff1d(candidates, after, assume_unique=True)
        self._alive += len(after) - len(before)
        if not len(dead):
            return
        self._dead += len(dead)
        cursor.register(text_tables.DEAD, {"text": dead.astype(np.int32)})
        cursor.execute(self.tables.add_dead())
        cursor.unregister(text_tables.DEAD)

    def is_worn(self) -> bool:
        """Say whether so many texts are dead that they are to be dropped."""
        return self._dead > max(DEAD_MIN, self._alive)

    def is_unsorted(self, *, whole: bool = False) -> bool:
        """Say whether the postings are to be sorted; `whole`: after a long way, when nothing more comes at once."""
        return self._tail > (TAIL_MIN if whole else max(TAIL_ON_THE_WAY * TAIL_MIN, self._sorted))

    def rewrite(self, cursor: "duckdb.DuckDBPyConnection", *, alive: bool) -> None:
        """Sort the postings, with `alive` without dead texts, inside the cursor's transaction."""
        for statement in self.tables.rewrite(self._next_word, alive=alive):
            cursor.execute(statement)

    def rewritten(self, *, alive: bool) -> None:
        """Note that a rewriting was committed."""
        self._sorted += self._tail
        self._tail = 0
        if alive:
            self._dead = 0


def stemmer(language: str) -> Stem:
    """Return what gives a word's stem; words with digits, and all of them without a language, are their own."""
    if language == NO_LANGUAGE:
        return lambda word: word
    import snowballstemmer

    stem, one_at_a_time = snowballstemmer.stemmer(language).stemWord, threading.Lock()

    @functools.lru_cache(maxsize=4096)
    def of(word: str) -> str:
        with one_at_a_time:
            return str(stem(word)) if word.isalpha() else word

    return of
