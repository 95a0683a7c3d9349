"""Where a text holds what was looked for: places in code points, the lines they span, and a snippet."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from facetline.facets.text import lines
from facetline.facets.text.words import Span, spans

PLACES_MAX = 100
"""Of one document: what a page can show."""
BODY = "body"


@dataclass(frozen=True, slots=True)
class Highlights:
    """The places of one document; `snippet` None where no field holds any."""

    places: list[dict[str, Any]]
    snippet: str | None
    marks: list[dict[str, int]]
    """Start and end of the words in the snippet."""
    line_range: dict[str, int] | None


def find(fields: Mapping[str, str], wanted: Collection[str]) -> Highlights:
    """Return where these words stand in the fields of a document.

    The lines are those of the body, from the first to the last with a word. The snippet is the line of the body with
    most different words, else the first field that holds one.
    """
    found = {name: [span for span in spans(text) if span.word in wanted] for name, text in fields.items()}
    places = [
        {"field": name, "start": start, "end": end} for name, each in found.items() for start, end in _merged(each)
    ]
    shown = next((name for name in (BODY, *fields) if found.get(name)), None)
    snippet = None if shown is None else _snippet(fields[shown], found[shown])
    in_snippet = [] if snippet is None else [span for span in spans(snippet) if span.word in wanted]
    return Highlights(
        places[:PLACES_MAX],
        snippet,
        [{"start": start, "end": end} for start, end in _merged(in_snippet)],
        _line_range(fields[BODY], found[BODY]) if found.get(BODY) else None,
    )


def _merged(found: list[Span]) -> list[tuple[int, int]]:
    """Return the places in order; pairs of characters that overlap become one place."""
    merged: list[tuple[int, int]] = []
    for span in found:
        if merged and span.start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], span.end))
        else:
            merged.append((span.start, span.end))
    return merged


def _line_range(text: str, found: list[Span]) -> dict[str, int]:
    return {"start": text.count("\n", 0, found[0].start) + 1, "end": text.count("\n", 0, found[-1].start) + 1}


def _snippet(text: str, found: list[Span]) -> str:
    by_line: dict[int, set[str]] = {}
    first: dict[int, int] = {}
    for span in found:
        start = text.rfind("\n", 0, span.start) + 1
        by_line.setdefault(start, set()).add(span.word)
        first.setdefault(start, span.start - start)
    best = max(by_line, key=lambda start: (len(by_line[start]), -start))
    end = text.find("\n", best)
    return lines.shown(text[best : end if end >= 0 else len(text)], first[best])
