"""Find where a broken CSV record ends: the likely readings of its quotes are followed side by side until they agree.

A reading is a state (in a quoted field, in another one, at a field's start; in which field) with a cost: what makes it
unlikely, such as a quote that is neither doubled nor at an end, or a record with another number of fields than the
header. Reading may go on after the first record only where all readings that are nearly as likely as the best one have
it end in the same line; the later end is taken where two readings meet. So a line of a text never becomes a record, at
the price of a record that is refused beside a broken one now and then.
"""

import re
from functools import lru_cache
from typing import Literal

FRESH, PLAIN, INSIDE = range(3)
"""At the start of a field; in (or behind) one without an open quote; within quotes."""
UNLIKELY = 2
"""A quote where none belongs, one that could close the field and does not, or one after a backslash that closes it."""
TRAILING = 1
"""A quote that closes the field although text follows it."""
WRONG_COUNT = 1
"""Another number of fields than the header has: ordinary by itself."""
WRONG_COUNT_BROKEN = 4
"""The same where the record's quotes are broken: then it is likelier that it goes on."""
UNCLOSED = 4
"""The file ends within quotes."""
MARGIN = 3
"""A reading is out of the question when another one costs so much less."""
BEAM = 6
"""A reading is forgotten when the best one costs so much less."""

KNOWN_MAX = 4_000
"""Of sets of readings, until they are forgotten; a file has some tens."""

State = tuple[int, int]
Cost = tuple[int, int | None]
"""What a reading costs more than the best one, and which of the known ends the broken record has in it, by place.

The end is None while the record has not ended.
"""
Quotes = tuple[int, bool, bool]
"""A run of quotes: 1, 2 or 3 (for more, what has the same effect); after a backslash; before a delimiter or an end."""
Step = Literal["text", "delimiter", "line", "blank"] | Quotes


class _Readings:
    """A set of readings, and the sets that follow it; as there are few, each is worked out once."""

    __slots__ = ("following", "states", "within_quotes")

    def __init__(self, states: dict[State, Cost]) -> None:
        self.states = states
        self.within_quotes = all(kind == INSIDE for kind, _ in states)
        self.following: dict[Step, tuple[_Readings, tuple[int, ...]]] = {}


class _Automaton:
    """How readings go on in files with so many columns."""

    def __init__(self, width: int, wrong_count: int) -> None:
        self._width = width
        self._wrong_count = wrong_count
        self._known: dict[tuple[tuple[State, Cost], ...], _Readings] = {}
        self.start = self.interned({(FRESH, 0): (0, None)})

    def interned(self, states: dict[State, Cost]) -> _Readings:
        """Return the one object for these states, of which the likeliest ones stay."""
        best = min(cost for cost, _ in states.values())
        kept = {state: (cost - best, end) for state, (cost, end) in states.items() if cost < best + BEAM}
        name = tuple(kept.items())  # their order counts where several meet
        found = self._known.get(name)
        if found is None:
            if len(self._known) >= KNOWN_MAX:
                self._forget()
            found = self._known[name] = _Readings(kept)
        return found

    def _forget(self) -> None:
        for readings in self._known.values():
            readings.following.clear()
        self._known.clear()

    def follow(self, readings: _Readings, step: Step) -> tuple[_Readings, tuple[int, ...]]:
        """Return the readings after a step, and which of the ends, by place, are still in one of them."""
        if isinstance(step, tuple):
            states = _after(readings, {state: _quoted(state, step) for state in readings.states})
        elif step == "text":
            states = _after(readings, {state: [((PLAIN, state[1]), 0)] for state in readings.states if not state[0]})
        elif step == "delimiter":
            states = _after(
                readings,
                {
                    state: [((FRESH, min(state[1] + 1, self._width)), 0)]
                    for state in readings.states
                    if state[0] != INSIDE
                },
            )
        else:
            states = self._after_line(readings, blank=step == "blank")
        kept = self.interned(states)
        places = tuple(sorted({end for _, end in kept.states.values() if end is not None}))
        again = {place: number for number, place in enumerate(places)}
        found = self.interned(
            {state: (cost, None if end is None else again[end]) for state, (cost, end) in kept.states.items()}
        )
        readings.following[step] = found, places
        return found, places

    def _after_line(self, readings: _Readings, *, blank: bool) -> dict[State, Cost]:
        here = 1 + max((end for _, end in readings.states.values() if end is not None), default=-1)
        ended: dict[State, Cost] = {}
        for (kind, index), (cost, end) in readings.states.items():
            if kind == INSIDE:
                _merge(ended, (kind, index), (cost, end))
            elif blank and index == 0:
                _merge(ended, (FRESH, 0), (cost, end))
            else:
                wrong = self._wrong_count if end is None else WRONG_COUNT
                more = 0 if index + 1 == self._width else wrong
                _merge(ended, (FRESH, 0), (cost + more, here if end is None else end))
        return ended


_automaton = lru_cache(maxsize=4)(_Automaton)


class Recovery:
    """The readings of what begins with a broken record; lines are fed to it until it knows where the record ended."""

    def __init__(self, width: int, delimiter: str, *, skip_blanks: bool = False, ragged: bool = False) -> None:
        """Begin with a record of `width` fields; `ragged`: it is broken only in that it has another number of them."""
        self._skip_blanks = skip_blanks
        apart = re.escape(delimiter)
        self._tokens = re.compile(
            rf'(?P<slashes>\\*)(?P<quotes>"+)(?=(?P<closes>{apart}|\Z)?)|(?P<delimiter>{apart})|[^"\\{apart}]+|\\+'
        )
        self._automaton = _automaton(width, WRONG_COUNT if ragged else WRONG_COUNT_BROKEN)
        self._readings = self._automaton.start
        self._ends: list[int] = []
        self._lines = 0
        self._held = ""
        self._begun = False

    @property
    def first_end(self) -> int | None:
        """After how many lines the record ended in the reading that has it end first; None when it has in none."""
        return self._ends[0] if self._ends else None

    def feed(self, piece: str, *, ends: bool = True) -> int | None:
        """Read on by a line, or by a piece of one that `ends` later; return after how many lines the record ended.

        None: that is not known yet.
        """
        text = self._held + piece
        self._held = ""
        if not ends:
            before_quotes = text.rstrip('"')
            before = before_quotes.rstrip("\\")
            slashes, quotes = len(before_quotes) - len(before), len(text) - len(before_quotes)
            self._held = "\\" * _same_effect(slashes) + '"' * _same_effect(quotes)
            self._read(before)
            self._begun = self._begun or bool(before)
            return None
        if '"' not in text and self._readings.within_quotes:
            self._lines += 1
            self._begun = False
            return self._agreed()
        text = text.rstrip("\r\n")
        self._read(text)
        self._lines += 1
        self._take("line" if text or self._begun else "blank")
        self._begun = False
        return self._agreed()

    def give_up_waiting(self) -> int | None:
        """Decide for the likeliest reading; None, and the record goes on, when it has not ended in that one."""
        states = self._readings.states
        likeliest = [end for cost, end in states.values() if cost == 0]
        if None not in likeliest:
            return self._ends[max(end for end in likeliest if end is not None)]
        self._readings = self._automaton.interned({state: found for state, found in states.items() if found[1] is None})
        self._ends = []
        return None

    def end_file(self) -> int:
        """Return after how many lines the record ended, now that there are no more; all of them where it is unknown."""
        found = [
            (cost + (UNCLOSED if state[0] == INSIDE else 0), self._lines if end is None else self._ends[end])
            for state, (cost, end) in self._readings.states.items()
            if state[0] == INSIDE or end is not None
        ]
        best = min((cost for cost, _ in found), default=0)
        return max((end for cost, end in found if cost < best + MARGIN), default=0)

    def _read(self, text: str) -> None:
        at = 0
        while at < len(text):
            if self._readings.within_quotes:  # nothing but quotes counts there, and there may be megabytes of it
                at = text.find('"', at)
                if at < 0:
                    return
                while at and text[at - 1] == "\\":
                    at -= 1
            token = self._tokens.match(text, at)
            if token is None:
                return
            at = token.end()
            slashes, quotes, closes, delimiter = token.groups()
            if quotes:
                if slashes:
                    self._take("text")
                self._take((_same_effect(len(quotes)), len(slashes) % 2 == 1, closes is not None))
            elif delimiter:
                self._take("delimiter")
            elif not (self._skip_blanks and token[0].isspace()):
                self._take("text")

    def _take(self, step: Step) -> None:
        known = self._readings.following.get(step)
        self._readings, places = self._automaton.follow(self._readings, step) if known is None else known
        if step in {"line", "blank"}:
            self._ends.append(self._lines)
        if len(places) != len(self._ends):
            self._ends = [self._ends[place] for place in places]

    def _agreed(self) -> int | None:
        ends = {end for cost, end in self._readings.states.values() if cost < MARGIN}
        if len(ends) != 1:
            return None
        end = ends.pop()
        return None if end is None else self._ends[end]


def _same_effect(many: int) -> int:
    """Return the least number of quotes, or of backslashes, that is read as so many are."""
    return many if many < 3 else 2 + many % 2  # noqa: PLR2004


def _after(readings: _Readings, steps: dict[State, list[tuple[State, int]]]) -> dict[State, Cost]:
    """Take every reading one step further; those without a step stay."""
    found: dict[State, Cost] = {}
    for state, (cost, end) in readings.states.items():
        for to, more in steps.get(state, [(state, 0)]):
            _merge(found, to, (cost + more, end))
    return found


def _quoted(state: State, quotes: Quotes) -> list[tuple[State, int]]:
    """Return what a run of quotes makes of a reading, and at what cost."""
    kind, index = state
    many, escaped, closes = quotes
    if kind == PLAIN:
        return [(state, UNLIKELY)]
    inside, closed = (INSIDE, index), (PLAIN, index)
    left = many - 1 if kind == FRESH or escaped else many
    if left % 2:
        return [(inside, UNLIKELY), (closed, 0 if closes else TRAILING)]
    # a backslash before the only quote: it may end the field all the same
    may_close = closes and (left > 0 or kind == INSIDE)
    return [(inside, 0), (closed, UNLIKELY)] if may_close else [(inside, 0)]


def _merge(states: dict[State, Cost], state: State, new: Cost) -> None:
    """Put a reading where another one may be already; the later end is kept unless one is out of the question."""
    old = states.get(state)
    if old is None:
        states[state] = new
        return
    low, high = sorted((old, new), key=lambda found: found[0])
    if high[0] - low[0] >= MARGIN or low[1] is None:
        states[state] = low
    else:
        states[state] = (low[0], None if high[1] is None else max(low[1], high[1]))
