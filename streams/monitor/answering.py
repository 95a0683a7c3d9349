"""Report which processes call the evaluators of a store, in the same words for readiness, `doctor` and the page."""

from facetline.storage import processes
from facetline.storage.db import json_rows

START = "start 'facetline worker'"


def is_amiss(found: processes.Answering) -> bool:
    """Say whether documents wait that no process asks about."""
    return not found.living and found.waiting > 0


def says(found: processes.Answering) -> str:
    """Return it as one line: who asks, and what waits; with nothing amiss, or the way out."""
    if found.living:
        first, more = found.living[0].shown, len(found.living) - 1
        return f"{first}{f' and {more} more' if more else ''} asks; {waits(found)}"
    if not found.waiting:
        return f"no worker is running; {waits(found)}"
    return f"{waits(found)}; no worker is running: {START}"


def waits(found: processes.Answering) -> str:
    """Say how many documents wait for their answers, and since when."""
    if not found.waiting:
        return "no document waits"
    since = ""
    if found.since_ms is not None:
        since = f" since {json_rows.moment(found.since_ms).strftime('%Y-%m-%d %H:%M:%S UTC')}"
    number = f"{found.waiting} or more" if found.waiting >= processes.COUNTED_MAX else str(found.waiting)
    one = found.waiting == 1
    return f"{number} document{' waits' if one else 's wait'} for {'its' if one else 'their'} answers{since}"
