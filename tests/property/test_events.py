"""The wire codec on any input: it never raises, and what is encoded is decoded."""

import json
import string
import sys
from datetime import date, datetime

import builders
from hypothesis import given
from hypothesis import strategies as st

from facetline.evaluators import facet_values, validation
from facetline.facets.questions import boolean, score
from facetline.storage.log import events as judged
from facetline.streams.wire import codec, imported_answers

TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=200)
IDS = st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=40)
STATES = st.fixed_dictionaries({}, optional={"title": TEXT, "priority": st.integers(-(2**63), 2**63 - 1)})
NUMBERS = st.integers(min_value=0).map(str) | st.integers(4_000, 6_000).map(lambda digits: "9" * digits)
ORIGINS = st.tuples(st.just("t"), NUMBERS, NUMBERS, NUMBERS).map("/".join)
MOMENTS = st.datetimes(timezones=st.none() | st.timezones()).map(datetime.isoformat) | st.dates().map(date.isoformat)
HEADERS = st.lists(
    st.tuples(st.sampled_from(["ce_id", "ce_type", "ce_source", "x", codec.ORIGIN_HEADER]), st.binary(max_size=30))
    | st.tuples(st.just(codec.ORIGIN_HEADER), ORIGINS.map(str.encode))
    | st.tuples(st.just(codec.DEADLINE_HEADER), MOMENTS.map(str.encode)),
    max_size=4,
)
DEFINITIONS = builders.definitions()
ASKED = builders.definitions(
    builders.definition(
        questions={
            **builders.TOPIC,
            "urgent": boolean(ask="Today?"),
            "severity": score(ask="How bad?", levels=["low", "high"]),
        }
    )
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
SHARES = st.none() | st.sampled_from([0, 0.25, 0.5, 1]) | st.floats(-0.5, 1.5) | SCALARS
MAPS = st.dictionaries(st.sampled_from(["billing", "outage", "other", "0", "1", "x"]), SHARES, max_size=3)


def _values(kind: str, **parts: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    """Facet values of a type: right ones, nearly right ones, and any others."""
    more = {"confidence": SHARES, "probabilities": st.none() | MAPS, "value": SCALARS, "x": SCALARS}
    near = st.fixed_dictionaries({"type": st.just(kind), **parts}, optional={"confidence": more["confidence"]})
    return near | st.fixed_dictionaries({}, optional={"type": SCALARS | st.just(kind), **parts, **more})


CHOSEN = st.sampled_from(["billing", "outage", "other", "Billing", "sales"])
FACETS = st.fixed_dictionaries(
    {},
    optional={
        "topic": _values("choice", choice=CHOSEN | SCALARS),
        "urgent": _values("boolean", probability=SHARES),
        "severity": _values("score", score=SHARES, level=st.sampled_from(["low", "high"])),
        "other": SCALARS,
    },
)
EVALUATIONS = st.dictionaries(
    st.sampled_from([*imported_answers.EVALUATION_KEYS, "kind"]), SCALARS | MOMENTS, max_size=4
)


@given(body=TEXT, state=STATES, source=IDS, event_id=IDS)
def test_a_write_survives_the_wire(body: str, state: dict[str, object], source: str, event_id: str) -> None:
    """Any valid body and state come back as they were, under the same id."""
    message = codec.encode_write("tickets/t1", body=body, state=state, source=source, event_id=event_id)

    event = codec.decode(
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

    event = codec.decode(raw, builders.position(), DEFINITIONS)

    assert (event.content is None) == (event.reason is not None)
    assert event.raw is raw
    assert event.digest


@given(facets=FACETS | SCALARS, evaluation=st.just({}) | EVALUATIONS | SCALARS)
def test_no_imported_answers_make_decoding_raise(facets: object, evaluation: object) -> None:
    """Any JSON for answers is either taken within the questions' domain, fit for any store, or rejected with words."""
    value = json.dumps({"body": "x", "facets": facets, "evaluation": evaluation})
    raw = builders.raw(value=value, headers={"ce_type": codec.IMPORTED})

    event = codec.decode(raw, builders.position(), ASKED)

    assert (event.content is None) == (event.reason is not None)
    assert (event.message or "x").strip()
    if event.content is not None:
        answered = event.content.answered
        assert answered is not None
        questions = {name: ASKED.by_name["tickets"].questions[name] for name in answered.facets}
        source = answered.evaluation["confidence_source"]
        validation.check(questions, facet_values.answers_of(answered.facets), confidence_source=source)
        json.dumps([answered.facets, answered.evaluation], allow_nan=False, ensure_ascii=False).encode()


def test_no_nesting_makes_decoding_raise() -> None:
    """However deep a value is nested, around the depth at which Python gives up above all, it is one rejection."""
    reasons = {
        codec.decode(
            builders.raw(value='{"state":{"title":' + "[" * depth + "]" * depth + "}}"),
            builders.position(),
            DEFINITIONS,
        ).reason
        for depth in range(1, sys.getrecursionlimit() + 50)
    }

    assert reasons == {"invalid_state", "not_json"}
