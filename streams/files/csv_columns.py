"""Which columns of a CSV file are what: columns that no option and no field names never stop an import.

Names are compared without blanks around them. A column that no option and no field names is left out, with a
note that says which option takes it where its name is like a field's.
"""

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from facetline.facets import errors
from facetline.streams.files.text_files import InvalidFile

NAMES_SHOWN = 10
NUMBER = re.compile(r"[1-9][0-9]{0,4}")
INVISIBLE = "\ufeff\u200b"
"""What stands before a name in a file that was put together from others."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which CSV columns are what; `key` None takes the number of the row. The columns of `state` give its types.

    `facets` maps questions to columns with answers of an earlier system; an empty field is none. `named` maps fields of
    the state to columns that are called otherwise. `only`: fields that are taken beside what is named, None for all.
    `dates` has the formats of fields with dates.
    """

    body: str
    key: str | None
    ignore: Collection[str]
    state: Mapping[str, str]
    facets: Mapping[str, str] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)
    only: Collection[str] | None = None
    dates: Mapping[str, str] = field(default_factory=dict)

    def wanted(self) -> list[str]:
        """Return the columns that the options name."""
        return [name for name in (self.body, self.key, *self.facets.values(), *self.named.values()) if name is not None]


@dataclass(frozen=True, slots=True)
class Places:
    """Where in a record each part is; `left_out` are the names of columns that are neither taken nor named."""

    body: int
    key: int | None
    state: tuple[tuple[str, int], ...]
    facets: tuple[tuple[str, int], ...]
    left_out: tuple[str, ...]


class Header:
    """The names of a file's columns; looking one up costs the same however many there are."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = [name.strip().strip(INVISIBLE).strip() for name in names]
        self._exact = _places(names)
        self._places = _places(self.names)

    def all(self, name: str) -> list[int]:
        """Return the places of all columns with a name; `NAME.2` is the second of several with one name."""
        exact = self._exact.get(name, [])
        return exact if len(exact) == 1 else self._places.get(name.strip()) or self._numbered(name.strip())

    def _numbered(self, name: str) -> list[int]:
        base, _, number = name.rpartition(".")
        places = self._places.get(base, [])
        named = len(places) > 1 and NUMBER.fullmatch(number) and int(number) <= len(places)
        return [places[int(number) - 1]] if named else []

    def find(self, name: str, way_out: str = "") -> int:
        """Return the place of a column.

        Raises:
            InvalidFile: there is none, or there are several.
        """
        found = self.all(name)
        if not found:
            shown = [each for each in self.names if each]
            guess = errors.nearest(name, shown)
            raise InvalidFile(
                f"the file has no column {name!r}{guess}; it has {listed(shown)}{way_out}", allowed=shown[:NAMES_SHOWN]
            )
        if len(found) > 1:
            numbers = listed([str(place + 1) for place in found])
            raise InvalidFile(
                f"column {name!r} stands {'twice' if len(found) == 2 else f'{len(found)} times'} in the file"  # noqa: PLR2004
                f" (columns {numbers}); name the one that is meant by its place among them, such as '{name}.2'"
            )
        return found[0]

    def repeats(self, place: int) -> bool:
        """Say whether another column has the same name."""
        return len(self._places[self.names[place]]) > 1

    def ignored(self, names: Iterable[str]) -> set[int]:
        """Return the places of columns to leave out; `a,b` are two where no column is called so.

        Raises:
            InvalidFile: there is no such column.
        """
        found: set[int] = set()
        for name in names:
            places = self.all(name)
            for part in [] if places else name.split(","):
                if part.strip() or "," not in name:
                    some = self.all(part)
                    if not some:
                        raise InvalidFile(
                            f"the file has no column {part!r} to ignore; it has {listed(self.names)}",
                            allowed=self.names[:NAMES_SHOWN],
                        )
                    found.update(some)
            found.update(places)
        return found


def bind(names: Sequence[str], columns: Columns) -> Places:
    """Return where each part of a document is in the records of a file with this header.

    Raises:
        InvalidFile: a column that was named is missing or stands twice, or one could be a field that there is not.
    """
    header = Header(names)
    body = header.find(columns.body, "; name another one with --body-column")
    key = None if columns.key is None else header.find(columns.key, "; name another one with --key-column")
    facets = tuple((question, header.find(name)) for question, name in columns.facets.items())
    state = {name: header.find(column) for name, column in columns.named.items()}
    ignored = header.ignored(columns.ignore)
    taken = {body, *([] if key is None else [key]), *(place for _, place in facets)}
    used = taken | set(state.values())
    for name in columns.state:
        if name in state or (columns.only is not None and name not in columns.only):
            continue
        places = [place for place in header.all(name) if place not in used | ignored]
        if len(places) > 1:
            raise InvalidFile(
                f"column {name!r} stands {len(places)} times in the file, and the state has a field of that name; name"
                f" the column for it with --state-column {name}=COLUMN, or pass --ignore-columns {name}"
            )
        if places:
            state[name] = places[0]
    rest = [place for place in range(len(header.names)) if place not in used | ignored | set(state.values())]
    left_out = tuple(dict.fromkeys(header.names[place] for place in rest)) if columns.only is None else ()
    ordered = tuple((name, state[name]) for name in columns.state if name in state)
    return Places(body, key, ordered, facets, left_out)


def _places(names: Iterable[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault(name, []).append(place)
    return found


def listed(names: Sequence[str]) -> str:
    """Return names for a message; of many, the first ones."""
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def left_out_note(places: Places, columns: Columns) -> str | None:
    """Return what to report about columns that were left out, with the fields that they may have been meant for."""
    names = [name for name in places.left_out if name]
    if not names:
        return None
    missing = [field for field in columns.state if field not in dict(places.state)]
    close = {name: errors.likeliest(name, missing) for name in names[:NAMES_SHOWN]}
    meant = [f"--state-column {field}={shlex.quote(name)}" for name, field in close.items() if field]
    hint = f"; to take them as fields: {' '.join(meant)}" if meant else ""
    return f"columns left out: {listed([repr(name) for name in names])}{hint}"
