"""From similarities to probabilities that mean something, by one temperature fitted on labelled texts.

A softmax with temperature t turns the options' similarities into a distribution. t is chosen so that the labels of a
fitting half are likeliest (least mean negative log-likelihood), and what it is worth is measured on the other half:
among the answers with a confidence of about 0.9, are about 90 % right? The expected calibration error (ECE) is the mean
gap between the two over ten equal bins, weighted by the number of answers in each.
"""

import functools
import importlib.resources
import math
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

BINS = 10
FIT_MIN, FIT_MAX, FIT_STEPS = 0.001, 1.0, 60
"""Where a temperature is sought: cosines of different options differ by hundredths."""


class Bin(BaseModel):
    """The answers with a confidence of `at_least` up to the next bin: how sure they were and how often right."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at_least: float
    answers: int
    confidence: float
    right: float


class Calibration(BaseModel):
    """A fitted temperature with its source and its worth on texts that it was not fitted on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    source: str
    options: int
    fitted_on: int
    measured_on: int
    temperature: float
    accuracy: float
    ece: float
    reliability: tuple[Bin, ...]
    date: str
    command: str


@functools.cache
def stored() -> Calibration:
    """Return the calibration that this version ships."""
    text = (importlib.resources.files("facetline.evaluators") / "data" / "calibration.json").read_text(encoding="utf-8")
    return Calibration.model_validate_json(text)


def softmax(similarities: Sequence[float], temperature: float) -> list[float]:
    """Return probabilities that add up to 1, in the same order."""
    highest = max(similarities)
    weights = [math.exp((value - highest) / temperature) for value in similarities]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def fit(similarities: Sequence[Sequence[float]], labels: Sequence[int]) -> float:
    """Return the temperature under which the labels (indices of the right option) are likeliest."""
    if not labels or len(labels) != len(similarities):
        raise ValueError(f"{len(similarities)} texts and {len(labels)} labels: a fit needs as many, and at least one")
    low, high = math.log(FIT_MIN), math.log(FIT_MAX)
    for _ in range(FIT_STEPS):  # the loss has one minimum over log t, so thirds that cannot hold it are cut off
        third = (high - low) / 3
        if _loss(similarities, labels, math.exp(low + third)) <= _loss(similarities, labels, math.exp(high - third)):
            high -= third
        else:
            low += third
    return math.exp((low + high) / 2)


def _loss(similarities: Sequence[Sequence[float]], labels: Sequence[int], temperature: float) -> float:
    total = 0.0
    for values, label in zip(similarities, labels, strict=True):
        highest = max(values)
        total += (highest - values[label]) / temperature
        total += math.log(sum(math.exp((value - highest) / temperature) for value in values))
    return total


def reliability(confidences: Sequence[float], right: Sequence[bool]) -> list[Bin]:
    """Return the bins that have answers, the least sure first."""
    bins: dict[int, list[int]] = {}
    for index, confidence in enumerate(confidences):
        bins.setdefault(min(int(confidence * BINS), BINS - 1), []).append(index)
    return [
        Bin(
            at_least=number / BINS,
            answers=len(members),
            confidence=round(sum(confidences[index] for index in members) / len(members), 3),
            right=round(sum(right[index] for index in members) / len(members), 3),
        )
        for number, members in sorted(bins.items())
    ]


def expected_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error of `bins`."""
    total = sum(each.answers for each in bins)
    return sum(each.answers * abs(each.confidence - each.right) for each in bins) / total
