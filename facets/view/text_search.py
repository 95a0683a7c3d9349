"""Finds the texts that a search by words and patterns matches, and scores them, over one snapshot of a view."""

# ruff: noqa: S608 (names come from a table's own columns, ids are numbers, values are bound)

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from facetline.facets.errors import InvalidQuery
from facetline.facets.search.selection import Selection
from facetline.facets.text import lines, scoring
from facetline.facets.text import query as queries
from facetline.facets.text.carried import Carried
from facetline.facets.text.lines import LinePattern
from facetline.facets.text.query import TextQuery, Word
from facetline.facets.text.scoring import Statistics
from facetline.facets.view.expansion import WORDS_MAX, Dictionary, Expanded, Ids, TextsOf
from facetline.facets.view.text_index import TextIndex
from facetline.facets.view.text_tables import SEPARATOR

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_WORTHWHILE = 4
_SORTED_FROM = 24
BYTES_OF_TEXT = 24
"""What a match takes: number, two scores, how many words."""


@dataclass(frozen=True, slots=True)
class Matches:
    """The texts that match, by ascending number; scores are of `scoring.WHOLE`, `keyword` in millionths."""

    texts: "NDArray[np.int32]"
    score: "NDArray[np.int32]"
    keyword: "NDArray[np.int32]"
    matched: "NDArray[np.int32]"
    """How many of the query's words a text has."""
    query: TextQuery | None
    expanded: tuple[Expanded, ...]
    statistics: Statistics
    pattern: LinePattern | None

    @property
    def arrays(self) -> "dict[str, NDArray[np.int32]]":
        """What statements find under `sql.MATCHES`."""
        return {"text": self.texts, "score": self.score, "keyword": self.keyword, "matched": self.matched}

    def best(self, most: int, below: int | None) -> "dict[str, NDArray[np.int32]] | None":
        """Return the best matches up to a score as `arrays` does, and all with the score of the last; None: all are."""
        import numpy as np

        among = self.score if below is None else self.score[self.score <= below]
        if len(among) <= _WORTHWHILE * most:
            return None
        least = np.partition(among, len(among) - most)[len(among) - most]
        keep = self.score >= least if below is None else (self.score >= least) & (self.score <= below)
        return {name: cells[keep] for name, cells in self.arrays.items()}

    @property
    def size(self) -> int:
        """How many bytes it takes, about."""
        return BYTES_OF_TEXT * len(self.texts)

    @property
    def words(self) -> frozenset[str]:
        """The words that the query stands for: what is marked in texts."""
        return frozenset(word for each in self.expanded for word, _ in each.words)

    @property
    def corrected(self) -> dict[str, str]:
        """The words that were looked for in place of others."""
        if self.query is None:
            return {}
        pairs = zip(self.query.words, self.expanded, strict=True)
        return {word.text: each.corrected for word, each in pairs if each.corrected is not None}

    @property
    def carried(self) -> Carried:
        """What the next page needs."""
        found = self.statistics
        return Carried(
            found.texts, found.words, found.with_word, tuple((each.words, each.corrected) for each in self.expanded)
        )


class TextSearch:
    """One search over the texts of a collection, in one snapshot."""

    def __init__(self, cursor: "duckdb.DuckDBPyConnection", index: TextIndex, selection: Selection) -> None:
        self._cursor = cursor
        self._index = index
        self._tables = index.tables
        self._settings = index.settings
        self._selection = selection
        self._size = index.next_number
        self._read: tuple[frozenset[int], Any] | None = None
        self._alive = f"text NOT IN (SELECT text FROM {self._tables.dead})"
        if selection.scope is not None:
            self._alive += f" AND scope = {index.scope_number(selection.scope)}"

    def find(self, carried: Carried | None) -> Matches:
        """Return what the selection's words and pattern match.

        Raises:
            InvalidQuery: they need bodies, and the collection's are not kept.
        """
        asked = self._selection
        matches = self._all() if asked.q is None else self._by_words(queries.parse(asked.q), carried)
        if asked.grep is None:
            return matches
        pattern = self.line_pattern()
        return _kept(matches, self.with_line(pattern), pattern)

    def line_pattern(self) -> LinePattern:
        """Return the selection's line pattern; what is no regular expression of RE2 is taken literally."""
        import duckdb

        given = lines.checked(self._selection.grep or "")
        pattern = LinePattern(given, self._selection.ignore_case)
        try:
            with contextlib.closing(self._cursor.cursor()) as apart:  # an error would end the snapshot's transaction
                apart.execute("SELECT regexp_matches('', ?)", [pattern.expression]).fetchall()
        except duckdb.InvalidInputException as error:
            message = str(error).removeprefix("Invalid Input Error: ").splitlines()[0]
            because = message.split(": ", 1)[0][:200]  # what follows is the pattern
            return LinePattern(given, self._selection.ignore_case, because)
        return pattern

    def with_line(self, pattern: LinePattern) -> "NDArray[np.int32]":
        """Return the numbers of the texts that have a line with the pattern, ascending."""
        self._need_bodies("grep")
        condition, values = has_line(pattern)
        statement = (
            f"SELECT b.text FROM {self._tables.name('bodies')} AS b JOIN {self._tables.documents} AS d "
            f"ON d.doc_text = b.text WHERE {self._seen('d')} AND {condition} ORDER BY b.text"
        )
        found: NDArray[np.int32] = self._cursor.execute(statement, values).fetchnumpy()["text"]
        return found

    def _need_bodies(self, what: str) -> None:
        if self._settings.bodies == "off":
            name = self._tables.table.definition.name
            raise InvalidQuery(f"{what} needs the texts, and collection '{name}' has bodies = \"off\"")

    def _seen(self, alias: str) -> str:
        """Return the condition that a row is a document of the reader."""
        scope = self._selection.scope
        return f"{alias}.doc_text > 0" + ("" if scope is None else f" AND {alias}.doc_scope = {_quoted(scope)}")

    def _totals(self) -> tuple[int, int]:
        statement = (
            f"SELECT count(*), CAST(coalesce(sum(doc_words), 0) AS BIGINT) FROM {self._tables.documents} AS d "
            f"WHERE {self._seen('d')}"
        )
        [(texts, words)] = self._cursor.execute(statement).fetchall()
        return texts, words

    def _all(self) -> Matches:
        import numpy as np

        statement = f"SELECT doc_text FROM {self._tables.documents} AS d WHERE {self._seen('d')} ORDER BY doc_text"
        texts = self._cursor.execute(statement).fetchnumpy()["doc_text"].astype(np.int32)
        none = np.zeros(len(texts), np.int32)
        return Matches(texts, none, none, none, None, (), Statistics(0, 0, ()), None)

    def _by_words(self, query: TextQuery, carried: Carried | None) -> Matches:
        import numpy as np

        expanded = self._expand(query, carried)
        found = self._occurrences([each.ids for each in expanded])
        statistics = self._statistics(found, carried)
        score = np.zeros(self._size, np.int64)
        matched = np.zeros(self._size, np.int32)
        counts = _where_tokens_are_whole(query, found, self._size)
        settings = self._settings
        for number, (texts, tenths, length) in enumerate(found):
            part = scoring.keyword(tenths, length, number, statistics, settings.k1, settings.b)
            own = texts
            if number in counts:
                part = part[counts[number][texts]]
                own = texts[counts[number][texts]]
            score[own] += part
            matched[own] += 1
        texts = np.flatnonzero(matched)
        if not query.words and (query.excluded or query.excluded_phrases):  # only exclusions: everything else
            texts = self._all().texts.astype(np.int64)
        if self._selection.words == "all":
            texts = texts[matched[texts] == len(query.words)]
        texts = self._without_excluded(query, texts)
        for phrase in query.phrases:
            texts = np.intersect1d(texts, self._with_phrase(phrase), assume_unique=True)
        whole = scoring.combined(score[texts], 0, 0)
        if self._selection.min_score is not None:
            keep = whole >= scoring.least(self._selection.min_score)
            texts, whole = texts[keep], whole[keep]
        return Matches(
            texts.astype(np.int32),
            whole.astype(np.int32),
            score[texts].astype(np.int32),
            matched[texts],
            query,
            expanded,
            statistics,
            None,
        )

    def _expand(self, query: TextQuery, carried: Carried | None) -> tuple[Expanded, ...]:
        dictionary = self._dictionary()
        if carried is not None and len(carried.expanded) == len(query.words):
            return tuple(dictionary.known(carried.expanded))
        in_phrases = {word for phrase in query.phrases for word in phrase}
        asked = [(word, self._selection.exact or word.text in in_phrases) for word in query.words]
        found: list[Expanded] = []
        room = WORDS_MAX
        for each in dictionary.expand(asked):
            found.append(Expanded(each.words[:room], each.corrected, each.ids[:room]))
            room -= len(found[-1].words)
        return tuple(found)

    def _occurrences(self, groups: Sequence[Sequence[tuple[int, int]]]) -> "list[tuple[Ints, Ints, Ints]]":
        """Return for each group of words the texts with one of them, in tenths how often, and the texts' lengths."""
        import numpy as np

        ids = sorted({number for group in groups for number, _ in group})
        if not ids:
            return [(np.zeros(0, np.int64),) * 3 for _ in groups]
        rows = self._postings(frozenset(ids))
        if len(ids) <= _SORTED_FROM:  # to look for each is quicker than to sort
            at = {number: np.flatnonzero(rows["word"] == number) for number in ids}
        else:
            order = np.argsort(rows["word"], kind="stable")
            bounds = np.searchsorted(rows["word"][order], [*ids, ids[-1] + 1])
            at = {number: order[bounds[place] : bounds[place + 1]] for place, number in enumerate(ids)}
        return [self._occurrences_of(rows, [(at[number], tenths) for number, tenths in group]) for group in groups]

    def _dictionary(self) -> Dictionary:
        return Dictionary(self._cursor, self._tables, self._index.stem, self._texts)

    def _texts(self, ids: Ids) -> TextsOf:
        """Return how many of the reader's texts have these words, of those that any has."""
        import numpy as np

        if not ids:
            return {}
        if len(ids) <= _SORTED_FROM:  # their postings are wanted next
            counts = np.bincount(self._postings(frozenset(ids))["word"])
            return {number: int(counts[number]) for number in ids if number < len(counts) and counts[number]}
        postings, listed = self._tables.name("postings"), ", ".join(map(str, sorted(ids)))
        statement = f"SELECT word, count(*) FROM {postings} WHERE word IN ({listed}) AND {self._alive} GROUP BY word"
        return dict(self._cursor.execute(statement).fetchall())

    def _postings(self, ids: frozenset[int]) -> Any:
        """Return the postings of these words in the reader's texts, and maybe of others."""
        if self._read is None or not ids <= self._read[0]:
            postings, listed = self._tables.name("postings"), ", ".join(map(str, sorted(ids)))
            statement = f"SELECT word, text, tf, len FROM {postings} WHERE word IN ({listed}) AND {self._alive}"
            self._read = (ids, self._cursor.execute(statement).fetchnumpy())
        return self._read[1]

    def _occurrences_of(self, rows: Any, group: "Sequence[tuple[Ints, int]]") -> "tuple[Ints, Ints, Ints]":
        import numpy as np

        if len(group) == 1:
            [(own, each)] = group
            often = rows["tf"][own].astype(np.int64) * each
            return rows["text"][own].astype(np.int64), often, rows["len"][own].astype(np.int64)
        tenths = np.zeros(self._size, np.int64)
        length = np.zeros(self._size, np.int64)
        for own, each in group:
            tenths[rows["text"][own]] += rows["tf"][own].astype(np.int64) * each
            length[rows["text"][own]] = rows["len"][own]
        texts = np.flatnonzero(tenths)
        return texts, tenths[texts], length[texts]

    def _statistics(self, found: "Sequence[tuple[Ints, Ints, Ints]]", carried: Carried | None) -> Statistics:
        if carried is not None and len(carried.with_word) == len(found):
            return Statistics(carried.texts, carried.words, carried.with_word)
        texts, words = self._totals()
        return Statistics(texts, words, tuple(len(each[0]) for each in found))

    def _without_excluded(self, query: TextQuery, texts: "Ints") -> "Ints":
        import numpy as np

        for together in query.excluded:
            texts = np.setdiff1d(texts, self._with_all(together), assume_unique=True)
        for phrase in query.excluded_phrases:
            texts = np.setdiff1d(texts, self._with_phrase(phrase), assume_unique=True)
        return texts

    def _with_all(self, together: Sequence[Word]) -> "Ints":
        import numpy as np

        dictionary = self._dictionary()
        expanded = dictionary.expand([(word, True) for word in together])
        found = [each[0] for each in self._occurrences([each.ids for each in expanded])]
        texts = found[0]
        for each in found[1:]:
            texts = np.intersect1d(texts, each, assume_unique=True)
        return texts

    def _with_phrase(self, phrase: Sequence[str]) -> "Ints":
        """Return the texts in which these words follow each other in one field."""
        import numpy as np

        self._need_bodies("a phrase")
        candidates = self._with_all([Word(word) for word in phrase])
        self._cursor.register("_candidates", {"text": candidates.astype(np.int32)})
        apart = f"[^0-9a-z{SEPARATOR}\\x{{80}}-\\x{{10FFFF}}]+"
        edge = r"[^0-9a-z\x{80}-\x{10FFFF}]"
        expression = f"(?:^|{edge}){apart.join(phrase)}(?:{edge}|$)"
        statement = (
            f"SELECT text FROM {self._tables.name('bodies')} WHERE text IN (SELECT text FROM temp.main._candidates) "
            "AND regexp_matches(coalesce(folded, lower(body)), ?) ORDER BY text"
        )
        found = self._cursor.execute(statement, [expression]).fetchnumpy()["text"].astype(np.int64)
        self._cursor.unregister("_candidates")
        return found


def has_line(pattern: LinePattern) -> tuple[str, list[Any]]:
    """Return the condition that a column `body` has a line with the pattern, and its values."""
    if pattern.literal is not None:
        return "contains(body, CAST(? AS VARCHAR))", [pattern.literal]
    in_lines = "len(list_filter(string_split(body, chr(10)), lambda l: regexp_matches(rtrim(l, chr(13)), ?))) > 0"
    whole = pattern.in_whole_text
    if whole is None:
        return in_lines, [pattern.expression]
    # A carriage return at a line's end is no part of it, but stands before the end of line that `$` sees.
    return f"(contains(body, chr(13)) OR regexp_matches(body, ?)) AND {in_lines}", [whole, pattern.expression]


def _where_tokens_are_whole(
    query: TextQuery, found: "Sequence[tuple[Ints, Ints, Ints]]", size: int
) -> "dict[int, NDArray[np.bool_]]":
    """Return for each word that counts only beside others the texts in which it does."""
    import numpy as np

    alone = {token[0] for token in query.tokens if len(token) == 1}
    counts: dict[int, NDArray[np.bool_]] = {}
    for token in query.tokens:
        if len(token) == 1 or set(token) <= alone:
            continue
        whole = np.ones(size, np.bool_)
        for number in token:
            has = np.zeros(size, np.bool_)
            has[found[number][0]] = True
            whole &= has
        for number in set(token) - alone:
            counts[number] = counts[number] | whole if number in counts else whole
    return counts


def _kept(matches: Matches, texts: "NDArray[np.int32]", pattern: LinePattern) -> Matches:
    import numpy as np

    keep = np.isin(matches.texts, texts, assume_unique=True)
    return Matches(
        matches.texts[keep],
        matches.score[keep],
        matches.keyword[keep],
        matches.matched[keep],
        matches.query,
        matches.expanded,
        matches.statistics,
        pattern,
    )


def _quoted(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))
