"""Cursors: where a page ended, as an opaque text that fits one search only.

A cursor carries what the last row sorts by and its uri, so a page is found by value and needs no state. It is bound to
everything that decides which rows there are and in which order; limit and counts may change between pages.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from facetline.facets.errors import InvalidCursor
from facetline.facets.search.selection import Selection, sorted_by
from facetline.facets.search.sql import Query
from facetline.facets.table.tables import Kind, Table
from facetline.facets.text.carried import Carried, from_json

# A uri, SORT_MAX texts of sort_keys.CHARACTERS_MAX and the words of a text search, encoded, with room.
_LENGTH_MAX = 48 * 1024
_TYPES: Mapping[Kind, tuple[type, ...]] = {
    "text": (str,),
    "integer": (int,),
    "number": (float, int),
    "boolean": (bool,),
    "datetime": (int,),
}


def encode(after: tuple[Any, ...], carried: Carried | None, query: Query) -> str:
    """Return the cursor behind a row; `after` is what it sorts by, its uri last, `carried` is of a search by text."""
    parts = [_binding(query.selection, query.table), *after, *([] if carried is None else [carried])]
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(query: Query) -> tuple[tuple[Any, ...] | None, Carried | None]:
    """Return what the selection's cursor carries of the last row and of a search by text, None without a cursor.

    Raises:
        InvalidCursor: it is damaged, or belongs to another search or to an older definition of the collection.
    """
    selection, table = query.selection, query.table
    if selection.cursor is None:
        return None, None
    binding, *after = _parts(selection.cursor)
    if binding != _binding(selection, table):
        raise InvalidCursor("the cursor belongs to another search; leave it out to start over")
    carried = None
    if selection.q is not None:
        carried = from_json(after.pop()) if after else None
        if carried is None:
            raise _damaged()
    kinds: list[Kind] = [*(column.kind for column, _ in sorted_by(selection, table)), "text"]
    if len(after) != len(kinds) or not isinstance(after[-1], str):
        raise _damaged()
    for value, kind in zip(after, kinds, strict=True):
        if value is not None and not _fits(value, kind):
            raise _damaged()
    return tuple(after), carried


def _parts(cursor: str) -> list[Any]:
    if len(cursor) > _LENGTH_MAX:
        raise _damaged()
    try:
        parts = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise _damaged() from None
    if not isinstance(parts, list) or not parts:
        raise _damaged()
    return parts


def _fits(value: Any, kind: Kind) -> bool:
    if isinstance(value, bool) != (kind == "boolean") or not isinstance(value, _TYPES[kind]):
        return False
    if isinstance(value, str):
        return value.isascii() or _is_valid(value)
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def _is_valid(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _damaged() -> InvalidCursor:
    return InvalidCursor("the cursor is damaged; leave it out to start over")


def _binding(selection: Selection, table: Table) -> str:
    asked = [
        selection.collection,
        sorted((name, sorted(set(values))) for name, values in selection.facets.items()),
        sorted((name, selection.least(name)) for name in selection.facets if name in table.questions),
        selection.filter,
        selection.sort,
        selection.of_texts,
        selection.glob,
        [(column.name, column.kind, column.values) for column in table.columns.values()],
    ]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]
