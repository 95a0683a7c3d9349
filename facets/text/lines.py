"""Patterns over the lines of a text (grep), as regular expressions of RE2, which take linear time whatever they say.

A pattern that is none of RE2's is taken literally: `a(` looks for these two characters, and the reply says so.
"""

import re
from dataclasses import dataclass

from facetline.facets.errors import InvalidQuery
from facetline.facets.text import globs

PATTERN_CHARS_MAX = 1_000
LINE_CHARS_MAX = 200
"""Of a line as it is shown."""

_PLAIN = re.compile(r"[^\\^$.|?*+()\[\]{}\n\r]*")
# Anchors of the whole text, and flags that change what anchors are: their lines cannot be looked for in whole texts.
_WHOLE_TEXT = re.compile(r"\\[AzZ]|\(\?")


@dataclass(frozen=True, slots=True)
class LinePattern:
    """A pattern that is looked for in lines; `because` says why it is taken literally, None when it is not."""

    given: str
    ignore_case: bool
    because: str | None = None

    @property
    def literal(self) -> str | None:
        """The text that it stands for, where it is no more than a text in its own case."""
        plain = self.because is not None or _PLAIN.fullmatch(self.given) is not None
        return self.given if plain and not self.ignore_case else None

    @property
    def expression(self) -> str:
        """The regular expression of a line."""
        text = self.given if self.because is None else globs.literal(self.given)
        return f"(?i){text}" if self.ignore_case else text

    @property
    def in_whole_text(self) -> str | None:
        """A regular expression that every text with such a line matches; None where there is none."""
        if self.because is None and _WHOLE_TEXT.search(self.given):
            return None
        return f"(?m){self.expression}"


def checked(pattern: str) -> str:
    """Return a pattern within its bounds.

    Raises:
        InvalidQuery: it is empty or too long.
    """
    if not pattern:
        raise InvalidQuery("grep is empty; write a pattern or leave it out")
    if len(pattern) > PATTERN_CHARS_MAX:
        raise InvalidQuery(f"grep has {len(pattern)} characters; at most {PATTERN_CHARS_MAX} are taken")
    return pattern


def shown(line: str, at: int = 0) -> str:
    """Return a line trimmed and cut to `LINE_CHARS_MAX`, around place `at` of it where it is longer."""
    start = len(line) - len(line.lstrip())
    text = line.strip()
    if len(text) <= LINE_CHARS_MAX:
        return text
    first = max(0, min(at - start - LINE_CHARS_MAX // 4, len(text) - LINE_CHARS_MAX + 1))
    before = "…" if first else ""
    room = LINE_CHARS_MAX - len(before)
    rest = text[first : first + room]
    return before + (rest if first + room >= len(text) else rest[:-1] + "…")
