"""Counts in messages: `1 document`, `2 documents`."""


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun; `many` is `one` with an s unless it is given."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
