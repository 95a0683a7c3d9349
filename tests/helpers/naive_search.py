"""The search as DESIGN §8 says it, one document at a time in plain Python: what the real one is compared with."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import searched

from facets.documents import Record, Status
from facets.questions import Boolean, Choice
from facets.selection import Selection

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
    if least is not None and (found["confidence"] is None or found["confidence"] < least):
        return "low_confidence"
    return None


def value(record: Record, column: str) -> Any:
    """Return what a document has in a column, None without a value."""
    if column.startswith("doc_"):
        return _document_value(record, column.removeprefix("doc_"))
    if column.startswith("state_"):
        found = (record.state or {}).get(column.removeprefix("state_"))
        return datetime.fromisoformat(found) if column == "state_due" and found is not None else found
    for ending, part in (("_confidence", "confidence"), ("_probability", "probability"), ("_level", "level")):
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
        reason = missing(record, question, selection.min_confidence)
        found = "__missing__" if reason else (answer(record, question) or {})["choice"]
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
    found = [record for record in records if matches(record, selection, predicate, but=question)]
    reasons = [missing(record, question, selection.min_confidence) for record in found]
    names = ("pending", "failed", "empty", "low_confidence", "outdated")
    values = list(asked.options) if isinstance(asked, Choice) else [True, False] if isinstance(asked, Boolean) else None
    part = {"choice": "choice", "boolean": "value", "score": "level"}[asked.type]
    answers = [answer(record, question) for record, reason in zip(found, reasons, strict=True) if reason is None]
    return {
        "name": question,
        "type": asked.type,
        "total": len(found),
        "buckets": [
            {
                "value": each,
                "count": sum(1 for given in answers if given is not None and given[part] == each),
                "selected": each in selection.facets.get(question, ()),
            }
            for each in (searched.LEVELS if values is None else values)
        ],
        "missing": {"count": sum(1 for reason in reasons if reason), **{name: reasons.count(name) for name in names}},
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
