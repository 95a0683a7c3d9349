"""Formats numbers and times for the page. Pure; never rounds up to certainty."""

import math
from datetime import datetime

MINUTE_S = 60
HOUR_S = 3_600
DAY_S = 86_400
_CENT = 0.01


def count(number: int) -> str:
    """Return an integer with thousands separators."""
    return f"{number:,}"


def confidence(value: float | None) -> str:
    """Return a confidence with two decimals, truncated: 0.999 is not 1.00; "none" for None."""
    if value is None:
        return "none"
    return f"{math.floor(value * 100 + 1e-9) / 100:.2f}"


def percent(part: float) -> str:
    """Return a fraction as a percentage; only 0 is "0 %", only 1 is "100 %"."""
    whole = round(part * 100)
    if whole == 0 and part > 0:
        return "<1 %"
    return ">99 %" if whole == 100 and part < 1 else f"{whole} %"  # noqa: PLR2004 (per cent)


def seconds(value: float) -> str:
    """Return a duration in seconds, minutes, hours or days."""
    if value < 1:
        return "under 1 s"
    if value < 2 * MINUTE_S:
        return f"{value:.0f} s"
    if value < 2 * HOUR_S:
        return f"{value / MINUTE_S:.0f} min"
    return f"{value / HOUR_S:.0f} h" if value < 2 * DAY_S else f"{value / DAY_S:.0f} days"


def usd(value: float | None) -> str:
    """Return an amount in US dollars, with more decimals for amounts below a cent; "unknown" for None."""
    if value is None:
        return "unknown"
    if value == 0 or value >= _CENT:
        return f"${value:,.2f}"
    return f"${value:.6f}".rstrip("0") if value >= 1e-6 else "under $0.000001"  # noqa: PLR2004 (the places shown)


def moment(text: str | None) -> str:
    """Return an RFC 3339 timestamp in a readable form, in UTC, to the second."""
    return "" if text is None else datetime.fromisoformat(text).strftime("%-d %b %Y, %H:%M:%S UTC")
