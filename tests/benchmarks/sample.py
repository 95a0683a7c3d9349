"""The documents, questions and evaluator of all benchmarks: 500 letters, four questions, an answer after a set time.

Also a collections module: `collections = "sample:collections"` in a configuration file, answers at once.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from facetline.evaluators import factory
from facetline.evaluators.contract import Evaluated, Identity, Limits
from facetline.facets import collections as collections_
from facetline.facets.answers import Answer, BooleanAnswer, ChoiceAnswer, ScoreAnswer
from facetline.facets.collections import definition_of
from facetline.facets.definitions import Definition, Definitions
from facetline.facets.questions import Choice, Question, Score, boolean, choice, score
from facetline.storage.db.engine import Store
from facetline.streams import pipeline
from facetline.streams import settings as settings_
from facetline.streams.classify.call import Assignment, CallLimits
from facetline.streams.local_writer import LocalWriter
from facetline.streams.pipeline import Headers, NewDocument

SLOTS = 64
"""Calls at once, in every benchmark."""
BATCH = 500
"""Documents of one write, as `facetline import` has them."""
TOPICS = ("billing", "outage", "feature", "account", "other")
QUESTIONS = {
    "topic": choice(ask="What is this support ticket about?", options={name: name.title() for name in TOPICS}),
    "status": choice(ask="Is the problem still open?", options={"open": "Not solved", "closed": "Solved"}),
    "urgent": boolean(ask="Does the customer need an answer today?"),
    "severity": score(ask="How bad is it?", levels=["cosmetic", "annoying", "work is blocked"]),
}
FILLER = "my card was charged again for a plan that I had already paid for, and nobody answers my mails; " * 5


class Sample:
    """The evaluator contract over a clock: the answer depends on the body's length and comes after `delay_s`."""

    kind = "sample"
    identity = Identity("sample", "sample-1")
    limits = Limits(frozenset({"choice", "boolean", "score"}), 255, 10)

    def __init__(self, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s

    async def evaluate(self, body: str, questions: Mapping[str, Question], *, key: str, deadline_s: float) -> Evaluated:
        """Wait, and answer."""
        await asyncio.sleep(self._delay_s)
        given = {name: _answer(question, len(body)) for name, question in questions.items()}
        return Evaluated(given, "sample-1", "test", {"tokens": 120})

    async def close(self) -> None:
        """Nothing is open."""


def _answer(question: Question, number: int) -> Answer:
    if isinstance(question, Choice):
        options = list(question.options)
        return ChoiceAnswer(choice=options[number % len(options)], confidence=0.9)
    return ScoreAnswer(score=1.2, confidence=0.7) if isinstance(question, Score) else BooleanAnswer(probability=0.8)


collections = [
    collections_.define_collection(
        name="tickets",
        pattern="tickets/*",
        evaluator=Sample(),
        state={"title": "string", "priority": "integer"},
        questions=QUESTIONS,
    )
]


def uri(number: int) -> str:
    """The uri of a document."""
    return f"tickets/t{number:07}"


def body(number: int, edition: int = 0) -> str:
    """A text that no other document has."""
    return f"{FILLER}{number} {edition}"


def state(number: int) -> dict[str, Any]:
    """A document's own fields."""
    return {"title": f"Ticket {number}", "priority": number % 5}


def definition() -> Definition:
    """The definition that goes with the evaluator, for benchmarks of a part alone."""
    own = Sample.identity
    return definition_of(
        collections[0],
        evaluator_name="tickets",
        kind=own.kind,
        model=own.model,
        identity=factory.fingerprint_identity(own),
    )


def assignments(delay_s: float = 0.0) -> dict[str, Assignment]:
    """The collection with an evaluator that takes its time."""
    return {"tickets": Assignment(definition(), Sample(delay_s), CallLimits(concurrency=SLOTS))}


async def write(store: Store, numbers: Sequence[int]) -> None:
    """Write documents as the local runtime does, in batches of an import's size; nobody is told."""
    writer, active = LocalWriter(store), Definitions([definition()])
    for start in range(0, len(numbers), BATCH):
        rows = [
            NewDocument(uri(number), body(number), state(number), str(number))
            for number in numbers[start : start + BATCH]
        ]
        sent = [pipeline.sent_write(active, row, Headers("bench", row.event_id)) for row in rows]
        await writer.append(sent)


def configure(folder: Path, **more: str) -> settings_.Settings:
    """Write a configuration that answers at once; return settings for it, `more` among them."""
    config = folder / "facetline.toml"
    config.write_text(f'collections = "sample:collections"\n[evaluators.tickets]\nconcurrency = {SLOTS}\n')
    return settings_.load_settings(config=config, data_folder=folder / "data", **more)
