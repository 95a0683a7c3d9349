"""The filter as a list of clauses joined by AND: what a click on a bar adds to the text, and takes out again.

The text stays the user's own: only clauses that were written here are recognised, everything else is kept letter for
letter. Whether a filter can be read is decided by `facets.filters` alone.
"""

import re
from collections.abc import Iterator, Sequence

_AND = re.compile(r"\s+and\s+", re.IGNORECASE)
_BETWEEN = re.compile(r"\bbetween\b", re.IGNORECASE)
_OR = re.compile(r"\bor\b", re.IGNORECASE)


def split(text: str | None) -> list[str]:
    """Return the clauses that AND joins at the top of a filter; all of it as one where that cannot be told."""
    whole = (text or "").strip()
    if not whole:
        return []
    parts: list[str] = []
    start = 0
    for found in _AND.finditer(whole):
        if _at_top(whole[: found.start()]) and not _in_between(whole[start : found.start()]):
            parts.append(whole[start : found.start()])
            start = found.end()
    parts.append(whole[start:])
    # Where an OR stands at the top, AND binds more tightly than it: the parts are no clauses.
    return [whole] if any(_or_at_top(part) for part in parts) else parts


def joined(parts: Sequence[str]) -> str | None:
    """Return the filter that these clauses make; None without any."""
    if len(parts) > 1:
        parts = [f"({part})" if _or_at_top(part) else part for part in parts]
    return " AND ".join(parts) or None


def without(text: str | None, made: Sequence[str]) -> str | None:
    """Return the filter without these clauses."""
    return joined([part for part in split(text) if part not in made])


def replaced(text: str | None, made: Sequence[str], wanted: str) -> str | None:
    """Return the filter with `wanted` in place of those of its clauses that are among `made`."""
    kept = [part for part in split(text) if part not in made]
    return joined([*kept, wanted])


def quoted(value: str) -> str:
    """Return a text as a literal of the filter."""
    return "'" + value.replace("'", "''") + "'"


def _at_top(before: str) -> bool:
    depth = 0
    for letter in _bare(before):
        depth += (letter == "(") - (letter == ")")
    return depth == 0 and before.count("'") % 2 == 0


def _bare(text: str) -> Iterator[str]:
    inside = False
    for letter in text:
        if letter == "'":
            inside = not inside
        elif not inside:
            yield letter


def _in_between(clause: str) -> bool:
    bare = "".join(_bare(clause))
    return bool(_BETWEEN.search(bare)) and not _AND.search(bare)


def _or_at_top(clause: str) -> bool:
    return any(_at_top(clause[: found.start()]) for found in _OR.finditer(clause))
