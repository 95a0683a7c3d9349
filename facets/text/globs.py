"""Globs over keys as regular expressions of RE2: `*`, `**`, `?`, `[...]` and `{a,b}`; a dot is a character like others.

`*` and `?` stay inside a segment, `**` crosses segments, and `**/` at the start of a segment may also be nothing.
"""

import re

from facetline.facets.errors import InvalidQuery

CHARS_MAX = 512
_PARTS = re.compile(r"\*\*/|\*+|\?|\[[!^]?\]?[^\]]*\]|\{[^{}]*\}|.", re.DOTALL)
_BRANCHES_MAX = 64


def expression(glob: str) -> str:
    """Return the regular expression that a whole key must match.

    Raises:
        InvalidQuery: the glob is too long or has too many alternatives.
    """
    if len(glob) > CHARS_MAX:
        raise InvalidQuery(f"glob has {len(glob)} characters; at most {CHARS_MAX} are taken")
    if glob.count(",") > _BRANCHES_MAX and "{" in glob:
        raise InvalidQuery(f"glob has more than {_BRANCHES_MAX} alternatives; use fewer")
    return _expression(glob)


def literal_start(glob: str) -> str:
    """Return what every match begins with: it can be looked up before any expression is matched."""
    return re.split(r"[*?\[{]", glob, maxsplit=1)[0]


def _expression(glob: str) -> str:
    found = []
    for part in _PARTS.finditer(glob):
        at_start = part.start() == 0 or glob[part.start() - 1] == "/"
        found.append(_part(part[0], at_start=at_start))
    return "".join(found)


def _part(part: str, *, at_start: bool) -> str:
    if part == "**/":
        return "(?:.*/)?" if at_start else "[^/]*/"
    if part.startswith("*"):
        return ".*" if len(part) > 1 else "[^/]*"
    if part == "?":
        return "[^/]"
    if part.startswith("[") and len(part) > 1:
        return _class(part)
    if part.startswith("{") and len(part) > 1:
        return "(?:" + "|".join(_expression(branch) for branch in part[1:-1].split(",")) + ")"
    return literal(part)


def _class(part: str) -> str:
    inside = part[1:-1]
    negated = inside[:1] in {"!", "^"}
    members = inside[1:] if negated else inside
    if not members:  # it names no character: it is what it looks like
        return literal(part)
    written = "".join(_in_class(each) for each in re.findall(r".-.|.", members, flags=re.DOTALL))
    return f"[^/{written}]" if negated else f"[{written}]"


def _in_class(characters: str) -> str:
    low, dash, high = characters[0], characters[1:2], characters[2:]
    if dash == "-" and low <= high:
        return f"{_code(low)}-{_code(high)}"
    return "".join(map(_code, characters))


def _code(character: str) -> str:
    return rf"\x{{{ord(character):x}}}"


def literal(text: str) -> str:
    """Return the regular expression that matches this text and nothing else."""
    return "".join(each if each.isascii() and each.isalnum() else _code(each) for each in text)
