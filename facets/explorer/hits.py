"""View models of hits, answers and titles. Pure."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from facetline.facets.explorer import formatting, sidebar
from facetline.facets.questions import Boolean, Choice, Question, Score

EXCERPT_MAX = 280
BEGINNING_CHARS = 8 * EXCERPT_MAX
"""Characters read for an excerpt; runs of white space collapse to one space."""
TITLE_MAX = 140
STATE_SHOWN_MAX = 4
# Options of a distribution that are drawn; the others are counted in one line.
BARS_MAX = 8
# State fields that may hold a title, most likely first.
_TITLES = ("title", "subject", "headline", "name", "summary")
# Default limit for "low": below it half of the answers or more may be wrong, whatever the model.
LOW_CONFIDENCE = 0.5


@dataclass(frozen=True, slots=True)
class Bar:
    """One value of a distribution; `share` 0 to 100."""

    label: str
    probability: str
    share: float
    chosen: bool
    hue: int


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: `share` is its confidence, 0 to 100; `low`: the confidence is below the limit."""

    question: str
    ask: str
    kind: str
    label: str
    confidence: str
    share: float
    low: bool
    known: bool
    hue: int
    bars: list[Bar]
    rest: str


@dataclass(frozen=True, slots=True)
class Hit:
    """One line of the results."""

    uri: str
    href: str
    title: str
    named: bool
    key: str
    excerpt: str
    answers: list[Answer]
    state: list[tuple[str, str]]
    status: str
    reason: str
    outdated: bool
    snippet: tuple["Piece", ...] = ()
    """The line that was found, in pieces; empty where no text was looked for."""
    by_meaning: bool = False
    """Whether it has none of the words."""

    @property
    def is_whole(self) -> bool:
        """Whether the snippet is all that there is to show of the text."""
        return bool(self.snippet) and "".join(piece.text for piece in self.snippet) == self.excerpt


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a snippet, marked or not."""

    text: str
    marked: bool


def href_of(collection: str, uri: str) -> str:
    """Return the URL of a document's page."""
    return f"/{collection}/{quote(uri, safe='/@:')}"


def hit(
    collection: str, questions: Mapping[str, Question], found: Mapping[str, Any], body: str | None, least: float | None
) -> Hit:
    """Return one hit with an excerpt of the body, if given."""
    title = title_of(found["state"])
    return Hit(
        uri=found["uri"],
        href=href_of(collection, found["uri"]),
        title=title or found["key"],
        named=title is not None,
        key=found["key"],
        excerpt=excerpt(body),
        answers=answers(questions, found["facets"], least),
        state=_state(found["state"], title),
        status=found["status"],
        reason=found.get("reason") or "",
        outdated=bool(found.get("outdated")),
        snippet=pieces(found.get("snippet"), found.get("snippet_marks") or ()),
        by_meaning=(found.get("score_details") or {}).get("words", [1])[0] == 0,
    )


def pieces(snippet: str | None, marks: Sequence[Mapping[str, int]]) -> tuple[Piece, ...]:
    """Return a snippet in pieces, marked and not."""
    text, found, end = snippet or "", [], 0
    for mark in marks:
        found += [Piece(text[end : mark["start"]], marked=False), Piece(text[mark["start"] : mark["end"]], marked=True)]
        end = mark["end"]
    return tuple(piece for piece in (*found, Piece(text[end:], marked=False)) if piece.text)


def title_of(state: Mapping[str, Any] | None) -> str | None:
    """Return the document's title from its state, or None."""
    for name in _TITLES:
        value = (state or {}).get(name)
        if isinstance(value, str) and value.strip():
            return _cut(value, TITLE_MAX)
    return None


def excerpt(body: str | None) -> str:
    """Return the first characters of a body on one line."""
    return _cut(body or "", EXCERPT_MAX)


def answers(
    questions: Mapping[str, Question], given: Mapping[str, Mapping[str, Any]] | None, least: float | None
) -> list[Answer]:
    """Return the answers in the order of the questions, without answers to former questions."""
    return [
        _answer(name, question, given[name], LOW_CONFIDENCE if least is None else least)
        for name, question in questions.items()
        if given and name in given and given[name].get("type") == question.type
    ]


def _answer(name: str, question: Question, value: Mapping[str, Any], least: float) -> Answer:
    sure = value.get("confidence")
    known = not isinstance(question, Choice) or value["choice"] in question.options
    bars = _bars(question, value)
    return Answer(
        question=name,
        ask=question.ask,
        kind=question.type,
        label=_label(value),
        confidence="" if sure is None else formatting.confidence(sure),
        share=0 if sure is None else round(100 * sure, 1),
        low=sure is not None and sure < least,
        known=known,
        hue=_hue(question, value),
        bars=bars[:BARS_MAX],
        rest=f"{len(bars) - BARS_MAX} more" if len(bars) > BARS_MAX else "",
    )


def _label(value: Mapping[str, Any]) -> str:
    if value["type"] == "choice":
        return str(value["choice"])
    return sidebar.label_of(value["value"]) if value["type"] == "boolean" else str(value["level"])


def _hue(question: Question, value: Mapping[str, Any]) -> int:
    if isinstance(question, Choice):
        options = list(question.options)
        return options.index(value["choice"]) % sidebar.HUES if value["choice"] in options else 0
    if isinstance(question, Score):
        return sidebar.ramp(_place(question.levels, value["level"]), len(question.levels))
    return sidebar.ramp(int(value["value"]), 2)


def _place(levels: Sequence[str], level: str) -> int:
    return levels.index(level) if level in levels else 0


def _bars(question: Question, value: Mapping[str, Any]) -> list[Bar]:
    """Return the distribution, most probable first; levels of a score in their declared order."""
    if isinstance(question, Boolean):
        yes = value["probability"]
        pairs = [] if yes is None else [("yes", yes, value["value"]), ("no", 1 - yes, not value["value"])]
    elif isinstance(question, Choice):
        found = value.get("probabilities") or {}
        pairs = [(option, part, option == value["choice"]) for option, part in found.items()]
        pairs.sort(key=lambda pair: -pair[1])
    else:
        found = value.get("probabilities") or {}
        pairs = [
            (level, found.get(str(place), 0.0), level == value["level"]) for place, level in enumerate(question.levels)
        ]
        pairs = pairs if found else []
    return [
        Bar(label, formatting.percent(part), round(100 * part, 1), chosen, _bar_hue(question, label, place))
        for place, (label, part, chosen) in enumerate(pairs)
    ]


def _bar_hue(question: Question, label: str, place: int) -> int:
    if isinstance(question, Choice):
        options = list(question.options)
        return options.index(label) % sidebar.HUES if label in options else 0
    return sidebar.ramp(place, len(question.levels)) if isinstance(question, Score) else sidebar.ramp(1 - place, 2)


def _state(state: Mapping[str, Any] | None, title: str | None) -> list[tuple[str, str]]:
    shown = (
        (name, _cut(str(sidebar.label_of(value)), 60))
        for name, value in (state or {}).items()
        if value is not None and not (name in _TITLES and title is not None and _cut(str(value), TITLE_MAX) == title)
    )
    return list(itertools.islice(shown, STATE_SHOWN_MAX))


def _cut(text: str, most: int) -> str:
    # Only a bounded part of the text is read.
    words = " ".join(text[: most * 8].split())
    return words if len(words) <= most else words[: most - 1].rsplit(" ", 1)[0].rstrip(" ,.;:") + "…"
