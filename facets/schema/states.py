"""State: a document's own typed fields, as a JSON Schema and as the check of every write.

The schema is one flat object. Its fields have one of five types, some may have constraints (those of a pydantic model,
see `facets.schema.state_models`), and nothing else is taken. What passes the check is canonical: equal states become
equal JSON, and checking it again changes nothing.
"""

import functools
import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from facetline.facets.documents import EventReason
from facetline.facets.errors import InvalidDefinition, InvalidEvent, nearest
from facetline.facets.schema import names

STATE_TYPES = ("string", "integer", "number", "boolean", "datetime")

# More is no readable table; a state's size is bounded besides (documents.STATE_BYTES_MAX).
FIELDS_MAX = 128

# What can be enforced beside a field's type, by jsonschema.
CONSTRAINTS = frozenset(
    {
        "const",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxLength",
        "maximum",
        "minLength",
        "minimum",
        "multipleOf",
        "pattern",
    }
)

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_PROBLEMS_SHOWN_MAX = 5
_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)",
    flags=re.ASCII,
)

StateCheck = Callable[[Mapping[str, Any]], dict[str, Any]]
_FieldCheck = Callable[[Any], Any]


class _Unfit(Exception):
    """A value that its field does not take; the message goes on from the field's name."""

    reason = EventReason.INVALID_STATE


class _UnfitText(_Unfit):
    """Text that no store can keep."""

    reason = EventReason.INVALID_TEXT


def schema_of_types(types: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON Schema of fields given by type; all of them optional, null like absent.

    Raises:
        InvalidDefinition: with all problems; the caller names the collection.
    """
    problems = field_problems(types)
    for name, kind in types.items():
        if kind not in STATE_TYPES:
            problems.append(f"state '{name}': {_unknown_type(kind)}")
    if problems:
        raise InvalidDefinition(problems)
    return object_schema({name: json_type(kind, nullable=True) for name, kind in types.items()})


def json_type(kind: str, *, nullable: bool) -> dict[str, Any]:
    """Return the JSON Schema of one of the state types."""
    base = "string" if kind == "datetime" else kind
    schema: dict[str, Any] = {"type": [base, "null"] if nullable else base}
    if kind == "datetime":
        schema["format"] = "date-time"
    return schema


def object_schema(properties: Mapping[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the JSON Schema of a state with these fields and no others."""
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    return schema


def field_problems(fields: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the names and the number of the fields."""
    problems = [f"state '{name}': {problem}" for name in fields if (problem := names.state_problem(name))]
    if len(fields) > FIELDS_MAX:
        problems.append(f"state has {len(fields)} fields, at most {FIELDS_MAX} are taken; drop some")
    return problems


def column_types(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return each field's state type, in the schema's order."""
    return {name: _state_type(field) for name, field in schema["properties"].items()}


def check_state(schema: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the canonical form of a state.

    Datetimes are in UTC with `Z`, to the microsecond; numbers are floats; null fields are left out; the order of the
    fields is the schema's.

    Raises:
        InvalidEvent: `invalid_state`, or `invalid_text` for text that cannot be stored; the message names every field
            at fault (up to five) and never a value.
    """
    return _compiled(json.dumps(schema))(state)


def compile_check(schema: Mapping[str, Any]) -> StateCheck:
    """Return `check_state` for one schema, made once: it is called for every write."""
    fields = {name: _field_check(field) for name, field in schema["properties"].items()}
    required = tuple(schema.get("required", ()))

    def check(state: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(state, Mapping):
            raise InvalidEvent(EventReason.INVALID_STATE, f"state takes an object, got {_kind_of(state)}")
        found: dict[str, Any] = {}
        problems: list[str] = []
        reasons: list[EventReason] = []
        for name, value in state.items():
            field = fields.get(name)
            if len(problems) >= _PROBLEMS_SHOWN_MAX and field is None:
                break  # nothing more would be shown, and a state may hold any number of unknown names
            if field is None:
                problems.append(_unknown_field(name, fields))
            elif value is not None:
                try:
                    found[name] = field(value)
                except _Unfit as error:
                    reasons.append(error.reason)
                    problems.append(f"state '{name}' {error}")
        problems += [f"state '{name}' is required" for name in required if state.get(name) is None]
        if problems:
            reason = (
                EventReason.INVALID_TEXT if set(reasons) == {EventReason.INVALID_TEXT} else EventReason.INVALID_STATE
            )
            raise InvalidEvent(reason, "; ".join(problems[:_PROBLEMS_SHOWN_MAX]))
        return {name: found[name] for name in fields if name in found}

    return check


@functools.lru_cache(maxsize=256)
def _compiled(schema: str) -> StateCheck:
    return compile_check(json.loads(schema))


def _state_type(field: Mapping[str, Any]) -> str:
    kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
    base: str = next(kind for kind in kinds if kind != "null")
    return "datetime" if field.get("format") == "date-time" else base


def _field_check(field: Mapping[str, Any]) -> _FieldCheck:
    convert = _CONVERT[_state_type(field)]
    constraints = {keyword: value for keyword, value in field.items() if keyword in CONSTRAINTS}
    if not constraints:
        return convert
    # Imported here: it is slow to load, and most collections have no constraints.
    import jsonschema

    validator = jsonschema.Draft202012Validator(constraints)

    def check(value: Any) -> Any:
        canonical = convert(value)
        for error in validator.iter_errors(value):
            raise _Unfit(f"breaks its constraint {error.validator} {error.validator_value!r:.80}")
        return canonical

    return check


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise _Unfit(f"takes text, got {_kind_of(value)}")
    if "\0" in value:
        raise _UnfitText("holds a NUL character; take it out")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _UnfitText("holds half a surrogate pair; send valid Unicode") from None
    return value


def _integer(value: Any) -> int:
    # JSON knows one kind of number: 3.0 is an integer.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Unfit(f"takes an integer, got {_kind_of(value)}")
    if not _INT64_MIN <= value <= _INT64_MAX:
        raise _Unfit("is outside the 64-bit integers; declare it a number or a string")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _Unfit(f"takes a number, got {_kind_of(value)}")
    try:
        number = float(value)
    except OverflowError:
        raise _Unfit("is too large for a 64-bit number; declare it a string") from None
    if not math.isfinite(number):
        raise _Unfit("is not a finite number; leave it out or send null")
    if number != value:
        raise _Unfit("has more digits than a 64-bit number keeps; declare it an integer or a string")
    return number


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Unfit(f"takes true or false, got {_kind_of(value)}")
    return value


def _datetime(value: Any) -> str:
    if not isinstance(value, str):
        raise _Unfit(f"takes a datetime as text, got {_kind_of(value)}")
    if not _RFC3339.fullmatch(value):
        raise _Unfit("is not a datetime of RFC 3339 with its offset; send one such as 2026-11-29T18:30:00Z")
    try:
        moment = datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise _Unfit("is no moment of the years 1 to 9999 (a leap second is none either)") from None
    return moment.replace(tzinfo=None).isoformat() + "Z"


_CONVERT: Mapping[str, _FieldCheck] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "datetime": _datetime,
}


def _unknown_type(kind: object) -> str:
    hint = nearest(kind, STATE_TYPES) if isinstance(kind, str) else ""
    return f"{kind!r:.80} is no state type{hint}; write one of {', '.join(STATE_TYPES)}"


def _unknown_field(name: object, fields: Mapping[str, Any]) -> str:
    if not fields:
        return f"state {name!r:.80} is unknown, the collection declares no state"
    hint = nearest(name, fields) if isinstance(name, str) else ""
    shown = ", ".join(list(fields)[:20])
    return f"state {name!r:.80} is unknown{hint}; declared: {shown}"


def _kind_of(value: object) -> str:
    # Never the value itself: messages go to logs and dead letters.
    kinds = {str: "text", bool: "a boolean", int: "an integer", float: "a fraction", dict: "an object", list: "a list"}
    return kinds.get(type(value), "null" if value is None else f"a {type(value).__name__}")
