"""Arguments of a tool call, checked against the tool; errors name the valid values, so that a model can correct them.

Models and clients write values in several ways: null and empty text for absent arguments, numbers and booleans in
quotes, several options as a list or as a JSON array in text. All of these are accepted in every tool. Pure.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from facetline.facets import display
from facetline.facets.agents.tools import Parameter, Tool
from facetline.facets.errors import InvalidQuery, UnknownValue, nearest
from facetline.facets.schema.question_sets import MISSING

TEXT_CHARS_MAX = 1_000_000
"""More than the largest body; the receiver of the text has a tighter limit."""
LISTED_MAX = 60
_KIND_NAMES = {"string": "text", "number": "a number", "integer": "a whole number", "boolean": "true or false"}
_NUMBER = re.compile(r"[+-]?[0-9]{1,15}(\.[0-9]{0,15})?([eE][+-]?[0-9]{1,2})?", re.ASCII)
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_NOTHING = {"", "null", "none"}
"""Texts that stand for an absent number or boolean."""


def read(tool: Tool, arguments: object) -> dict[str, Any]:
    """Return the given arguments, converted to their parameters' types.

    Raises:
        InvalidQuery: an argument is unknown, missing, or invalid; the message names what is valid.
    """
    if not isinstance(arguments, Mapping):
        raise InvalidQuery(f"{tool.name}: arguments must be a JSON object")
    known = tool.by_name
    for name, value in arguments.items():
        if name not in known and value is not None:
            named = str(name)[:80]
            takes = f"arguments: {listed(known)}" if known else "it has no arguments"
            raise InvalidQuery(f"{tool.name} has no argument {named!r}{nearest(named, known)}; {takes}", allowed=known)
    taken = {name: _read(known[name], value) for name, value in arguments.items() if name in known}
    given = {name: value for name, value in taken.items() if value is not None}
    for parameter in tool.parameters:
        if parameter.required and parameter.name not in given:
            raise InvalidQuery(f"{tool.name}: argument '{parameter.name}' is missing; {parameter.description}")
    return given


def listed(names: Iterable[str]) -> str:
    """Return comma-separated names, at most `LISTED_MAX` of them."""
    shown = list(names)
    more = f" and {len(shown) - LISTED_MAX} more" if len(shown) > LISTED_MAX else ""
    return ", ".join(shown[:LISTED_MAX]) + more


def _read(parameter: Parameter, value: Any) -> Any:
    """Return the value in the parameter's type; None if it was not given."""
    if value is None or value == "":
        return None
    if parameter.many:
        return _several(parameter, value)
    if isinstance(value, list) and len(value) == 1:
        return _read(parameter, value[0])
    match parameter.kind:
        case "string":
            return _text(parameter, json.dumps(value) if parameter.is_json and isinstance(value, dict) else value)
        case "boolean":
            return _boolean(parameter, value)
        case _:
            return _number(parameter, value)


def _several(parameter: Parameter, value: Any) -> tuple[str, ...] | None:
    values = _list_of(parameter, value)
    if not values:
        raise InvalidQuery(f"'{parameter.name}' is an empty list; name a value or omit it")
    return tuple(_text(parameter, each) for each in values if each is not None and each != "") or None


def _list_of(parameter: Parameter, value: Any) -> list[Any]:
    """Return the values of a list, a single value, or a JSON array in text (unless the text is an option)."""
    if isinstance(value, list):
        return value
    if isinstance(value, str) and value.lstrip().startswith("[") and value not in parameter.values:
        try:
            found = json.loads(value[:TEXT_CHARS_MAX])
        except (ValueError, RecursionError):
            return [value]
        return found if isinstance(found, list) else [value]
    return [value]


def _text(parameter: Parameter, value: Any) -> str:
    if isinstance(value, int | float) and json.dumps(value) in parameter.values:
        value = json.dumps(value)  # an option such as 3 or true, written without quotes
    if not isinstance(value, str):
        raise _type_error(parameter, value)
    if len(value) > TEXT_CHARS_MAX:
        raise InvalidQuery(f"'{parameter.name}' has {len(value)} characters; at most {TEXT_CHARS_MAX} are allowed")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidQuery(f"'{parameter.name}' contains a lone surrogate; send valid Unicode") from None
    if not parameter.values or value in parameter.values or (parameter.many and value == MISSING):
        return value
    by_shown = {display.line(each): each for each in parameter.values}
    if value in by_shown:  # an option with invisible characters, as results show it
        return by_shown[value]
    hint = nearest(value[:80], parameter.values)
    raise UnknownValue(
        f"'{parameter.name}' cannot be {value[:80]!r}{hint}; allowed: {listed(parameter.values)}",
        allowed=parameter.values,
    )


def _boolean(parameter: Parameter, value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else str(int(value)) if value in (0, 1) else None
    if isinstance(value, str) and word in _NOTHING:
        return None
    if word not in _BOOLEANS:
        raise _type_error(parameter, value)
    return _BOOLEANS[word]


def _number(parameter: Parameter, value: Any) -> int | float | None:
    number = value
    if isinstance(value, str):
        written = value.strip()
        if written.lower() in _NOTHING:
            return None
        if not _NUMBER.fullmatch(written):
            raise _type_error(parameter, value)
        number = int(written) if written.lstrip("+-").isdigit() else float(written)
    if isinstance(number, float) and number.is_integer() and parameter.kind == "integer":
        number = int(number)  # JSON has one number type: 10.0 is an integer
    wanted = int if parameter.kind == "integer" else (int, float)
    if not isinstance(number, wanted) or isinstance(number, bool):
        raise _type_error(parameter, value)
    below = parameter.least is not None and not number >= parameter.least
    above = parameter.most is not None and not number <= parameter.most
    if below or above:
        most = "" if parameter.most is None else f" to {parameter.most}"
        raise InvalidQuery(f"'{parameter.name}' is {number}; it must be from {parameter.least}{most}")
    return number


def _type_error(parameter: Parameter, value: Any) -> InvalidQuery:
    got = repr(value[:40]) if isinstance(value, str) else type(value).__name__
    return InvalidQuery(f"'{parameter.name}' must be {_KIND_NAMES[parameter.kind]}, not {got}")
