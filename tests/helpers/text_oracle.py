"""Text search by plain counting: what a search by words must find and how it must score, text by text."""

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import snowballstemmer

from facetline.facets.text.words import words

ONE = 1_000_000


@dataclass(frozen=True)
class Doc:
    """One document: its fields by name, and what it is filtered by."""

    uri: str
    fields: dict[str, str]
    scope: str = ""


@dataclass(frozen=True)
class Hit:
    """One document found; `score` in millionths."""

    uri: str
    score: int
    matched: int


class Oracle:
    """Searches documents one by one."""

    def __init__(self, docs: list[Doc], weights: dict[str, int], k1: float = 1.5, b: float = 0.75) -> None:
        self.docs = docs
        self.weights, self.k1, self.b = weights, k1, b
        self.counts = {doc.uri: self._count(doc) for doc in docs}
        stem = snowballstemmer.stemmer("english").stemWord
        known = {word for counts in self.counts.values() for word in counts}
        self.stems = {word: stem(word) if word.isalpha() else word for word in known}
        self._stem = stem

    def _count(self, doc: Doc) -> Counter[str]:
        counts: Counter[str] = Counter()
        for name, text in doc.fields.items():
            for word in words(text):
                counts[word] += self.weights.get(name, 0)
        return +counts

    def _occurrences(self, counts: Counter[str], word: str, *, exact: bool) -> Fraction:
        """Return how often a word is there: other words of its stem count eight tenths."""
        if exact:
            return Fraction(counts[word])
        stem = self._stem(word) if word.isalpha() else word
        others = [each for each in counts if each != word and self.stems[each] == stem]
        return counts[word] + Fraction(8, 10) * sum(counts[each] for each in others)

    def search(self, tokens: list[list[str]], *, exact: bool = False, scope: str | None = None) -> list[Hit]:
        """Return the documents with at least one token whole, the best first."""
        docs = [doc for doc in self.docs if scope is None or doc.scope == scope]
        wanted = list(dict.fromkeys(word for token in tokens for word in token))
        often = {
            (doc.uri, word): self._occurrences(self.counts[doc.uri], word, exact=exact)
            for doc in docs
            for word in wanted
        }
        lengths = {doc.uri: sum(self.counts[doc.uri].values()) for doc in docs}
        mean = max(sum(lengths.values()), 1) / max(len(docs), 1)
        idf = {}
        for word in wanted:
            having = sum(often[doc.uri, word] > 0 for doc in docs)
            idf[word] = round(ONE * math.log((len(docs) - having + 0.5) / (having + 0.5) + 1)) / ONE
        bound = math.fsum(idf[word] for word in wanted) * (self.k1 + 1)
        hits = []
        for doc in docs:
            has = [word for word in wanted if often[doc.uri, word] > 0]
            counting = {word for token in tokens if set(token) <= set(has) for word in token}
            if counting:
                score = sum(
                    self._part(float(often[doc.uri, word]), lengths[doc.uri], mean, idf[word], bound)
                    for word in wanted
                    if word in counting
                )
                hits.append(Hit(doc.uri, score, len(counting)))
        return sorted(hits, key=lambda hit: (-hit.score, hit.uri))

    def _part(self, often: float, length: int, mean: float, idf: float, bound: float) -> int:
        saturated = often / (often + self.k1 * (1 - self.b + self.b * length / mean))
        return round(ONE * idf * (self.k1 + 1) / bound * saturated)
