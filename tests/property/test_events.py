"""The wire codec on any input: it never raises, and what is encoded is decoded."""

import json
import string
import sys
from datetime import date, datetime

import builders
from hypothesis import given
from hypothesis import strategies as st

from storage import events as judged
from streams import events

TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=200)
IDS = st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=40)
STATES = st.fixed_dictionaries({}, optional={"title": TEXT, "priority": st.integers(-(2**63), 2**63 - 1)})
NUMBERS = st.integers(min_value=0).map(str) | st.integers(4_000, 6_000).map(lambda digits: "9" * digits)
ORIGINS = st.tuples(st.just("t"), NUMBERS, NUMBERS, NUMBERS).map("/".join)
MOMENTS = st.datetimes(timezones=st.none() | st.timezones()).map(datetime.isoformat) | st.dates().map(date.isoformat)
HEADERS = st.lists(
    st.tuples(st.sampled_from(["ce_id", "ce_type", "ce_source", "x", events.ORIGIN_HEADER]), st.binary(max_size=30))
    | st.tuples(st.just(events.ORIGIN_HEADER), ORIGINS.map(str.encode))
    | st.tuples(st.just(events.DEADLINE_HEADER), MOMENTS.map(str.encode)),
    max_size=4,
)
DEFINITIONS = builders.definitions()


@given(body=TEXT, state=STATES, source=IDS, event_id=IDS)
def test_a_write_survives_the_wire(body: str, state: dict[str, object], source: str, event_id: str) -> None:
    """Any valid body and state come back as they were, under the same id."""
    message = events.encode_write("tickets/t1", body=body, state=state, source=source, event_id=event_id)

    event = events.decode(
        judged.Raw(message.key, message.value, message.headers, None), builders.position(), DEFINITIONS
    )

    assert event.reason is None
    assert event.content is not None
    assert event.content.body == body
    assert json.loads(event.content.state or "") == state
    assert (event.source, event.id) == (source, event_id)


@given(
    key=st.none() | st.binary(max_size=40) | st.just(b"tickets/t1"),
    value=st.none() | st.binary(max_size=60) | TEXT.map(str.encode),
    headers=HEADERS,
    timestamp_ms=st.none() | st.integers(0, 2**42),
)
def test_no_record_makes_decoding_raise(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]], timestamp_ms: int | None
) -> None:
    """Any bytes at all become either content or a rejection with words, never an exception."""
    raw = judged.Raw(key, value, tuple(headers), timestamp_ms)

    event = events.decode(raw, builders.position(), DEFINITIONS)

    assert (event.content is None) == (event.reason is not None)
    assert event.raw is raw
    assert event.digest


def test_no_nesting_makes_decoding_raise() -> None:
    """However deep a value is nested, around the depth at which Python gives up above all, it is one rejection."""
    reasons = {
        events.decode(
            builders.raw(value='{"state":{"title":' + "[" * depth + "]" * depth + "}}"),
            builders.position(),
            DEFINITIONS,
        ).reason
        for depth in range(1, sys.getrecursionlimit() + 50)
    }

    assert reasons == {"invalid_state", "not_json"}
