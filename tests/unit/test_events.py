"""The wire codec: what a record says, and why one is rejected."""

import json
from datetime import UTC, datetime

import builders
import pytest

from facetline.facets.documents import BODY_BYTES_MAX, STATE_BYTES_MAX, Evaluation, Record, SourceEvent, Status
from facetline.storage.log import events as judged
from facetline.streams.wire import codec

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


def decode(raw: judged.Raw, **position: int) -> judged.Event:
    """Decode by the definition of `tickets`."""
    return codec.decode(raw, builders.position(**position), builders.definitions())


def test_bare_json_is_a_write_named_by_its_position() -> None:
    """A JSON value without headers writes, and its place in the log is its id."""
    event = decode(builders.raw(value='{"body":"hello","state":{"title":"x"}}'), offset=7, partition=2)

    assert event.content is not None
    assert (event.content.body, event.content.state, event.content.blank) == ("hello", '{"title":"x"}', False)
    assert (event.collection, event.key, event.scope) == ("tickets", "t1", "")
    assert (event.source, event.id) == ("log:documents", "1/2/7")


def test_cloud_event_headers_name_the_event() -> None:
    """`ce_source` and `ce_id` are the event's id, wherever it stands in the log."""
    event = decode(builders.raw(headers={"ce_id": "a", "ce_source": "crm", "ce_type": codec.WRITTEN}), offset=9)

    assert (event.source, event.id, event.reason) == ("crm", "a", None)


@pytest.mark.parametrize(
    ("raw", "reason", "words"),
    [
        (builders.raw(value="{"), "not_json", "not JSON"),
        (builders.raw(value=b"\xff"), "not_json", "UTF-8"),
        (builders.raw(value=""), "not_json", "not JSON"),
        (builders.raw(value='{"body":' + "[" * 100_000), "not_json", "deeply"),
        (builders.raw(value='{"state":{"priority":NaN}}'), "not_json", "NaN"),
        (builders.raw(value='"text"'), "invalid_body", "object"),
        (builders.raw(value="{}"), "invalid_body", "neither"),
        (builders.raw(value='{"bodi":"x"}'), "invalid_body", "did you mean 'body'"),
        (builders.raw(value='{"body":null}'), "invalid_body", "null"),
        (builders.raw(value='{"body":7}'), "invalid_body", "int"),
        (builders.raw(value='{"body":"a\\u0000b"}'), "invalid_text", "NUL"),
        (builders.raw(value='{"body":"a\\ud800b"}'), "invalid_text", "surrogate"),
        (builders.raw(value=json.dumps({"body": "x" * (BODY_BYTES_MAX + 1)})), "too_large", str(BODY_BYTES_MAX)),
        (builders.raw(value='{"state":null}'), "invalid_state", "null"),
        (builders.raw(value='{"state":[]}'), "invalid_state", "object"),
        (builders.raw(value='{"state":{"titel":"x"}}'), "invalid_state", "title"),
        (builders.raw(value='{"state":{"priority":"high"}}'), "invalid_state", "priority"),
        (builders.raw(value=json.dumps({"state": {"title": "x" * STATE_BYTES_MAX}})), "too_large", "state"),
        (builders.raw(headers={"ce_type": "com.example.other"}), "unknown_type", codec.WRITTEN),
        (builders.raw(value=None, headers={"ce_type": "com.example.other"}), "unknown_type", codec.DELETED),
        (builders.raw(headers={"ce_id": "x" * 513}), "too_large", "ce_id"),
        (builders.raw(headers={"ce_id": "a\0b"}), "invalid_text", "ce_id"),
        (builders.raw(key=None), "null_key", "no key"),
        (builders.raw(key=b"tickets/\xff"), "invalid_uri", "UTF-8"),
        (builders.raw(key="tickets//x"), "invalid_uri", "segment"),
        (builders.raw(key="orders/1"), "unknown_collection", "tickets/*"),
        (builders.raw(key="@alice/tickets/1"), "unknown_collection", "scope"),
        (builders.raw(headers={codec.ORIGIN_HEADER: "documents/1/x/2"}), "unknown_type", "topic/incarnation"),
        (builders.raw(headers={codec.ORIGIN_HEADER: "t/1/0/" + "9" * 5_000}), "unknown_type", "topic/incarnation"),
        (builders.raw(headers={codec.ORIGIN_HEADER: f"t/1/0/{2**63}"}), "unknown_type", "topic/incarnation"),
        (builders.raw(headers={codec.DEADLINE_HEADER: "soon"}, timestamp_ms=NOW_MS), "unknown_type", "RFC 3339"),
        (builders.raw(headers={codec.DEADLINE_HEADER: "0001-01-01"}, timestamp_ms=NOW_MS), "unknown_type", "offset"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 30 else "",
)
def test_bad_record_is_an_event_with_its_reason(raw: judged.Raw, reason: str, words: str) -> None:
    """Whatever a producer sends, decoding returns an event that says what is wrong and keeps the bytes."""
    event = decode(raw)

    assert event.content is None
    assert event.reason == reason
    assert words in (event.message or "")
    assert event.raw == raw


def test_tombstone_deletes() -> None:
    """A null value is a delete, with headers or without."""
    bare = decode(builders.raw(value=None))
    said = decode(builders.raw(value="{}", headers={"ce_type": codec.DELETED}))

    assert bare.content is not None
    assert said.content is not None
    assert bare.content.deleted
    assert said.content.deleted


def test_header_given_twice_is_refused() -> None:
    """Two values for one of our headers cannot both be right."""
    twice = (("ce_id", b"a"), ("ce_id", b"b"))

    event = decode(judged.Raw(b"tickets/t1", b'{"body":"x"}', twice, None))

    assert event.reason == "unknown_type"


@pytest.mark.parametrize(("late_ms", "reason"), [(-1, None), (0, None), (1, "expired")])
def test_deadline_is_judged_by_the_logs_clock(late_ms: int, reason: str | None) -> None:
    """An event that the broker stamped after its deadline is expired, one at the very moment is not."""
    message = codec.encode_write("tickets/t1", body="x", state=None, source="s", event_id="1", deadline_ms=NOW_MS)

    event = decode(judged.Raw(message.key, message.value, message.headers, NOW_MS + late_ms))

    assert event.reason == reason


def test_late_event_is_asked_after_by_the_digest_of_its_writer() -> None:
    """Whoever sent it polls with the digest from before; a rejection under another one would never be found."""
    message = codec.encode_write("tickets/t1", body="x", state=None, source="s", event_id="1", deadline_ms=NOW_MS)

    sent = decode(judged.Raw(message.key, message.value, message.headers, None))
    late = decode(judged.Raw(message.key, message.value, message.headers, NOW_MS + 1))

    assert (late.reason, late.digest) == ("expired", sent.digest)


def test_trace_that_is_too_long_is_left_out() -> None:
    """A trace goes with the event; what is no trace costs the store nothing and the writer nothing."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    kept = decode(builders.raw(headers={"traceparent": trace}))
    left_out = decode(builders.raw(headers={"traceparent": "0" * 100_000}))

    assert (kept.traceparent, left_out.traceparent, left_out.reason) == (trace, None, None)


def test_blank_body_is_said_to_be_blank() -> None:
    """White space alone leaves nothing to ask about."""
    event = decode(builders.raw(value='{"body":" \\n\\t "}'))

    assert event.content is not None
    assert event.content.blank


def test_unlessequal_is_taken_from_its_header() -> None:
    """Only `true` asks for the comparison."""
    message = codec.encode_write("tickets/t1", body="x", state=None, source="s", event_id="1", unless_equal=True)

    event = decode(judged.Raw(message.key, message.value, message.headers, None))

    assert event.content is not None
    assert event.content.unless_equal


def test_digest_tells_contents_apart_and_nothing_else() -> None:
    """Uri, type and data are the digest's; member order, headers and places are not."""
    first = decode(builders.raw(value='{"body":"a","state":{"title":"t"}}'), offset=1)
    same = decode(builders.raw(value='{ "state":{"title":"t"}, "body":"a" }', headers={"ce_id": "x"}), offset=2)
    other_body = decode(builders.raw(value='{"body":"b","state":{"title":"t"}}'))
    other_uri = decode(builders.raw(key="tickets/t2", value='{"body":"a","state":{"title":"t"}}'))

    assert first.digest == same.digest
    assert len({first.digest, other_body.digest, other_uri.digest}) == 3


def letter(raw: judged.Raw) -> judged.DeadLetter:
    """Return a dead letter of a record."""
    at = builders.position(offset=5, partition=3, incarnation=2)
    return judged.DeadLetter(1, at, "tickets/t1", "decode", "not_json", "no", 2, raw, "open", NOW_MS)


def test_dead_letter_keeps_the_bytes_and_says_where_and_why() -> None:
    """Key, value and headers stay byte for byte, headers of ours are added as text."""
    original = judged.Raw(b"\xff", b"\x00\xfe", (("x", b"\x80"), ("x", b"again")), NOW_MS)

    message = codec.encode_dead_letter(letter(original))

    assert (message.key, message.value) == (original.key, original.value)
    assert message.headers[:2] == original.headers
    added = {name.removeprefix(codec.ERROR_HEADER): value.decode() for name, value in message.headers[2:]}
    assert added == {
        "topic": "documents",
        "partition": "3",
        "offset": "5",
        "stage": "decode",
        "exception": "not_json",
        "message": "no",
        "attempts": "2",
    }


def test_redriven_event_keeps_id_and_position_and_drops_its_deadline() -> None:
    """What is sent again is judged at its first place in the log, and is not late."""
    message = codec.encode_write("tickets/t1", body="x", state=None, source="s", event_id="1", deadline_ms=NOW_MS)
    first = judged.Raw(message.key, message.value, message.headers, NOW_MS + 60_000)

    again = codec.redrive(letter(first))
    event = decode(judged.Raw(again.key, again.value, again.headers, NOW_MS + 90_000), offset=99)

    assert event.reason is None
    assert event.redriven
    assert event.position == builders.position(offset=5, partition=3, incarnation=2)
    assert (event.source, event.id) == ("s", "1")


def test_redriven_bare_event_is_still_named_by_its_first_place() -> None:
    """An event without an id of its own keeps the one that its first place gave it."""
    bare = builders.raw()

    again = codec.redrive(letter(bare))
    event = decode(judged.Raw(again.key, again.value, again.headers, None), offset=99)

    assert event.id == "2/3/5"


def record(**changes: object) -> Record:
    """Return a feed record."""
    known = {
        "feed_seq": 4,
        "uri": "tickets/t1",
        "collection": "tickets",
        "scope": "",
        "key": "t1",
        "version": 3,
        "revision": 2,
        "indexed_as": 2,
        "status": Status.INDEXED,
        "facets": {"topic": {"type": "choice", "choice": "billing", "confidence": 0.9}},
        "state": {"title": "x"},
        "fingerprint": "f",
        "written_at": NOW,
        "classified_at": NOW,
        "evaluation": Evaluation(evaluator="e", kind="fake", model="m", fingerprint="f", classified_at=NOW),
        "source_event": SourceEvent(source="s", id="1"),
    }
    return Record.model_validate({**known, **changes})


def test_facets_record_says_all_but_the_body() -> None:
    """The facets topic's value has the fields of the design, and text headers each once."""
    message = codec.encode_record(record())

    value = json.loads(message.value or b"")
    names = [name for name, _ in message.headers]
    assert list(value) == [
        *("uri", "version", "revision", "indexed_as", "status", "reason", "facets", "state", "evaluation"),
        "source_event",
    ]
    assert value["evaluation"] == {
        "evaluator": "e",
        "model": "m",
        "fingerprint": "f",
        "time": "2026-11-30T12:00:00.000Z",
    }
    assert len(names) == len(set(names))
    assert ("ce_version", b"3") in message.headers


def test_deleted_document_is_a_tombstone_with_its_version() -> None:
    """A deletion on the facets topic has no value, and its version in a header."""
    message = codec.encode_record(record(status=Status.DELETED, facets=None, state=None, evaluation=None))

    assert message.value is None
    assert ("ce_version", b"3") in message.headers
