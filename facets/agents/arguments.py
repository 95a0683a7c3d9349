"""Arguments: what a model sent, checked against the tool, with errors that it can mend itself. Pure.

A null is an argument that was not given. An option may stand in a list, for several of them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from facets.agents.tools import Parameter, Tool
from facets.errors import InvalidQuery, UnknownValue, nearest
from facets.question_sets import MISSING

TEXT_CHARS_MAX = 1_000_000
"""Above the largest body; what reads the text has a closer bound of its own."""
LISTED_MAX = 60
_SAID = {"string": "text", "number": "a number", "integer": "a whole number", "boolean": "true or false"}


def read(tool: Tool, arguments: object) -> dict[str, Any]:
    """Return the arguments that were given, each of its parameter's type.

    Raises:
        InvalidQuery: one is unknown, missing, or has a value that it cannot take; the message says what it can.
    """
    if not isinstance(arguments, Mapping):
        raise InvalidQuery(f"{tool.name}: arguments are a JSON object")
    known = tool.by_name
    given = {str(name): value for name, value in arguments.items() if value is not None}
    for name in given:
        if name not in known:
            hint = nearest(name[:80], known)
            takes = f"it takes {listed(known)}" if known else "it takes none"
            raise InvalidQuery(f"{tool.name} has no argument {name[:80]!r}{hint}; {takes}", allowed=known)
    for parameter in tool.parameters:
        if parameter.required and parameter.name not in given:
            raise InvalidQuery(f"{tool.name}: argument '{parameter.name}' is missing; {parameter.description}")
    return {name: _checked(known[name], value) for name, value in given.items()}


def listed(names: Iterable[str]) -> str:
    """Return names with commas, a bounded number of them."""
    shown = list(names)
    more = f" and {len(shown) - LISTED_MAX} more" if len(shown) > LISTED_MAX else ""
    return ", ".join(shown[:LISTED_MAX]) + more


def _checked(parameter: Parameter, value: Any) -> Any:
    if parameter.many:
        values = value if isinstance(value, list) else [value]
        if not values:
            raise InvalidQuery(f"'{parameter.name}' is an empty list; name a value or leave it out")
        return tuple(_text_of(parameter, each) for each in values)
    match parameter.kind:
        case "string":
            return _text_of(parameter, value)
        case "boolean":
            if not isinstance(value, bool):
                raise _type_error(parameter, value)
            return value
        case _:
            return _number(parameter, value)


def _text_of(parameter: Parameter, value: Any) -> str:
    if not isinstance(value, str):
        raise _type_error(parameter, value)
    if len(value) > TEXT_CHARS_MAX:
        raise InvalidQuery(f"'{parameter.name}' has {len(value)} characters; at most {TEXT_CHARS_MAX} are taken")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidQuery(f"'{parameter.name}' holds half a surrogate pair; send valid Unicode") from None
    if parameter.values and value not in parameter.values and not (parameter.many and value == MISSING):
        hint = nearest(value[:80], parameter.values)
        raise UnknownValue(
            f"'{parameter.name}' cannot be {value[:80]!r}{hint}; allowed: {listed(parameter.values)}",
            allowed=parameter.values,
        )
    return value


def _number(parameter: Parameter, value: Any) -> int | float:
    number = value
    if isinstance(number, float) and number.is_integer() and parameter.kind == "integer":
        number = int(number)  # JSON knows one kind of number: 10.0 is a whole one
    wanted = int if parameter.kind == "integer" else (int, float)
    if not isinstance(number, wanted) or isinstance(number, bool):
        raise _type_error(parameter, value)
    below = parameter.least is not None and not number >= parameter.least
    above = parameter.most is not None and not number <= parameter.most
    if below or above:
        most = "" if parameter.most is None else f" to {parameter.most}"
        raise InvalidQuery(f"'{parameter.name}' is {number}; it goes from {parameter.least}{most}")
    return number


def _type_error(parameter: Parameter, value: Any) -> InvalidQuery:
    got = "text in quotes" if isinstance(value, str) else type(value).__name__
    return InvalidQuery(f"'{parameter.name}' takes {_SAID[parameter.kind]}, not {got}")
