"""Text of a file as a value of the collection's state: numbers as spreadsheets write them, dates as people do."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from facetline.streams.files.text_files import InvalidFile

INTEGER = re.compile(r"([+-]?[0-9]{1,30})(?:\.0*)?")
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
DECIMAL_COMMA = re.compile(r"[+-]?(?:[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]+),[0-9]+")
ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
ISO_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]")
BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "1.0": True, "0.0": False}
SHOWN = 40
PROBE = datetime(2024, 11, 25, 14, 53, 27, tzinfo=UTC)


def typed(text: str, kind: str, date_format: str | None = None) -> Any:
    """Return a field's text as a value of a state type; an empty one is null.

    Raises:
        ValueError: the text is no such value; the message says what is.
    """
    if text == "":
        return None
    if kind == "string":
        return text
    stripped = text.strip()
    if kind == "integer":
        found = INTEGER.fullmatch(stripped)
        if found is None:
            raise ValueError(f"{text[:SHOWN]!r} is not of type integer; write digits alone, such as 1000")
        return int(found[1])
    if kind == "number":
        number = float(stripped) if NUMBER.fullmatch(stripped) else float("inf")
        if DECIMAL_COMMA.fullmatch(stripped):
            point = stripped.replace(".", "").replace(",", ".")
            raise ValueError(
                f"{text[:SHOWN]!r} is not of type number; if the comma is a decimal comma, write {point[:SHOWN]} in"
                " the whole column"
            )
        if abs(number) == float("inf"):
            raise ValueError(f"{text[:SHOWN]!r} is not of type number; write digits and a point, such as 1000.5")
        return number
    if kind == "boolean":
        if stripped.lower() not in BOOLEANS:
            raise ValueError(f"{text[:SHOWN]!r} is not true or false")
        return BOOLEANS[stripped.lower()]
    return moment(stripped, date_format)


def moment(text: str, date_format: str | None) -> str:
    """Return a date or time in RFC 3339; an ISO date alone, and a format without an offset, are in UTC.

    A time of ISO 8601 is returned as it is without a declared format: the state's own check judges it.

    Raises:
        ValueError: the text is not in the declared format, or neither ISO date nor time.
    """
    if date_format is None:
        if ISO_DATE.fullmatch(text):
            try:
                date.fromisoformat(text)
            except ValueError:
                raise ValueError(f"{text!r} is no day of any calendar") from None
            return f"{text}T00:00:00Z"
        if not ISO_TIME.match(text):
            raise ValueError(f"{text[:SHOWN]!r} is no date as 2026-06-04, nor a time as 2026-06-04T14:00:00Z")
        return text
    wrong = ValueError(f"{text[:SHOWN]!r} is not in its date format {date_format!r}")
    if any(letter.isdigit() and not letter.isascii() for letter in text):
        raise wrong
    try:
        found = datetime.strptime(text, date_format)  # noqa: DTZ007 (a format without an offset is UTC, as documented)
        zoned = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise wrong from None
    return zoned.isoformat().replace("+00:00", "Z")


def with_moments(state: dict[str, Any], types: Mapping[str, str], formats: Mapping[str, str]) -> dict[str, Any]:
    """Return a state of JSON with its dates and times in RFC 3339.

    Raises:
        ValueError: naming the field.
    """
    found = dict(state)
    for name, value in state.items():
        if types.get(name) == "datetime" and isinstance(value, str):
            try:
                found[name] = moment(value, formats.get(name))
            except ValueError as error:
                raise ValueError(f"field '{name}': {error}; see --date-format {name}=FORMAT") from None
    return found


def check_date_formats(formats: Mapping[str, str], types: Mapping[str, str]) -> None:
    """Refuse formats that no date can be read by, and those of fields that hold none.

    Raises:
        InvalidFile: naming the field and what is wrong.
    """
    for name, form in formats.items():
        if types.get(name) != "datetime":
            dates = ", ".join(field for field, kind in types.items() if kind == "datetime") or "none"
            raise InvalidFile(
                f"--date-format: {name!r} is no field of type datetime; of the state's these are: {dates}"
            )
        if "%Z" in form:
            raise InvalidFile(f"--date-format {name}: %Z is a zone's name, which may be one of several; use %z")
        try:
            read = datetime.strptime(PROBE.strftime(form), form)  # noqa: DTZ007
        except (ValueError, re.error) as error:
            raise InvalidFile(f"--date-format {name}: {form!r} is no format of a date ({error})") from None
        if read.date() != PROBE.date():
            raise InvalidFile(f"--date-format {name}: {form!r} needs a year, a month and a day, such as '%d.%m.%Y'")
