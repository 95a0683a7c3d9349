"""The sidebar: one section for each question, with its counts, out of a search's reply. Pure.

Choices are ticked; booleans and levels are clauses of the filter, because only choices are selected by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from facets.explorer import clauses, numbers
from facets.explorer.asked import Asked
from facets.questions import Boolean, Choice, Question
from facets.selection import MISSING

# Colours of options, in their declared order; they come round again.
HUES = 8
# Options of one question that are shown before the rest is folded away.
OPEN_MAX = 12

REASONS = {
    "pending": "not asked yet",
    "failed": "failed",
    "empty": "blank",
    "low_confidence": "not sure enough",
    "outdated": "answered before the question changed",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One value of a question: `share` is that of the busiest one, 0 to 100; `href` the search with one click more."""

    id: str
    value: str
    label: str
    description: str
    count: int
    share: float
    selected: bool
    href: str
    hue: int


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a score's picture, all of them 0 to 100."""

    x: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Facet:
    """One section; `kind` is `choice` (ticked), `boolean` or `score` (links); `columns` draw how scores are spread."""

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
    if isinstance(question, Choice):
        options = _ticked(asked, name, question, reply["buckets"], most)
        missing = _ticked_missing(asked, name, reply["missing"]["count"], most)
        clear = asked.with_values(name, ()).address() if name in asked.facets else None
    else:
        options, missing, clear = _linked(asked, name, question, reply, most)
    reasons = [
        f"{numbers.count(reply['missing'][reason])} {said}"
        for reason, said in REASONS.items()
        if reply["missing"].get(reason)
    ]
    return Facet(
        name, question.type, question.ask, options, missing, reasons, clear, _columns(reply.get("histogram") or [])
    )


def _ticked(asked: Asked, name: str, question: Choice, buckets: list[dict[str, Any]], most: int) -> list[Option]:
    selected = asked.facets.get(name, ())
    places = {value: place for place, value in enumerate(question.options)}
    found = [
        Option(
            id=f"f-{name}-{places[bucket['value']]}",
            value=bucket["value"],
            label=bucket["value"],
            description=question.options[bucket["value"]],
            count=bucket["count"],
            share=_share(bucket["count"], most),
            selected=bucket["value"] in selected,
            href=asked.toggled(name, bucket["value"]).address(),
            hue=places[bucket["value"]] % HUES,
        )
        for bucket in buckets
    ]
    # A few stay in the declared order, which people get used to. Of many the busiest come first, after what is ticked.
    return sorted(found, key=lambda option: (not option.selected, -option.count)) if len(found) > OPEN_MAX else found


def _ticked_missing(asked: Asked, name: str, count: int, most: int) -> Option:
    return Option(
        id=f"f-{name}-missing",
        value=MISSING,
        label="no answer",
        description="Documents without a usable answer to this question",
        count=count,
        share=_share(count, most),
        selected=MISSING in asked.facets.get(name, ()),
        href=asked.toggled(name, MISSING).address(),
        hue=0,
    )


def _linked(
    asked: Asked, name: str, question: Question, reply: dict[str, Any], most: int
) -> tuple[list[Option], Option, str | None]:
    values = [bucket["value"] for bucket in reply["buckets"]]
    texts = [_clause(name, question, value, asked.min_confidence) for value in values]
    absent = _absent(name, asked.min_confidence)
    made = (*texts, absent)
    now = clauses.split(asked.filter)

    def option(place: int | str, value: Any, count: int, clause: str, label: str) -> Option:
        selected = clause in now
        changed = clauses.without(asked.filter, made) if selected else clauses.replaced(asked.filter, made, clause)
        return Option(
            id=f"f-{name}-{place}",
            value=str(value),
            label=label,
            description=clause,
            count=count,
            share=_share(count, most),
            selected=selected,
            href=asked.with_filter(changed).address(),
            hue=_hue(question, place, len(values)) if isinstance(place, int) else 0,
        )

    options = [
        option(place, value, bucket["count"], text, label_of(value))
        for place, (value, bucket, text) in enumerate(zip(values, reply["buckets"], texts, strict=True))
    ]
    missing = option("missing", MISSING, reply["missing"]["count"], absent, "no answer")
    chosen = any(each in now for each in made)
    return options, missing, asked.with_filter(clauses.without(asked.filter, made)).address() if chosen else None


def label_of(value: Any) -> str:
    """Return how a value is said: booleans as yes and no."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _clause(name: str, question: Question, value: Any, least: float | None) -> str:
    if isinstance(question, Boolean):
        plain = f"{name} = {'true' if value else 'false'}"
    else:
        plain = f"{name}_level = {clauses.quoted(value)}"
    # The count leaves out answers that are not sure enough, so what is selected must do so too.
    return plain if least is None else f"({plain} AND {name}_confidence >= {least:g})"


def _absent(name: str, least: float | None) -> str:
    return f"{name} IS NULL" if least is None else f"NOT ({name} IS NOT NULL AND {name}_confidence >= {least:g})"


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
    return ramp(1 - place, 2) if isinstance(question, Boolean) else ramp(place, values)


def ramp(place: int, values: int) -> int:
    """Return the colour of a place on a scale."""
    return round(place * (HUES - 1) / max(1, values - 1))
