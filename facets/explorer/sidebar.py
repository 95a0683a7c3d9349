"""The sidebar: one section for each question, with its counts, out of a search's reply. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from facetline.facets.explorer import formatting
from facetline.facets.explorer.search_url import Asked
from facetline.facets.questions import Boolean, Choice, Question
from facetline.facets.search.selection import MISSING, values_of

# Colours of options, in their declared order; they come round again.
HUES = 8
# Options of one question that are shown before the rest is folded away.
OPEN_MAX = 12

NO_ANSWER = "no answer"
REASONS = {
    "pending": "not asked yet",
    "failed": "failed",
    "empty": "blank",
    "low_confidence": "below the minimum confidence",
    "outdated": "answers to an older question",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One value of a question: `share` is that of the busiest one, 0 to 100."""

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
    """One column of a score's picture, all of them 0 to 100."""

    x: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Facet:
    """One section; `kind` is `choice`, `boolean` or `score`; `columns` draw how scores are spread."""

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
        """Options that are not folded away."""
        return self.options[:OPEN_MAX]

    @property
    def folded(self) -> list[Option]:
        """The others."""
        return self.options[OPEN_MAX:]


def facets(asked: Asked, questions: Mapping[str, Question], reply: list[dict[str, Any]]) -> list[Facet]:
    """Return the sections in the order of the questions."""
    return [_facet(asked, questions[each["name"]], each) for each in reply if each["name"] in questions]


def _facet(asked: Asked, question: Question, reply: dict[str, Any]) -> Facet:
    name = reply["name"]
    most = max([1, *(bucket["count"] for bucket in reply["buckets"])])
    options = _options(asked, name, question, reply["buckets"], most)
    missing = _missing(asked, name, reply["missing"]["count"], most)
    clear = asked.with_values(name, ()).address() if name in asked.facets else None
    reasons = [
        f"{formatting.count(reply['missing'][reason])} {given}"
        for reason, given in REASONS.items()
        if reply["missing"].get(reason)
    ]
    return Facet(
        name, question.type, question.ask, options, missing, reasons, clear, _columns(reply.get("histogram") or [])
    )


def _options(asked: Asked, name: str, question: Question, buckets: list[dict[str, Any]], most: int) -> list[Option]:
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
    # A few stay in the declared order, which people get used to. Of many the busiest come first, after what is ticked.
    return sorted(found, key=lambda option: (not option.selected, -option.count)) if len(found) > OPEN_MAX else found


def _missing(asked: Asked, name: str, count: int, most: int) -> Option:
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
    """Return how a value is said: booleans as yes and no."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def value_label(question: Question | None, value: str) -> str:
    """Return how a value of an address is shown."""
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
    """Return the colour of a place on a scale."""
    return round(place * (HUES - 1) / max(1, values - 1))
