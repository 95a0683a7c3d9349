"""Answers of an earlier system: what is taken from the wire, what is refused and why, and what folding makes of it."""

import json
from dataclasses import replace
from typing import Any

import builders
import judged
import pytest

from facetline.facets.documents import EventReason
from facetline.facets.questions import boolean, choice, score
from facetline.storage.log import folding
from facetline.storage.log.events import IMPORTED_FINGERPRINT, Answered, Content, Event
from facetline.streams.wire import codec, imported_answers

QUESTIONS = {
    "topic": choice(ask="About?", options={"billing": "Money", "outage": "Down", "other": "Else"}),
    "urgent": boolean(ask="Today?"),
    "severity": score(ask="How bad?", levels=["low", "middle", "high"]),
}
ACTIVE = builders.definitions(builders.definition(questions=QUESTIONS))
TOPIC = {"type": "choice", "choice": "billing", "confidence": 0.9}
URI = "tickets/t1"


def decoded(data: Any, **headers: str) -> Event:
    """What a worker makes of an import."""
    given = {"ce_type": codec.IMPORTED, **headers}
    return codec.decode(builders.raw(value=json.dumps(data), headers=given), builders.position(), ACTIVE)


def answers(data: Any) -> Answered:
    """The answers of a good import."""
    content = decoded(data).content
    assert content is not None
    assert content.answered is not None
    return content.answered


def test_answers_are_taken_in_their_public_form():
    """All three types, with what follows from them; who gave them and when is kept, and that they are imported."""
    facets = {
        "topic": {**TOPIC, "probabilities": {"billing": 0.9, "outage": 0.06, "other": 0.04}},
        "urgent": {"type": "boolean", "probability": 0.75},
        "severity": {"type": "score", "score": 1.6, "level": "high"},
    }
    told = {"evaluator": "old", "model": "svm-3", "classified_at": "2025-01-02T03:04:05+01:00"}
    found = answers({"body": "x", "facets": facets, "evaluation": {**told, "confidence_source": "votes"}})

    assert found.facets["urgent"] == {"type": "boolean", "value": True, "probability": 0.75, "confidence": 0.75}
    assert found.facets["severity"] == {"type": "score", "score": 1.6, "level": "high", "confidence": None}
    assert found.facets["topic"] == facets["topic"]
    said = {name: found.evaluation[name] for name in ("evaluator", "kind", "model", "confidence_source", "cached")}
    assert said == {
        "evaluator": "old",
        "kind": "imported",
        "model": "svm-3",
        "confidence_source": "votes",
        "cached": False,
    }
    assert found.classified_ms == 1_735_783_445_000


def test_without_a_word_about_them_they_are_of_somebody_unknown():
    """A confidence has a stated source all the same: that it was imported."""
    found = answers({"body": "x", "facets": {"topic": TOPIC}})

    assert (found.evaluation["evaluator"], found.evaluation["model"]) == ("imported", "unknown")
    assert found.evaluation["confidence_source"] == "imported"
    assert found.classified_ms is None


def test_the_fingerprint_is_never_an_active_one():
    """It depends on the answers and where they are from, and looks like no other fingerprint."""
    first = answers({"body": "x", "facets": {"topic": TOPIC}}).fingerprint
    same = answers({"body": "y", "facets": {"topic": dict(reversed(TOPIC.items()))}}).fingerprint
    other = answers({"body": "x", "facets": {"topic": {**TOPIC, "choice": "outage"}}}).fingerprint

    assert first == same != other
    assert first.startswith(IMPORTED_FINGERPRINT)
    assert IMPORTED_FINGERPRINT.strip("0123456789abcdef")


@pytest.mark.parametrize(
    ("data", "reason", "message"),
    [
        ({"body": "x"}, "invalid_facets", "facets are an object of answers"),
        ({"body": "x", "facets": {}}, "invalid_facets", "facets are an object of answers"),
        ({"body": "x", "facets": None}, "invalid_facets", "facets are an object of answers"),
        ({"facets": {"topic": TOPIC}}, "invalid_facets", "send the body"),
        ({"state": {"title": "a"}, "facets": {"topic": TOPIC}}, "invalid_facets", "send the body"),
        ({"body": " ", "facets": {"topic": TOPIC}}, "invalid_facets", "send the body"),
        ({"body": "x", "facets": {"topik": TOPIC}}, "invalid_facets", "'topik' is not asked (did you mean 'topic'?)"),
        ({"body": "x", "facets": {"topic": "billing"}}, "invalid_facets", "no facet value"),
        ({"body": "x", "facets": {"topic": {**TOPIC, "choice": "sales"}}}, "invalid_facets", "none of its options"),
        ({"body": "x", "facets": {"topic": {**TOPIC, "confidence": 2}}}, "invalid_facets", "from 0 to 1"),
        ({"body": "x", "facets": {"urgent": TOPIC}}, "invalid_facets", "a boolean question was answered with 'choice'"),
        ({"body": "x", "facets": {"severity": {"type": "score", "score": 9}}}, "invalid_facets", "from 0 to 2"),
        (
            {"body": "x", "facets": {"severity": {"type": "score", "score": 0, "level": "high"}}},
            "invalid_facets",
            "is level 'low', not 'high'",
        ),
        ({"body": "x", "facets": {"topic": TOPIC}, "evaluation": {"by": "me"}}, "invalid_facets", "has no 'by'"),
        ({"body": "x", "facets": {"topic": TOPIC}, "evaluation": {"model": ""}}, "invalid_facets", "model is text"),
        ({"body": "x", "facets": {"topic": TOPIC}, "evaluation": {"model": "a\0"}}, "invalid_facets", "without NUL"),
        ({"body": "x", "facets": {"topic": TOPIC}, "evaluation": {"model": "\ud800"}}, "invalid_facets", "is text"),
        ({"body": "x", "facets": {"topic": TOPIC}, "evaluation": []}, "invalid_facets", "evaluation is an object"),
        (
            {"body": "x", "facets": {"topic": TOPIC}, "evaluation": {"classified_at": "2025-01-02T03:04:05"}},
            "invalid_facets",
            "with its offset",
        ),
        ({"body": "x", "facets": {"topic": TOPIC}, "facet": 1}, "invalid_body", "did you mean 'facets'?"),
        ({"body": 1, "facets": {"topic": TOPIC}}, "invalid_body", "not text"),
        ({"body": "x", "state": {"zip": 1}, "facets": {"topic": TOPIC}}, "invalid_state", "zip"),
    ],
)
def test_what_does_not_fit_is_rejected(data: Any, reason: str, message: str):
    """The whole event is refused with a reason that names the part; nothing is left out or repaired."""
    event = decoded(data)

    assert (event.content, event.reason) == (None, reason)
    assert message in (event.message or "")


def test_a_plain_write_takes_no_answers():
    """Answers that come without their own type of event are refused, not ignored."""
    event = decoded({"body": "x", "facets": {"topic": TOPIC}}, ce_type=codec.WRITTEN)

    assert event.reason == EventReason.INVALID_BODY
    assert "only body and state are taken" in (event.message or "")


def test_what_is_encoded_is_decoded():
    """The import command's own event comes back whole, and is compared with what is stored."""
    message = codec.encode_write(
        URI, body="x", state=None, source="s", event_id="1", unless_equal=True, facets={"topic": TOPIC}
    )
    event = codec.decode(builders.raw(message.key, message.value, None), builders.position(), ACTIVE)
    typed = codec.decode(
        replace(builders.raw(message.key, message.value), headers=message.headers), builders.position(), ACTIVE
    )

    assert event.reason == "invalid_body"  # without its headers it is a plain write
    assert typed.content is not None
    assert typed.content.unless_equal
    assert typed.content.answered == answers({"body": "x", "facets": {"topic": TOPIC}})


@pytest.mark.parametrize(
    ("question", "given", "value"),
    [
        ("topic", "outage", {"type": "choice", "choice": "outage", "confidence": None}),
        ("urgent", True, {"type": "boolean", "value": True, "confidence": None}),
        ("urgent", "no", {"type": "boolean", "value": False, "confidence": None}),
        ("urgent", 0.25, {"type": "boolean", "probability": 0.25, "confidence": None}),
        ("urgent", "0.25", {"type": "boolean", "probability": 0.25, "confidence": None}),
        ("severity", "high", {"type": "score", "score": 2.0, "confidence": None}),
        ("severity", 1.5, {"type": "score", "score": 1.5, "confidence": None}),
        ("severity", "1.5", {"type": "score", "score": 1.5, "confidence": None}),
        ("topic", TOPIC, TOPIC),
    ],
)
def test_plain_answers_become_facet_values(question: str, given: Any, value: Any):
    """In files people write an option, yes or no, a level or a number; a facet value stays as it is."""
    assert imported_answers.value_of(QUESTIONS[question], given) == value


@pytest.mark.parametrize(
    ("question", "given", "message"),
    [
        ("topic", "biling", "is no option .did you mean 'billing'"),
        ("topic", 1, "is no option"),
        ("urgent", "perhaps", "neither yes nor no"),
        ("urgent", None, "neither yes nor no"),
        ("severity", "hihg", "no level .did you mean 'high'"),
        ("severity", True, "no score"),
        ("severity", 10**400, "no score"),
        ("severity", "1_0", "no score"),
        ("severity", "\N{FULLWIDTH DIGIT ONE}", "no score"),
        ("urgent", "nan", "neither yes nor no"),
    ],
)
def test_plain_answers_are_checked(question: str, given: Any, message: str):
    """What is no possible answer is refused, with the nearest word."""
    with pytest.raises(ValueError, match=message):
        imported_answers.value_of(QUESTIONS[question], given)


def import_(body: str = "x", choice_: str = "billing", *, offset: int = 0, unless_equal: bool = True) -> Event:
    """An import as the store gets it."""
    event = judged.write(URI, body, offset=offset, unless_equal=unless_equal)
    assert isinstance(event.content, Content)
    found = answers({"body": body, "facets": {"topic": {**TOPIC, "choice": choice_}}})
    return replace(event, content=replace(event.content, answered=found), digest=f"{body} {choice_}")


def after(*given: Event) -> tuple[folding.Change, list[str]]:
    """The one change that events make, and their outcomes."""
    folded = folding.fold({}, {}, given)
    return folded.changes[URI], [outcome.outcome for outcome in folded.outcomes]


def test_an_import_makes_an_indexed_document():
    """It counts like any body write, and asks for nothing."""
    change, outcomes = after(import_())

    stands = change.after
    assert outcomes == ["applied"]
    assert (stands.status, stands.version, stands.revision, stands.indexed_as) == ("indexed", 1, 1, 1)
    assert change.answered is not None
    assert stands.fingerprint == change.answered.fingerprint


def test_the_same_import_again_changes_nothing():
    """Other answers do, and so do answers for a document that has none."""
    assert after(import_(), import_(offset=1))[1] == ["applied", "unchanged"]
    assert after(import_(), import_(choice_="outage", offset=1))[1] == ["applied", "applied"]
    assert after(judged.write(URI, "x"), import_(offset=1))[1] == ["applied", "applied"]
    assert after(import_(), import_(offset=1, unless_equal=False))[1] == ["applied", "applied"]


def test_an_import_does_not_undo_what_was_asked_since():
    """Answers that an evaluator has given about the same body are newer: the file is run again without harm."""
    stands = after(judged.write(URI, "x"))[0].after._replace(status="indexed", fingerprint="abc", version=2)
    folded = folding.fold({URI: stands}, {}, [import_(offset=1)])

    assert folded.outcomes[0].outcome == "unchanged"


def test_a_later_write_takes_the_imported_answers_away():
    """A new body clears them, a delete too; state alone keeps them, also within one batch."""
    change, _ = after(import_(), judged.write(URI, "new", offset=1))
    assert (change.answered, change.after.status, change.after.fingerprint) == (None, "pending", None)

    change, _ = after(import_(), judged.delete(URI, offset=1))
    assert (change.answered, change.after.fingerprint) == (None, None)

    change, _ = after(import_(), judged.write(URI, None, {"n": 1}, offset=1))
    assert change.answered is not None
    assert (change.after.status, change.after.version, change.after.indexed_as) == ("indexed", 2, 1)
