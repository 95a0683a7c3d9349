"""Cells as JSON: what JSON cannot hold exactly is text.

Moments are UTC and RFC 3339. Whole numbers beyond 2^53 and decimals that a double does not hold are text, so that no
reader rounds them unseen. NaN and the infinities, which JSON does not know, are null. Bytes are base64.
"""

import base64
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

WHOLE_MAX = 2**53 - 1
"""The largest whole number that every JSON reader holds exactly."""

AS_TEXT = ("TIME ZONE", "INTERVAL", "BIT", "TIME_NS", "TIMESTAMP_NS", "BIGNUM", "VARIANT", "GEOMETRY", "UNION")
"""Types whose names hold one of these come as DuckDB writes them: Python has no such value, or needs a library."""


def readable(type_name: str, column: str) -> str | None:
    """Return a column as SQL that Python can read; None where it can be read as it is."""
    if type_name == "TIMESTAMP WITH TIME ZONE":
        return f"{column} AT TIME ZONE 'UTC'"
    return f"CAST({column} AS VARCHAR)" if any(part in type_name for part in AS_TEXT) else None


def cell(value: Any) -> Any:
    """Return a cell as what JSON can hold."""
    if value is None or value is True or value is False or type(value) is str:
        return value
    maker = _MAKERS.get(type(value))
    return str(value) if maker is None else maker(value)


def _whole(value: int) -> int | str:
    return value if -WHOLE_MAX <= value <= WHOLE_MAX else str(value)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _decimal(value: Decimal) -> float | str:
    nearest = float(value)
    return nearest if Decimal(repr(nearest)) == value else str(value)


def _moment(value: datetime) -> str:
    known = value.astimezone(UTC) if value.tzinfo else value
    return f"{known.replace(tzinfo=None).isoformat()}Z"


def _mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {key if type(key) is str else str(cell(key)): cell(each) for key, each in value.items()}


def _sequence(value: Any) -> list[Any]:
    return [cell(each) for each in value]


_MAKERS: Mapping[type, Callable[[Any], Any]] = {
    int: _whole,
    float: _number,
    Decimal: _decimal,
    datetime: _moment,
    date: date.isoformat,
    time: time.isoformat,
    bytes: lambda value: base64.b64encode(value).decode(),
    bytearray: lambda value: base64.b64encode(value).decode(),
    dict: _mapping,
    list: _sequence,
    tuple: _sequence,
}
