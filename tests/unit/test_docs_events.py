"""The schemas of docs/schemas say what really goes over the wire, and CloudEvents' own library can read it.

Method: real messages of `streams.wire.codec`, made as the product makes them, against the files.
"""

import json
from datetime import UTC, datetime
from typing import Any

import builders
import jsonschema
import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka
from cloudevents.core.formats.json import JSONFormat
from documented import ROOT
from hypothesis import given
from hypothesis import strategies as st

from facetline.facets import answers
from facetline.facets.answers import BooleanAnswer, ChoiceAnswer, ScoreAnswer
from facetline.facets.documents import DocumentReason, Evaluation, Record, SourceEvent, Status
from facetline.facets.questions import boolean, choice, score
from facetline.storage.log.events import DeadLetter, Position, Raw
from facetline.streams.wire import codec

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
QUESTIONS = {
    "topic": choice(ask="?", options={"billing": "Money", "other": "Else"}),
    "urgent": boolean(ask="?"),
    "severity": score(ask="?", levels=["low", "middle", "high"]),
}
ANSWERS = {
    "topic": ChoiceAnswer(choice="billing", confidence=0.9, probabilities={"billing": 0.9, "other": 0.1}),
    "urgent": BooleanAnswer(probability=0.8),
    "severity": ScoreAnswer(score=1.5, probabilities={"0": 0.0, "1": 0.5, "2": 0.5}, confidence=0.5),
}
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=200)
VALUES = TEXT | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)


def validator(kind: str) -> jsonschema.Draft202012Validator:
    """The published schema of a type of event."""
    schema = json.loads((ROOT / "docs" / "schemas" / f"{kind}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


WRITTEN, FACETS = validator(codec.WRITTEN), validator(codec.FACETS)
IMPORTED = validator(codec.IMPORTED)


def record(status: Status, **given_: Any) -> Record:
    """A document as the feed carries it."""
    known: dict[str, Any] = {
        "feed_seq": 1,
        "uri": "tickets/t1",
        "collection": "tickets",
        "scope": "",
        "key": "t1",
        "version": 2,
        "revision": 1,
        "indexed_as": 1,
        "status": status,
        "written_at": MOMENT,
        "source_event": SourceEvent(source="s", id="1", topic="t", incarnation=1, partition=0, offset=7),
    }
    return Record(**{**known, **given_})


def records() -> dict[str, Record]:
    """One record of every status that has a value."""
    answered = {
        "facets": answers.facet_values(QUESTIONS, ANSWERS),
        "state": {"title": "x", "priority": 1, "open": True, "weight": 0.5},
        "classified_at": MOMENT,
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "evaluation": Evaluation(evaluator="e", kind="k", model="m", fingerprint="f", classified_at=MOMENT),
    }
    return {
        "pending": record(Status.PENDING, source_event=None),
        "indexed": record(Status.INDEXED, **answered),
        "failed": record(Status.FAILED, reason=DocumentReason.TIMEOUT),
        "empty": record(Status.EMPTY),
    }


def cloud_event(message: codec.Message) -> Any:
    """A message as CloudEvents' library reads it."""
    return from_kafka(KafkaMessage(dict(message.headers), message.key, message.value or b""), JSONFormat())


@given(body=TEXT | st.none(), state=st.none() | st.dictionaries(TEXT, VALUES, max_size=3))
def test_every_write_fits_the_schema(body: str | None, state: dict[str, Any] | None) -> None:
    """What we encode is valid; the empty object, which says nothing, is not."""
    message = codec.encode_write("tickets/t1", body=body, state=state, source="s", event_id="1")

    assert WRITTEN.is_valid(json.loads(message.value or b"")) is not (body is None and state is None)


@pytest.mark.parametrize(
    "data", [{"body": None}, {"body": 1}, {"body": "a\0b"}, {"text": "x"}, {"state": {"a": {}}}, {"state": None}, []]
)
def test_the_schema_refuses_what_the_decoder_refuses(data: object) -> None:
    """A producer that checks by the schema hears of these mistakes before a dead letter does."""
    raw = builders.raw(value=json.dumps(data))

    event = codec.decode(raw, builders.position(), builders.definitions())

    assert event.reason is not None
    assert not WRITTEN.is_valid(data)


@pytest.mark.parametrize("names", [["topic"], ["urgent", "severity"], ["topic", "urgent", "severity"]])
def test_every_import_fits_the_schema(names: list[str]) -> None:
    """Answers in their public form, to all questions or some, are valid, and taken."""
    told = {"evaluator": "old", "model": "m", "classified_at": "2026-01-02T03:04:05Z", "confidence_source": "votes"}
    public = answers.facet_values(QUESTIONS, ANSWERS)
    given_ = {name: public[name] for name in names}
    message = codec.encode_write(
        "tickets/t1", body="x", state=None, source="s", event_id="1", facets=given_, evaluation=told
    )
    asked = builders.definitions(builders.definition(questions=QUESTIONS))
    event = codec.decode(Raw(message.key, message.value, message.headers), builders.position(), asked)

    assert IMPORTED.is_valid(json.loads(message.value or b""))
    assert event.reason is None


@pytest.mark.parametrize(
    "data",
    [
        {"body": "x"},
        {"body": "x", "facets": {}},
        {"facets": {"topic": {"type": "choice", "choice": "billing"}}},
        {"body": "x", "facets": {"topic": "billing"}},
        {"body": "x", "facets": {"topic": {"type": "choice"}}},
        {"body": "x", "facets": {"topic": {"type": "choice", "choice": "billing"}}, "evaluation": {"by": "me"}},
    ],
)
def test_the_schema_of_imports_refuses_what_the_decoder_refuses(data: object) -> None:
    """A producer that checks by the schema hears of these mistakes before a dead letter does."""
    raw = builders.raw(value=json.dumps(data), headers={"ce_type": codec.IMPORTED})

    assert codec.decode(raw, builders.position(), builders.definitions()).reason is not None
    assert not IMPORTED.is_valid(data)


@pytest.mark.parametrize("status", Status)
def test_every_record_fits_the_schema(status: str) -> None:
    """Records of each status are valid, with and without answers; a deleted one has no value."""
    made = {**records(), "deleted": record(Status.DELETED)}[status]

    message = codec.encode_record(made)

    if status == Status.DELETED:
        assert message.value is None
    else:
        FACETS.validate(json.loads(message.value or b""))


def test_the_schema_of_records_leaves_nothing_open() -> None:
    """Another member, or an answer without its parts, is refused: the schema is not simply lenient."""
    value = json.loads(codec.encode_record(records()["indexed"]).value or b"")
    topic = value["facets"]["topic"]

    assert datetime.fromisoformat(value["evaluation"]["time"]) == MOMENT
    assert not FACETS.is_valid({**value, "body": "x"})
    assert not FACETS.is_valid({name: part for name, part in value.items() if name != "version"})
    assert not FACETS.is_valid({**value, "facets": {"topic": {**topic, "choice": None}}})
    assert not FACETS.is_valid({**value, "facets": {"topic": {**topic, "sure": True}}})


def test_events_are_cloud_events() -> None:
    """CloudEvents' library reads id, source, type, subject, time and our extensions of a write, a delete, a record."""
    write = codec.encode_write(
        "tickets/t1", body="hello", state=None, source="shop", event_id="7", deadline_ms=1_000, unless_equal=True
    )
    delete = codec.encode_delete("tickets/t1", source="shop", event_id="8")
    facets = codec.encode_record(records()["indexed"])

    read = [cloud_event(message) for message in (write, delete, facets)]

    assert [each.get_type() for each in read] == [codec.WRITTEN, codec.DELETED, codec.FACETS]
    assert [each.get_id() for each in read] == ["7", "8", "tickets/t1@2"]
    assert [each.get_source() for each in read] == ["shop", "shop", "facetline"]
    assert all(each.get_subject() == "tickets/t1" for each in read)
    assert read[0].get_data() == {"body": "hello"}
    assert read[0].get_extension("unlessequal") == "true"
    assert read[0].get_extension("deadline") == "1970-01-01T00:00:01.000Z"
    assert read[2].get_time() == MOMENT
    assert read[2].get_extension("version") == "2"


def test_a_dead_letter_is_still_the_event_that_it_was() -> None:
    """The headers that are added make no other event of it: CloudEvents' library reads the original."""
    original = codec.encode_write("tickets/t1", body="hello", state=None, source="shop", event_id="7")
    letter = DeadLetter(
        id=1,
        position=Position("t", 1, 0, 7),
        uri="tickets/t1",
        stage="apply",
        reason="no_document",
        message="said",
        attempts=1,
        raw=Raw(original.key, original.value, original.headers, None),
        state="open",
        created_ms=0,
    )

    message = codec.encode_dead_letter(letter)

    assert message.headers[: len(original.headers)] == original.headers
    assert cloud_event(message).get_id() == "7"
