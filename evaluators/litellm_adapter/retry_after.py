"""How long a provider wants to be left alone: its `Retry-After` header in all of its forms. Pure."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRY_AFTER_MAX_S = 24 * 3600.0
"""What is believed of a Retry-After. The pipeline has a cap of its own for waiting."""


def seconds(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Return the seconds that a provider wants to be left alone, from 0 to a day; None when it does not say.

    `retry-after-ms` counts before `Retry-After`, which is a number of seconds or a date. A date is compared with the
    answer's own `Date`: clocks differ.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return believed(milliseconds / 1000)
    message = headers.get("retry-after")
    if message is None:
        return None
    number = _number(message)
    if number is not None:
        return believed(number)
    until, since = _date(message), _date(headers.get("date")) or now
    return None if until is None else believed((until - since).total_seconds())


def believed(told_s: float) -> float:
    """Return as much of a wish as is believed."""
    return min(max(told_s, 0.0), RETRY_AFTER_MAX_S)


def _number(message: str | None) -> float | None:
    found = re.fullmatch(r"\s*(-?\d{1,15}(?:\.\d{0,15})?)\s*s?\s*", message or "")
    return float(found[1]) if found else None


def _date(message: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(message or "")
    except (ValueError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
