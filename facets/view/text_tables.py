"""The DuckDB tables of a collection's texts: words, postings and bodies, as statements. Pure text.

A text has a number that is used once. Postings and bodies of a number never change; the row of the facet table says
which number its document has now (`doc_text`). They stand in a catalog of their own, which `CHECKPOINT` compresses.
"""

# ruff: noqa: S608 (names come from a table's own columns)

from dataclasses import dataclass

from facetline.facets.table import ddl, tables
from facetline.facets.table.tables import Table
from facetline.facets.text import words

CATALOG = "texts"
TOUCH = f"SELECT count(*) FROM {CATALOG}.main._touched"
CREATE_TOUCHED = f"CREATE TABLE {CATALOG}.main._touched (nothing INTEGER)"
CHECKPOINT = f"CHECKPOINT {CATALOG}"

PARTS, BODIES, WORDS, DEAD = "_parts", "_bodies", "_words", "_dead"
"""The names under which a cursor finds arrays: fields of texts with their weights, bodies, words, numbers."""
SEPARATOR = "\x01"
"""Between the fields of a folded text: no phrase crosses it."""


@dataclass(frozen=True, slots=True)
class TextTables:
    """The statements about the texts of one collection."""

    table: Table

    def name(self, what: str) -> str:
        """Return `words`, `postings` or `bodies` as it stands in SQL."""
        return f'{CATALOG}.main."{self.table.definition.name}.{what}"'

    @property
    def dead(self) -> str:
        """The numbers that no document has any more; in the facet table's catalog, since it changes with its rows."""
        return f'{tables.CATALOG}.main."{self.table.definition.name}.dead"'

    @property
    def documents(self) -> str:
        """The facet table."""
        return ddl.name_of(self.table)

    def create(self) -> list[str]:
        """Return the statements that make the tables in the texts' catalog."""
        return [
            f"CREATE TABLE {self.name('words')} (word VARCHAR, id INTEGER, stem VARCHAR)",
            f"CREATE TABLE {self.name('postings')} {_POSTINGS}",
            f"CREATE TABLE {self.name('bodies')} {_BODIES}",
        ]

    def drop(self) -> list[str]:
        """Return the statements that undo `create`."""
        return [f"DROP TABLE IF EXISTS {self.name(what)}" for what in ("words", "postings", "bodies")]

    def create_dead(self) -> str:
        """Return the statement that makes the table of dead numbers."""
        return f"CREATE TABLE {self.dead} (text INTEGER)"

    def drop_dead(self) -> str:
        """Return the statement that undoes `create_dead`."""
        return f"DROP TABLE IF EXISTS {self.dead}"

    def count_words(self) -> str:
        """Return the statement that counts the words of `PARTS` into a temporary table."""
        word = f"unnest(regexp_extract_all(part, '{words.FOLDED_WORD}'))"
        return (
            f"CREATE OR REPLACE TEMP TABLE _counted AS SELECT text, scope, left(word, {words.WORD_CHARS_MAX}) AS word, "
            f"CAST(least(sum(weight), 65535) AS USMALLINT) AS tf FROM (SELECT text, scope, weight, {word} AS word "
            f"FROM temp.main.{PARTS}) GROUP BY ALL"
        )

    def new_words(self) -> str:
        """Return the statement of the counted words that are not in the dictionary yet."""
        return (
            f"SELECT DISTINCT word FROM temp.main._counted WHERE word NOT IN "
            f"(SELECT word FROM {self.name('words')} WHERE word IN (SELECT word FROM temp.main._counted))"
        )

    def add_words(self) -> str:
        """Return the statement that takes `WORDS` into the dictionary."""
        return f"INSERT INTO {self.name('words')} SELECT word, id, stem FROM temp.main.{WORDS}"

    def lengths(self) -> str:
        """Return the statement of each counted text's length."""
        return "SELECT text, CAST(sum(tf) AS INTEGER) AS words FROM temp.main._counted GROUP BY text"

    def add_postings(self) -> str:
        """Return the statement that takes the counted words in."""
        return (
            f"INSERT INTO {self.name('postings')} SELECT w.id, c.scope, c.text, c.tf, l.words "
            f"FROM temp.main._counted AS c JOIN {self.name('words')} AS w USING (word) "
            f"JOIN ({self.lengths()}) AS l USING (text)"
        )

    def add_bodies(self) -> str:
        """Return the statement that takes `BODIES` in."""
        return f"INSERT INTO {self.name('bodies')} SELECT text, body, folded FROM temp.main.{BODIES}"

    def rewrite(self, words_max: int, *, alive: bool) -> list[str]:
        """Return the statements that sort the postings, with `alive` without the dead texts.

        By ranges of words: sorting all at once takes a gigabyte for a million texts.
        """
        condition = f" AND text NOT IN (SELECT text FROM {self.dead})" if alive else ""
        step = max(1, -(-words_max // _RANGES))
        made = [f"CREATE TABLE {self.name('sorted')} {_POSTINGS}"]
        made += [
            f"INSERT INTO {self.name('sorted')} SELECT * FROM {self.name('postings')} "
            f"WHERE word BETWEEN {start} AND {start + step - 1}{condition} ORDER BY word, scope, text"
            for start in range(0, max(words_max, 1), step)
        ]
        made += self._replace("postings", "sorted")
        if alive:
            made += [
                f"CREATE TABLE {self.name('kept')} {_BODIES}",
                f"INSERT INTO {self.name('kept')} SELECT * FROM {self.name('bodies')} WHERE true{condition}",
                *self._replace("bodies", "kept"),
                f"DELETE FROM {self.name('words')} WHERE id NOT IN (SELECT DISTINCT word FROM {self.name('postings')})",
            ]
        return made

    def _replace(self, old: str, new: str) -> list[str]:
        return [
            f"DROP TABLE {self.name(old)}",
            f'ALTER TABLE {self.name(new)} RENAME TO "{self.table.definition.name}.{old}"',
        ]

    def add_dead(self) -> str:
        """Return the statement that takes `DEAD` in."""
        return f"INSERT INTO {self.dead} SELECT text FROM temp.main.{DEAD}"

    def numbers_of_given(self) -> str:
        """Return the statement of the numbers that the documents of a batch have now."""
        given = f"SELECT doc_uri FROM temp.main.{ddl.GIVEN}"
        return f"SELECT doc_text FROM {self.documents} WHERE doc_text > 0 AND doc_uri IN ({given})"


_POSTINGS = "(word INTEGER, scope INTEGER, text INTEGER, tf USMALLINT, len INTEGER)"
_BODIES = "(text INTEGER, body VARCHAR, folded VARCHAR)"
_RANGES = 16
