"""View model of the sidebar: one section per question or own field with its counts, from a search's reply. Pure."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from facetline.facets.explorer import formatting
from facetline.facets.explorer.search_url import SearchUrl
from facetline.facets.questions import Boolean, Choice, Question
from facetline.facets.search.selection import MISSING, values_of

# Number of colours of options, assigned in declared order and repeated.
HUES = 8
# Options of one question that are shown; the rest is collapsed.
OPEN_MAX = 12

NO_ANSWER = "no answer"
NO_VALUE = "no value"
REASONS = {
    "pending": "not asked yet",
    "failed": "failed",
    "empty": "blank",
    "low_confidence": "below the minimum confidence",
    "outdated": "answers to an older question",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One value of a question: `share` is its count relative to the highest count, 0 to 100."""

    id: str
    value: str
    label: str
    description: str
    count: int
    share: float
    selected: bool
    hue: int


@dataclass(frozen=True, slots=True)
class Column:
    """One bar of a score's histogram; all values are 0 to 100."""

    x: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Facet:
    """One section; `kind` is `choice`, `boolean` or `score`; `columns` are the bars of a score's histogram."""

    name: str
    kind: str
    ask: str
    options: list[Option]
    missing: Option
    reasons: list[str]
    clear: str | None
    columns: list[Column]

    @property
    def shown(self) -> list[Option]:
        """Visible options."""
        return self.options[:OPEN_MAX]

    @property
    def folded(self) -> list[Option]:
        """Collapsed options."""
        return self.options[OPEN_MAX:]


def facets(asked: SearchUrl, questions: Mapping[str, Question], reply: list[dict[str, Any]]) -> list[Facet]:
    """Return the sections in the order of the reply."""
    return [
        _facet(asked, questions[each["name"]], each) if each["name"] in questions else _own_field(asked, each)
        for each in reply
    ]


def _own_field(asked: SearchUrl, reply: dict[str, Any]) -> Facet:
    name = reply["name"]
    selected = asked.facets.get(name, ())
    most = max([1, *(bucket["count"] for bucket in reply["buckets"])])
    options = []
    for bucket in reply["buckets"]:
        value = str(bucket["value"]).lower() if isinstance(bucket["value"], bool) else str(bucket["value"])
        options.append(
            Option(
                # By the value, not the place: values come and go, and the focus stays.
                id=f"f-{name}-{hashlib.sha256(value.encode()).hexdigest()[:12]}",
                value=value,
                label=label_of(bucket["value"]) or "(empty)",
                description="",
                count=bucket["count"],
                share=_share(bucket["count"], most),
                selected=value in selected,
                hue=0,
            )
        )
    options.sort(key=lambda option: not option.selected)
    missing = replace(
        _missing(asked, name, reply["missing"]["count"], most),
        label=NO_VALUE,
        description="Documents without a value in this field",
    )
    clear = asked.with_values(name, ()).address() if selected else None
    return Facet(name, "choice", "A field of the documents", options, missing, [], clear, [])


def _facet(asked: SearchUrl, question: Question, reply: dict[str, Any]) -> Facet:
    name = reply["name"]
    most = max([1, *(bucket["count"] for bucket in reply["buckets"])])
    options = _options(asked, name, question, reply["buckets"], most)
    missing = _missing(asked, name, reply["missing"]["count"], most)
    clear = asked.with_values(name, ()).address() if name in asked.facets else None
    reasons = [
        f"{formatting.count(reply['missing'][reason])} {label}"
        for reason, label in REASONS.items()
        if reply["missing"].get(reason)
    ]
    return Facet(
        name, question.type, question.ask, options, missing, reasons, clear, _columns(reply.get("histogram") or [])
    )


def _options(asked: SearchUrl, name: str, question: Question, buckets: list[dict[str, Any]], most: int) -> list[Option]:
    selected = asked.facets.get(name, ())
    values = values_of(question)
    places = {value: place for place, value in enumerate(values)}
    found = []
    for bucket in buckets:
        value = str(bucket["value"]).lower() if isinstance(question, Boolean) else bucket["value"]
        found.append(
            Option(
                id=f"f-{name}-{places[value]}",
                value=value,
                label=value_label(question, value),
                description=question.options[value] if isinstance(question, Choice) else "",
                count=bucket["count"],
                share=_share(bucket["count"], most),
                selected=value in selected,
                hue=_hue(question, places[value], len(values)),
            )
        )
    # Few options stay in declared order. Many are sorted: selected ones first, then by count.
    return sorted(found, key=lambda option: (not option.selected, -option.count)) if len(found) > OPEN_MAX else found


def _missing(asked: SearchUrl, name: str, count: int, most: int) -> Option:
    return Option(
        id=f"f-{name}-missing",
        value=MISSING,
        label=NO_ANSWER,
        description="Documents without a usable answer to this question",
        count=count,
        share=_share(count, most),
        selected=MISSING in asked.facets.get(name, ()),
        hue=0,
    )


def label_of(value: Any) -> str:
    """Return the label of a value; booleans as yes and no."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def value_label(question: Question | None, value: str) -> str:
    """Return the label of a value from the URL."""
    if value == MISSING:
        return NO_ANSWER
    return label_of(value == "true") if isinstance(question, Boolean) and value in values_of(question) else value


def _columns(histogram: list[dict[str, Any]]) -> list[Column]:
    most = max([1, *(each["count"] for each in histogram)])
    width = 100 / max(1, len(histogram))
    return [
        Column(round(place * width, 2), round(width * 0.8, 2), max(4.0, round(100 * each["count"] / most, 1)))
        for place, each in enumerate(histogram)
        if each["count"]
    ]


def _share(count: int, most: int) -> float:
    return 0 if count == 0 else max(1.0, round(100 * count / most, 1))


def _hue(question: Question, place: int, values: int) -> int:
    if isinstance(question, Choice):
        return place % HUES
    return ramp(1 - place, 2) if isinstance(question, Boolean) else ramp(place, values)


def ramp(place: int, values: int) -> int:
    """Return the colour index of a position on a scale."""
    return round(place * (HUES - 1) / max(1, values - 1))
