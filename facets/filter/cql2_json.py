"""The filter as CQL2 JSON: written as CQL2 text, which is what is read, compared, shown and bound from then on.

Taken is the same part of CQL2 as in the text (`facets.filter.parser`); what has another form is refused here, with the
place as a path into the JSON. Columns and values are judged with the text.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from facetline.facets.errors import InvalidFilter
from facetline.facets.filter.text import DEPTH_MAX, OPERANDS_MAX

_JOINS: Mapping[str, str] = {"and": " AND ", "or": " OR "}
_COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_OPERATORS = (*_JOINS, "not", *sorted(_COMPARISONS), "between", "in", "like", "isNull")


def text_of(tree: Mapping[str, Any]) -> str:
    """Return the text of a filter that came as JSON.

    Raises:
        InvalidFilter: it is no filter, too deep or too large.
    """
    return _Writer().condition(tree, "filter", 0)


class _Writer:
    """Writes one tree; counts what it writes, so that a large one ends early."""

    def __init__(self) -> None:
        self._operands = 0

    def condition(self, tree: Any, place: str, depth: int) -> str:
        if depth > DEPTH_MAX:
            raise InvalidFilter(f"{place}: more than {DEPTH_MAX} conditions inside each other")
        match tree:
            case {"property": str()} if len(tree) == 1:
                return self._operand(tree, place)
            case bool():
                raise InvalidFilter(f"{place}: {json.dumps(tree)} alone is no condition; compare a column with a value")
            case {"op": str(op), "args": list(args)} if len(tree) == 2 and op in _OPERATORS:  # noqa: PLR2004 (both)
                return self._operation(op, args, f"{place}.args", depth)
            case {"op": op}:
                known = ", ".join(_OPERATORS)
                raise InvalidFilter(
                    f"{place}: {json.dumps(op)[:80]} with a list of args is expected to be one of {known}"
                )
        raise InvalidFilter(f'{place}: a condition is expected, {{"op": …, "args": […]}}, not {_brief(tree)}')

    def _operation(self, op: str, args: Sequence[Any], place: str, depth: int) -> str:
        if op in _JOINS:
            return self._joined(op, args, place, depth)
        wanted = {"not": 1, "isNull": 1, "between": 3}.get(op, 2)
        if len(args) != wanted:
            raise InvalidFilter(f"{place}: '{op}' takes {wanted} args, not {len(args)}")
        if op == "not":
            return f"NOT ({self.condition(args[0], f'{place}[0]', depth + 1)})"
        if op == "in":
            return f"{self._operand(args[0], f'{place}[0]')} IN ({self._list(args[1], f'{place}[1]')})"
        first, *others = (self._operand(arg, f"{place}[{n}]") for n, arg in enumerate(args))
        if op == "isNull":
            return f"{first} IS NULL"
        return f"{first} {op.upper()} {' AND '.join(others)}"

    def _joined(self, op: str, args: Sequence[Any], place: str, depth: int) -> str:
        if not args:
            raise InvalidFilter(f"{place}: '{op}' joins one condition or more")
        parts = [self.condition(arg, f"{place}[{n}]", depth + 1) for n, arg in enumerate(args)]
        return f"({_JOINS[op].join(parts)})" if len(parts) > 1 else parts[0]

    def _list(self, values: Any, place: str) -> str:
        if not isinstance(values, list) or not values:
            raise InvalidFilter(f"{place}: a list of values is expected, not {_brief(values)}")
        return ", ".join(self._operand(value, f"{place}[{n}]") for n, value in enumerate(values))

    def _operand(self, tree: Any, place: str) -> str:
        self._operands += 1
        if self._operands > OPERANDS_MAX:
            raise InvalidFilter(f"{place}: more than {OPERANDS_MAX} names and values; split the search")
        match tree:
            case {"property": str(name)} if len(tree) == 1:
                if not name.isidentifier():
                    raise InvalidFilter(f"{place}: there is no column {name[:80]!r}")
                return f'"{name}"'
            case {"timestamp": str(moment)} if len(tree) == 1:
                return f"TIMESTAMP({_quoted(moment)})"
            case bool():
                return "TRUE" if tree else "FALSE"
            case int() if -(10**30) < tree < 10**30:
                return str(tree)
            case float() if math.isfinite(tree):
                return repr(tree)
            case str():
                return _quoted(tree)
        raise InvalidFilter(f"{place}: a column or a value is expected, not {_brief(tree)}")


def _quoted(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def _brief(tree: Any) -> str:
    if isinstance(tree, dict | list):
        return "an object" if isinstance(tree, dict) else "a list"
    return repr(tree)[:80]
