"""Find where a broken CSV record ends: the likely readings of its quotes are followed side by side until they agree.

A reading is a state (in a quoted field, in another one, at a field's start; in which field) with a cost: what makes it
unlikely, such as a quote that is neither doubled nor at an end, or a record with another number of fields than the
header. Reading may go on after the first record only where all readings that are nearly as likely as the best one have
it end in the same line; the later end is taken where two readings meet. So a line of a text never becomes a record, at
the price of a record that is refused beside a broken one now and then.
"""

import re

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

State = tuple[int, int]
Cost = tuple[int, int | None]
"""What a reading costs, and after how many lines the broken record ended in it; None while it has not."""


class Recovery:
    """The readings of what begins with a broken record; lines are fed to it until it knows where the record ended."""

    def __init__(self, width: int, delimiter: str, *, skip_blanks: bool = False, ragged: bool = False) -> None:
        """Begin with a record of `width` fields; `ragged`: it is broken only in that it has another number of them."""
        self._width = width
        self._wrong_count = WRONG_COUNT if ragged else WRONG_COUNT_BROKEN
        self._skip_blanks = skip_blanks
        apart = re.escape(delimiter)
        self._tokens = re.compile(
            rf'(?P<slashes>\\*)(?P<quotes>"+)(?=(?P<closes>{apart}|\Z)?)|(?P<delimiter>{apart})|[^"\\{apart}]+|\\+'
        )
        self._states: dict[State, Cost] = {(FRESH, 0): (0, None)}
        self._lines = 0
        self._held = ""
        self._begun = False

    @property
    def first_end(self) -> int | None:
        """After how many lines the record ended in the reading that has it end first; None when it has in none."""
        return min((end for _, end in self._states.values() if end is not None), default=None)

    def feed(self, piece: str, *, ends: bool = True) -> int | None:
        """Read on by a line, or by a piece of one that `ends` later; return after how many lines the record ended.

        None: that is not known yet.
        """
        text = self._held + piece
        self._held = ""
        if not ends:
            held = re.search(r'\\*"*\Z', text)
            cut = len(text) if held is None else held.start()
            text, self._held = text[:cut], text[cut:]
            self._read(text)
            self._begun = self._begun or bool(text)
            return None
        if '"' not in text and self._within_quotes():
            self._lines += 1
            self._begun = False
            return None
        text = text.rstrip("\r\n")
        self._read(text)
        self._end_line(blank=not text and not self._begun)
        self._begun = False
        return self._agreed()

    def give_up_waiting(self) -> int | None:
        """Decide for the likeliest reading; None, and the record goes on, when it has not ended in that one."""
        best = min(cost for cost, _ in self._states.values())
        ends = [end for cost, end in self._states.values() if cost == best]
        if None not in ends:
            return max(end for end in ends if end is not None)
        self._states = {state: found for state, found in self._states.items() if found[1] is None}
        return None

    def end_file(self) -> int:
        """Return after how many lines the record ended, now that there are no more; all of them where it is unknown."""
        found = [
            (cost + (UNCLOSED if state[0] == INSIDE else 0), end)
            for state, (cost, end) in self._states.items()
            if state[0] == INSIDE or end is not None
        ]
        best = min((cost for cost, _ in found), default=0)
        return max((self._lines if end is None else end for cost, end in found if cost < best + MARGIN), default=0)

    def _read(self, text: str) -> None:
        at = 0
        while at < len(text):
            if self._within_quotes():  # nothing but quotes counts there, and there may be megabytes of it
                at = text.find('"', at)
                if at < 0:
                    return
                while at and text[at - 1] == "\\":
                    at -= 1
            token = self._tokens.match(text, at)
            if token is None:
                return
            at = token.end()
            if token["quotes"]:
                escaped = len(token["slashes"]) % 2 == 1
                if token["slashes"]:
                    self._begin_fields()
                self._read_quotes(len(token["quotes"]), escaped=escaped, closes=token["closes"] is not None)
            elif token["delimiter"]:
                self._end_fields()
            elif not (self._skip_blanks and token[0].isspace()):
                self._begin_fields()

    def _within_quotes(self) -> bool:
        return all(kind == INSIDE for kind, _ in self._states)

    def _begin_fields(self) -> None:
        if any(kind == FRESH for kind, _ in self._states):
            self._step({state: [((PLAIN, state[1]), 0)] for state in self._states if state[0] == FRESH})

    def _end_fields(self) -> None:
        self._step(
            {state: [((FRESH, min(state[1] + 1, self._width)), 0)] for state in self._states if state[0] != INSIDE}
        )

    def _read_quotes(self, many: int, *, escaped: bool, closes: bool) -> None:
        if many % 2 == 0 and not escaped and not closes and self._within_quotes():
            return
        steps: dict[State, list[tuple[State, int]]] = {}
        for state in self._states:
            kind, index = state
            if kind == PLAIN:
                steps[state] = [(state, UNLIKELY)]
                continue
            inside, closed = (INSIDE, index), (PLAIN, index)
            left = many - 1 if kind == FRESH or escaped else many
            if left == 0:
                steps[state] = [(inside, 0)]
                if closes and kind == INSIDE:  # a backslash before the only quote: it may end the field all the same
                    steps[state].append((closed, UNLIKELY))
            elif left % 2 == 0:
                steps[state] = [(inside, 0)]
                if closes:
                    steps[state].append((closed, UNLIKELY))
            else:
                steps[state] = [(inside, UNLIKELY), (closed, 0 if closes else TRAILING)]
        self._step(steps)

    def _end_line(self, *, blank: bool) -> None:
        self._lines += 1
        ended: dict[State, Cost] = {}
        for (kind, index), (cost, end) in self._states.items():
            if kind == INSIDE:
                _merge(ended, (kind, index), (cost, end))
            elif blank and index == 0:
                _merge(ended, (FRESH, 0), (cost, end))
            else:
                wrong = self._wrong_count if end is None else WRONG_COUNT
                more = 0 if index + 1 == self._width else wrong
                _merge(ended, (FRESH, 0), (cost + more, self._lines if end is None else end))
        best = min(cost for cost, _ in ended.values())
        self._states = {state: found for state, found in ended.items() if found[0] < best + BEAM}

    def _step(self, steps: dict[State, list[tuple[State, int]]]) -> None:
        """Take every state one step further; those without a step stay."""
        found: dict[State, Cost] = {}
        for state, (cost, end) in self._states.items():
            for to, more in steps.get(state, [(state, 0)]):
                _merge(found, to, (cost + more, end))
        best = min(cost for cost, _ in found.values())
        self._states = {state: each for state, each in found.items() if each[0] < best + BEAM}

    def _agreed(self) -> int | None:
        best = min(cost for cost, _ in self._states.values())
        ends = {end for cost, end in self._states.values() if cost < best + MARGIN}
        return ends.pop() if len(ends) == 1 else None


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
