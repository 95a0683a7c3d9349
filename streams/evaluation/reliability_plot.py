"""The reliability curve as a picture: how often right the answers of each confidence are, against the ideal. Pure.

One curve for each evaluator and question that has confidences; a point is a bin, as large as its share of the answers.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

SIDE, MARGIN, LEGEND = 420, 56, 20
"""Pixels: the plot's side, what is around it, and a line of the legend."""
COLOURS = ("#1b6ca8", "#c1521f", "#2f7d32", "#7a3e9d", "#a3236b", "#5d6b00")
"""Dark enough on white, and distinguishable for people who see no red or no green; further curves repeat them, dashed.
"""


def svg(report: Mapping[str, Any]) -> str:
    """Return the picture of a report (`streams.evaluation.report`); without confidences it says so."""
    curves = [
        (f"{each['evaluator']}: {name}, ECE {figures['ece']:.3f}", figures["reliability"])
        for each in report["evaluators"]
        for name, figures in each["questions"].items()
        if figures["reliability"]
    ]
    return "\n".join(_lines(curves)) + "\n"


def _lines(curves: Sequence[tuple[str, Sequence[Mapping[str, float]]]]) -> Iterator[str]:
    width, height = SIDE + 2 * MARGIN, SIDE + 2 * MARGIN + LEGEND * max(1, len(curves))
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="13" role="img" aria-label="Reliability of confidences">'
    )
    yield f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    yield from _axes()
    for number, (name, bins) in enumerate(curves):
        yield from _curve(number, name, bins)
    if not curves:
        yield f'<text x="{MARGIN}" y="{SIDE + 2 * MARGIN + 8}">no answer has a confidence</text>'
    yield "</svg>"


def _axes() -> Iterator[str]:
    for step in range(0, 11, 2):
        x, y = _at(step / 10, step / 10)
        yield f'<path d="M{x} {MARGIN}V{MARGIN + SIDE}M{MARGIN} {y}H{MARGIN + SIDE}" stroke="#dddddd" fill="none"/>'
        yield f'<text x="{x}" y="{MARGIN + SIDE + 18}" text-anchor="middle">{step / 10:g}</text>'
        yield f'<text x="{MARGIN - 8}" y="{y + 4}" text-anchor="end">{step / 10:g}</text>'
    low, high = _at(0, 0), _at(1, 1)
    yield f'<path d="M{low[0]} {low[1]}L{high[0]} {high[1]}" stroke="#888888" stroke-dasharray="4 4" fill="none"/>'
    middle = MARGIN + SIDE / 2
    yield f'<text x="{middle}" y="{MARGIN + SIDE + 38}" text-anchor="middle">confidence</text>'
    turned = f'transform="rotate(-90 16 {middle})"'
    yield f'<text x="16" y="{middle}" text-anchor="middle" {turned}>share that is right</text>'


def _curve(number: int, name: str, bins: Sequence[Mapping[str, float]]) -> Iterator[str]:
    colour = COLOURS[number % len(COLOURS)]
    dash = ' stroke-dasharray="6 3"' if number >= len(COLOURS) else ""
    total = sum(each["answers"] for each in bins)
    points = [_at(each["confidence"], each["right"]) for each in bins]
    path = "L".join(f"{x} {y}" for x, y in points)
    yield f'<path d="M{path}" stroke="{colour}" stroke-width="2" fill="none"{dash}/>'
    for (x, y), each in zip(points, bins, strict=True):
        radius = round(3 + 12 * math.sqrt(each["answers"] / total), 1)
        message = f"{each['answers']} answers, confidence {each['confidence']:.3f}, right {each['right']:.3f}"
        place = f'cx="{x}" cy="{y}" r="{radius}"'
        yield f'<circle {place} fill="{colour}" fill-opacity="0.35"><title>{message}</title></circle>'
    y = SIDE + 2 * MARGIN + LEGEND * number
    yield f'<rect x="{MARGIN}" y="{y}" width="12" height="12" fill="{colour}"/>'
    yield f'<text x="{MARGIN + 18}" y="{y + 11}">{escape(name)}</text>'


def _at(confidence: float, right: float) -> tuple[float, float]:
    return round(MARGIN + SIDE * confidence, 1), round(MARGIN + SIDE * (1 - right), 1)
