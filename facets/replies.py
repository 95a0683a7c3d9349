"""A search's reply (DESIGN §8) out of the rows that the statements gave: pure."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from facets import sql
from facets.documents import Status
from facets.questions import Boolean, Choice, Question, Score
from facets.sql import Query

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


def facets(query: Query, rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the counts of all counted facets, in the order in which they were asked for."""
    names = query.selection.counts
    by_facet: list[list[Sequence[Any]]] = [[] for _ in names]
    for number, *row in rows:
        by_facet[number].append(row)
    return [_facet(query, name, found) for name, found in zip(names, by_facet, strict=True)]


def _facet(query: Query, name: str, rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    question = query.table.questions[name]
    selected = query.selection.facets.get(name, ())
    buckets = dict.fromkeys(_values(question), 0)
    missing = dict.fromkeys(REASONS, 0)
    for value, status, documents, confident in rows:
        if value is None:
            missing[_REASON_OF_STATUS[Status(status)]] += documents
        else:
            buckets[value] += confident
            missing["low_confidence"] += documents - confident
    absent = sum(missing.values())
    return {
        "name": name,
        "type": question.type,
        "total": sum(buckets.values()) + absent,
        "buckets": [
            {
                "value": value == "true" if isinstance(question, Boolean) else value,
                "count": count,
                "selected": value in selected,
            }
            for value, count in buckets.items()
        ],
        "missing": {"count": absent, **missing},
    }


def _values(question: Question) -> tuple[str, ...]:
    match question:
        case Choice():
            return tuple(question.options)
        case Score():
            return question.levels
    return ("true", "false")
