"""The search as DESIGN §8 says it, one document at a time in plain Python: what the real one is compared with."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import searched

from facetline.facets.documents import Record, Status
from facetline.facets.questions import Boolean, Choice
from facetline.facets.search.selection import Selection

_FINGERPRINT = searched.definition().fingerprint
Predicate = Callable[[Record], bool]


def alive(records: Sequence[Record]) -> list[Record]:
    """Return the newest record of each uri, without the deleted."""
    newest: dict[str, Record] = {}
    for record in records:
        if record.uri not in newest or newest[record.uri].version < record.version:
            newest[record.uri] = record
    return [record for record in newest.values() if record.status != "deleted"]


def answer(record: Record, question: str) -> dict[str, Any] | None:
    """Return the answer to a question that is declared now, None without one."""
    asked = searched.QUESTIONS[question]
    found = (record.facets or {}).get(question)
    if record.status != "indexed" or found is None or found["type"] != asked.type:
        return None
    if isinstance(asked, Choice):
        return found if found["choice"] in asked.options else None
    if isinstance(asked, Boolean):
        return found
    return found if found["level"] in asked.levels else None


def missing(record: Record, question: str, least: float | None) -> str | None:
    """Return why a document has no usable answer, None when it has one."""
    if record.status != "indexed":
        return record.status.value
    found = answer(record, question)
    if found is None:
        return "outdated"
    sure = confidence(found)
    if least is not None and (sure is None or sure < least):
        return "low_confidence"
    return None


def said(found: dict[str, Any]) -> str:
    """Return the value that an answer is asked for by."""
    if found["type"] == "boolean":
        return "true" if found["value"] else "false"
    return found["choice"] if found["type"] == "choice" else found["level"]


def confidence(found: dict[str, Any]) -> float | None:
    """Return an answer's confidence: of a boolean without one, the probability of its more likely value."""
    given = found.get("confidence")
    if found["type"] != "boolean" or given is not None or found["probability"] is None:
        return given
    return round(max(found["probability"], 1 - found["probability"]), 12)


def value(record: Record, column: str) -> Any:
    """Return what a document has in a column, None without a value."""
    if column.startswith("doc_"):
        return _document_value(record, column.removeprefix("doc_"))
    if column.startswith("state_"):
        found = (record.state or {}).get(column.removeprefix("state_"))
        return datetime.fromisoformat(found) if column == "state_due" and found is not None else found
    if column.endswith("_confidence"):
        found = answer(record, column.removesuffix("_confidence"))
        return None if found is None else confidence(found)
    for ending, part in (("_probability", "probability"), ("_level", "level")):
        if column.endswith(ending):
            return (answer(record, column.removesuffix(ending)) or {}).get(part)
    part = {"choice": "choice", "boolean": "value", "score": "score"}[searched.QUESTIONS[column].type]
    return (answer(record, column) or {}).get(part)


def _document_value(record: Record, name: str) -> Any:
    if name == "outdated":
        return record.status == "indexed" and record.fingerprint != _FINGERPRINT
    found = getattr(record, name)
    return found.value if isinstance(found, Status) else found


def matches(record: Record, selection: Selection, predicate: Predicate, *, but: str | None = None) -> bool:
    """Return whether a document is selected, the selection in facet `but` left aside."""
    if selection.scope is not None and record.scope != selection.scope:
        return False
    for question, wanted in selection.facets.items():
        reason = missing(record, question, least_of(selection, question))
        found = "__missing__" if reason else said(answer(record, question) or {})
        if question != but and found not in wanted:
            return False
    return predicate(record)


def ordered(records: Sequence[Record], sort: Sequence[str]) -> list[Record]:
    """Return the records in a selection's order: uri last, no value at the end."""
    found = sorted(records, key=lambda record: record.uri)
    for item in reversed(sort):
        column = item.removeprefix("-")
        known = [record for record in found if value(record, column) is not None]
        unknown = [record for record in found if value(record, column) is None]
        known.sort(key=lambda record, column=column: value(record, column))
        if item.startswith("-"):
            known = _reversed(known, column)
        found = known + unknown
    return found


def _reversed(records: list[Record], column: str) -> list[Record]:
    # Ties keep their order.
    groups: dict[Any, list[Record]] = {}
    for record in records:
        groups.setdefault(value(record, column), []).append(record)
    return [record for group in reversed(groups.values()) for record in group]


def counted(records: Sequence[Record], selection: Selection, predicate: Predicate, question: str) -> dict[str, Any]:
    """Return one facet of the reply."""
    asked = searched.QUESTIONS[question]
    but = question if selection.facet_mode == "disjunctive" else None
    least = least_of(selection, question)
    found = [record for record in records if matches(record, selection, predicate, but=but)]
    reasons = [missing(record, question, least) for record in found]
    names = ("pending", "failed", "empty", "low_confidence", "outdated")
    values = list(asked.options) if isinstance(asked, Choice) else [True, False] if isinstance(asked, Boolean) else None
    part = {"choice": "choice", "boolean": "value", "score": "level"}[asked.type]
    answers = [answer(record, question) or {} for record, reason in zip(found, reasons, strict=True) if reason is None]
    buckets = [
        {
            "value": each,
            "count": sum(1 for given in answers if given[part] == each),
            "selected": (str(each).lower() if isinstance(each, bool) else each) in selection.facets.get(question, ()),
        }
        for each in (searched.LEVELS if values is None else values)
    ]
    shown, truncated = _shown(buckets, selection)
    scores = [given["score"] for given in answers] if asked.type == "score" else []
    return {
        "name": question,
        "type": asked.type,
        "mode": selection.facet_mode,
        "total": len(found),
        "buckets": shown,
        "other_count": len(answers) - sum(bucket["count"] for bucket in shown),
        "truncated": truncated,
        "missing": {"count": sum(1 for reason in reasons if reason), **{name: reasons.count(name) for name in names}},
        **({} if asked.type != "score" else _ends(scores)),
    }


def least_of(selection: Selection, question: str) -> float | None:
    """Return the confidence that an answer to a question needs."""
    return selection.mc.get(question, selection.min_confidence)


def _shown(buckets: list[dict[str, Any]], selection: Selection) -> tuple[list[dict[str, Any]], bool]:
    """Return the buckets that are shown, and whether the size left some out."""
    places = {id(bucket): place for place, bucket in enumerate(buckets)}
    enough = [each for each in buckets if each["selected"] or each["count"] >= selection.facet_min_count]
    enough.sort(key=lambda each: (not each["selected"], -each["count"], places[id(each)]))
    kept = [each for place, each in enumerate(enough) if each["selected"] or place < selection.facet_size]
    orders: dict[str, Callable[[dict[str, Any]], Any]] = {
        "declared": lambda each: places[id(each)],
        "count": lambda each: (-each["count"], places[id(each)]),
        "alpha": lambda each: str(each["value"]).lower() if isinstance(each["value"], bool) else each["value"],
    }
    return sorted(kept, key=orders[selection.facet_sort]), len(kept) < len(enough)


def _ends(scores: list[float]) -> dict[str, Any]:
    """Return a score's part of the reply: three levels, so intervals of a quarter from 0 to 2."""
    starts = [number / 4 for number in range(9)]
    return {
        "min": min(scores, default=None),
        "max": max(scores, default=None),
        "histogram": [
            {"gte": start, "lt": start + 0.25, "count": sum(1 for score in scores if start <= score < start + 0.25)}
            for start in starts
        ],
    }


def hit(record: Record) -> dict[str, Any]:
    """Return one hit of the reply."""
    found = {
        "uri": record.uri,
        "key": record.key,
        "version": record.version,
        "revision": record.revision,
        "indexed_as": record.indexed_as,
        "status": record.status.value,
        "facets": record.facets if record.status == "indexed" else None,
        "state": record.state,
    }
    return {**found, "outdated": True} if _document_value(record, "outdated") else found
