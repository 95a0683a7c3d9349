"""Fit the embedded model's temperature on labelled texts, and measure what its confidence is worth.

Every other text (the first, the third, …) is fitted on, the others are measured: what is reported of a temperature
comes from texts that it has not seen. `facetline evaluate --fit-temperature` is its command.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from facetline.evaluators.embedded import calibration, evaluator
from facetline.evaluators.embedded.calibration import Calibration
from facetline.evaluators.quality import measures
from facetline.evaluators.quality.measures import Judged, Measured
from facetline.facets.questions import Choice

TEXTS_MIN = 2
"""One to fit on and one to measure on; below some hundreds the interval says how little that is."""


@dataclass(frozen=True, slots=True)
class Likened:
    """A text's likeness to each option of a question, and which option is right."""

    question: str
    likeness: Mapping[str, float]
    label: str


@dataclass(frozen=True, slots=True)
class Fit:
    """A temperature with its origin, and each question's figures on the texts that it was not fitted on."""

    calibration: Calibration
    measured: Mapping[str, Measured]


def fit(
    texts: Sequence[Sequence[Likened]], questions: Mapping[str, Choice], *, source: str, date: str, command: str
) -> Fit:
    """Fit one temperature for all questions; `texts` holds what each text was likened to, question by question.

    Raises:
        ValueError: there are too few texts.
    """
    if len(texts) < TEXTS_MIN:
        raise ValueError(f"{len(texts)} labelled texts; a fit takes {TEXTS_MIN} at least, and some hundreds to be good")
    fitted = [likened for text in texts[::2] for likened in text]
    options = [sorted(likened.likeness) for likened in fitted]
    temperature = calibration.fit(
        [[likened.likeness[name] for name in names] for likened, names in zip(fitted, options, strict=True)],
        [names.index(likened.label) for likened, names in zip(fitted, options, strict=True)],
    )
    temperature = round(temperature, 3)
    judged = {name: _judged(name, texts[1::2], temperature) for name in questions}
    every = [(each.answer.confidence or 0.0, _right(each)) for listed in judged.values() for each in listed]
    bins = calibration.reliability([confidence for confidence, _ in every], [right for _, right in every])
    known = Calibration(
        model=evaluator.MODEL,
        source=source,
        options=max(len(question.options) for question in questions.values()),
        fitted_on=len(fitted),
        measured_on=len(every),
        temperature=temperature,
        accuracy=round(sum(right for _, right in every) / len(every), 4),
        ece=round(calibration.expected_error(bins), 4),
        reliability=tuple(bins),
        date=date,
        command=command,
    )
    return Fit(known, {name: measures.measure(questions[name], judged[name]) for name in questions})


def _judged(question: str, texts: Sequence[Sequence[Likened]], temperature: float) -> list[Judged]:
    of_it = [likened for text in texts for likened in text if likened.question == question]
    return [Judged(likened.label, evaluator.choice_of(likened.likeness, temperature)) for likened in of_it]


def _right(judged: Judged) -> bool:
    return getattr(judged.answer, "choice", None) == judged.label
