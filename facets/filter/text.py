"""The filter's text before it is parsed: bounds, and where each operand stands.

The parser of the `cql2` wheel is recursive native code: deep nesting or a long chain of operators ends the process. So
the text is walked here first, and only what is small enough goes on. The walk also notes every operand with its place
and its exact text, which the parser does not keep (to it every number is a double).

What is refused here is either too large or outside the part of CQL2 that we take (arithmetic, one comparison compared
with another). Everything else is the parser's to judge.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass, field

from facetline.facets.errors import InvalidFilter

BYTES_MAX = 64 * 1024
DEPTH_MAX = 50
# With DEPTH_MAX, half of what overflows a thread's stack of 512 KiB, the smallest of the platforms we run on.
CONDITIONS_MAX = 250
OPERANDS_MAX = 2_000

_TOKEN = re.compile(
    r"""\s*(?: (?P<string>'(?:[^']|'')*') | (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?) | "(?P<quoted>\w*)"
         | (?P<word>[^\W\d][\w.:]*) | (?P<sign><>|<=|>=|!=|\S) )""",
    re.VERBOSE,
)
_PARENTHESIS = re.compile(r"\s*\(")
_COMPARISONS = frozenset({"=", "<", ">", "<=", ">=", "<>", "!=", "in", "like", "between", "is"})
# They make a literal of the text in their parentheses.
_FUNCTIONS = frozenset({"timestamp", "date"})
_ARITHMETIC = frozenset("+*/%^-")


@dataclass(frozen=True, slots=True)
class Operand:
    """A name or literal as it stands in the text; `text` has no quotes and keeps the sign of a number."""

    kind: str
    text: str
    line: int
    column: int


@dataclass(slots=True)
class _Group:
    """What is between two parentheses, or the whole text."""

    compared: bool = False
    between: bool = False


@dataclass(slots=True)
class _Walk:
    text: str
    operands: list[Operand] = field(default_factory=list)
    groups: list[_Group] = field(default_factory=lambda: [_Group()])
    operand_expected: bool = True
    unary_run: int = 0
    conditions: int = 1
    minus: bool = False
    lines: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lines += (match.end() for match in re.finditer("\n", self.text))

    def place(self, offset: int) -> tuple[int, int]:
        """Return what `place` does, for many characters of one text."""
        line = bisect_right(self.lines, offset)
        return line + 1, offset + 1 - (self.lines[line - 1] if line else 0)


def operands(text: str) -> list[Operand]:
    """Return the operands of a filter in their order.

    Raises:
        InvalidFilter: the text is too large, too deep, or uses what is not taken.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidFilter("the filter holds half a surrogate pair; send valid Unicode") from None
    if size > BYTES_MAX:
        raise InvalidFilter(f"the filter has {size} bytes; at most {BYTES_MAX} are taken")
    walk = _Walk(text)
    for match in _TOKEN.finditer(text.rstrip()):  # blanks at the end would be tried from each of them
        kind = match.lastgroup or ""
        _step(walk, kind, match[kind], match.start(kind))
    return walk.operands


def refuse(text: str, offset: int, message: str) -> InvalidFilter:
    """Return the error about the character at `offset`."""
    line, column = place(text, offset)
    return InvalidFilter(f"filter, line {line}, column {column}: {message}", line=line, column=column)


def place(text: str, offset: int) -> tuple[int, int]:
    """Return the line and column of a character, both from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _step(walk: _Walk, kind: str, token: str, offset: int) -> None:
    word = token.lower() if kind == "word" else token
    if kind == "sign":
        _sign(walk, token, offset)
    elif kind == "word" and word == "not":
        _unary(walk, offset)
    elif walk.operand_expected:
        _operand(walk, kind, token, offset)
    elif kind == "word":
        _operator(walk, word, offset)


def _operand(walk: _Walk, kind: str, token: str, offset: int) -> None:
    if kind == "word" and _PARENTHESIS.match(walk.text, offset + len(token)):
        if token.lower() in _FUNCTIONS:
            return
        raise refuse(walk.text, offset, f"function {token[:40]!r} is not taken; compare a column with a value")
    if walk.minus and kind != "number":
        raise refuse(walk.text, offset, "arithmetic is not taken; compare a column with a value")
    line, column = walk.place(offset)
    if kind == "string":
        token = token[1:-1].replace("''", "'")
    elif kind == "number" and walk.minus:
        token = f"-{token}"
    walk.operands.append(Operand("name" if kind == "quoted" else kind, token, line, column))
    if len(walk.operands) > OPERANDS_MAX:
        raise refuse(walk.text, offset, f"more than {OPERANDS_MAX} names and values; split the search")
    walk.operand_expected = False
    walk.minus = False
    walk.unary_run = 0


def _operator(walk: _Walk, word: str, offset: int) -> None:
    group = walk.groups[-1]
    if word == "and" and group.between:
        group.between = False
        walk.operand_expected = True
    elif word in {"and", "or"}:
        group.compared = False
        walk.operand_expected = True
        walk.conditions += 1
        if walk.conditions > CONDITIONS_MAX:
            raise refuse(walk.text, offset, f"more than {CONDITIONS_MAX} conditions; use IN, or split the search")
    elif word in _COMPARISONS:
        _comparison(walk, word, offset)


def _comparison(walk: _Walk, word: str, offset: int) -> None:
    group = walk.groups[-1]
    if group.compared:
        doubled = word == "=" and walk.text[offset - 1 : offset] == "="
        raise refuse(walk.text, offset, "Use = instead of ==" if doubled else "join two comparisons with AND")
    group.compared = True
    group.between = word == "between"
    # After IS comes NULL, which is no operand.
    walk.operand_expected = word != "is"


def _sign(walk: _Walk, sign: str, offset: int) -> None:
    if sign in _ARITHMETIC - {"-"} or (walk.minus and sign != "-") or (sign == "-" and not _begins_number(walk)):
        raise refuse(walk.text, offset, "arithmetic is not taken; compare a column with a value")
    if sign == "(":
        walk.groups.append(_Group())
        walk.operand_expected = True
        walk.unary_run = 0
        if len(walk.groups) > DEPTH_MAX + 1:
            raise refuse(walk.text, offset, f"more than {DEPTH_MAX} parentheses inside each other")
    elif sign == ")":
        if len(walk.groups) > 1:
            walk.groups.pop()
        walk.operand_expected = False
    elif sign == ",":
        walk.operand_expected = True
        walk.groups[-1].compared = False
    elif sign in _COMPARISONS:
        _comparison(walk, sign, offset)
    elif sign == "-":
        walk.minus = True


def _begins_number(walk: _Walk) -> bool:
    return walk.operand_expected and not walk.minus


def _unary(walk: _Walk, offset: int) -> None:
    walk.unary_run += 1
    if walk.unary_run > DEPTH_MAX:
        raise refuse(walk.text, offset, f"more than {DEPTH_MAX} NOT in a row")
