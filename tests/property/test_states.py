"""State, whatever is written: one canonical form, and nothing but a clear refusal otherwise."""

import json
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from facetline.facets.documents import EventReason
from facetline.facets.errors import InvalidEvent
from facetline.facets.schema import states

SCHEMA = states.schema_of_types(
    {"title": "string", "priority": "integer", "price": "number", "vip": "boolean", "due": "datetime"}
)
INT64 = st.integers(-(2**63), 2**63 - 1)
zones = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))
# Two days from the calendar's ends: an offset must not lead beyond them.
moments = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=zones)  # noqa: DTZ001 (given by timezones)
fitting_states = st.fixed_dictionaries(
    {},
    optional={
        "title": st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
        "priority": st.none() | INT64,
        "price": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
        "vip": st.none() | st.booleans(),
        "due": st.none() | moments.map(datetime.isoformat),
    },
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | moments.map(datetime.isoformat),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
any_states = st.dictionaries(st.sampled_from([*SCHEMA["properties"], "more"]) | st.text(), anything, max_size=4)


def checked(state: dict[str, Any]) -> tuple[dict[str, Any], InvalidEvent | None]:
    """Return the canonical state, or an empty one and why it was refused."""
    try:
        return states.check_state(SCHEMA, state), None
    except InvalidEvent as refusal:
        return {}, refusal


@given(fitting_states)
def test_canonical_state_is_stable(state: dict[str, Any]) -> None:
    """A canonical state is canonical, before and after a trip through JSON, and fits the published JSON Schema."""
    canonical = states.check_state(SCHEMA, state)

    assert states.check_state(SCHEMA, canonical) == canonical
    assert json.loads(json.dumps(canonical, allow_nan=False)) == canonical
    assert jsonschema.Draft202012Validator(SCHEMA).is_valid(canonical)
    assert set(canonical) == {name for name, value in state.items() if value is not None}


@given(fitting_states)
def test_canonical_state_says_the_same(state: dict[str, Any]) -> None:
    """No field is changed but in its spelling."""
    canonical = states.check_state(SCHEMA, state)

    assert all(canonical[name] == state[name] for name in canonical if name != "due")
    if "due" in canonical:
        assert datetime.fromisoformat(canonical["due"]) == datetime.fromisoformat(state["due"])


@given(moments, zones)
def test_one_moment_has_one_spelling(moment: datetime, zone: timezone) -> None:
    """A moment written with any offset is stored as the same text, in UTC with Z."""
    here = states.check_state(SCHEMA, {"due": moment.isoformat()})["due"]
    there = states.check_state(SCHEMA, {"due": moment.astimezone(zone).isoformat()})["due"]

    assert here == there
    assert here.endswith("Z")
    assert datetime.fromisoformat(here) == moment.astimezone(UTC)


@given(any_states)
def test_any_state_is_canonical_or_refused(state: dict[str, Any]) -> None:
    """Whatever comes is stored in its canonical form or refused with a message that can be stored itself."""
    canonical, refusal = checked(state)

    if refusal is not None:
        assert refusal.reason in {EventReason.INVALID_STATE, EventReason.INVALID_TEXT}
        assert "\0" not in refusal.message
        assert refusal.message.encode()
    assert set(canonical) <= set(SCHEMA["properties"])
    assert all(math.isfinite(value) for value in canonical.values() if isinstance(value, float))
    assert "\0" not in json.dumps(canonical, ensure_ascii=False).encode().decode()
