"""A search's reply (docs/search.md) out of the rows that the statements gave: pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from facetline.facets.documents import Status
from facetline.facets.questions import Boolean, Question, Score
from facetline.facets.search import histograms, own_counts, sql
from facetline.facets.search.selection import FacetSort, Selection, values_of
from facetline.facets.search.sql import Query

REASONS = ("pending", "failed", "empty", "low_confidence", "outdated")
_REASON_OF_STATUS = {
    Status.PENDING: "pending",
    Status.FAILED: "failed",
    Status.EMPTY: "empty",
    Status.INDEXED: "outdated",
}


def hit(row: Sequence[Any]) -> dict[str, Any]:
    """Return one hit: the document without its body."""
    uri, key, version, revision, indexed_as, status, outdated, facets, state = row[: len(sql.HIT)]
    found = {
        "uri": uri,
        "key": key,
        "version": version,
        "revision": revision,
        "indexed_as": indexed_as,
        "status": status,
        "facets": None if facets is None else json.loads(facets),
        "state": None if state is None else json.loads(state),
    }
    return {**found, "outdated": True} if outdated else found


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a reply."""

    total: int
    pending: int
    facets: list[dict[str, Any]]


def numbers(query: Query, rows: Iterable[Sequence[Any]]) -> Numbers:
    """Return what the rows of `sql.numbers` say; the facets are in the order in which they were asked for."""
    by_facet: list[list[Sequence[Any]]] = [[] for _ in query.counted]
    alone = {}
    for number, *row in rows:
        if number < 0:
            alone[number] = row[_DOCUMENTS]
        else:
            by_facet[number].append(row)
    facets = [_facet(query, name, found) for name, found in zip(query.counted, by_facet, strict=True)]
    place = sql.total_of(query)
    return Numbers(alone[sql.TOTAL] if place == sql.TOTAL else facets[place]["total"], alone[sql.PENDING], facets)


_DOCUMENTS = 3
"""Which cell, after the number, says how many there are."""


class _Counted:
    """What the rows of one facet add up to."""

    def __init__(self, question: Question) -> None:
        self.buckets = dict.fromkeys(values_of(question), 0)
        self.missing = dict.fromkeys(REASONS, 0)
        self.intervals: dict[int, int] = {}
        self.ends: list[float] = []

    def add(
        self,
        value: str | None,
        status: str,
        interval: int | None,
        documents: int,
        confident: int,
        low: float | None,
        high: float | None,
    ) -> None:
        """Take one row of `sql.numbers` about this facet."""
        if value is None:
            self.missing[_REASON_OF_STATUS[Status(status)]] += documents
            return
        self.buckets[value] += confident
        self.missing["low_confidence"] += documents - confident
        if interval is not None:
            self.intervals[interval] = self.intervals.get(interval, 0) + confident
        self.ends += [end for end in (low, high) if end is not None]


def _facet(query: Query, name: str, rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    if name not in query.table.questions:
        return own_counts.facet(query.table.columns[name], query.selection, list(rows))
    found = _Counted(query.table.questions[name])
    for row in rows:
        found.add(*row)
    question, selected = query.table.questions[name], query.selection.facets.get(name, ())
    absent = sum(found.missing.values())
    shown, truncated = _shown(query.selection, found.buckets, selected)
    answered = sum(found.buckets.values())
    facet = {
        "name": name,
        "type": question.type,
        "mode": query.selection.facet_mode,
        "total": answered + absent,
        "buckets": [
            {
                "value": value == "true" if isinstance(question, Boolean) else value,
                "count": found.buckets[value],
                "selected": value in selected,
            }
            for value in shown
        ],
        "other_count": answered - sum(found.buckets[value] for value in shown),
        "truncated": truncated,
        "missing": {"count": absent, **found.missing},
    }
    if isinstance(question, Score):
        facet["min"] = min(found.ends, default=None)
        facet["max"] = max(found.ends, default=None)
        facet["histogram"] = histograms.histogram(question, found.intervals)
    return facet


def _shown(selection: Selection, buckets: Mapping[str, int], selected: Sequence[str]) -> tuple[list[str], bool]:
    """Return the values of the buckets to show, in order, and whether some were cut off.

    What is cut off are the emptiest, in whatever order the rest is shown; what is selected stays.
    """
    enough = [value for value, count in buckets.items() if count >= selection.facet_min_count or value in selected]
    fullest = sorted(enough, key=lambda value: -buckets[value])
    kept = [*(v for v in fullest if v in selected), *(v for v in fullest if v not in selected)]
    kept = kept[: max(selection.facet_size, len([v for v in fullest if v in selected]))]
    orders: dict[FacetSort, list[str]] = {"count": fullest, "alpha": sorted(enough), "declared": enough}
    return [value for value in orders[selection.facet_sort] if value in kept], len(kept) < len(enough)
