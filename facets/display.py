r"""What is shown of text from outside, on a terminal, a page, in a log and to an agent: nothing in it acts or hides.

Documents, models' words, records, servers' errors, names of files and values of a configuration may hold characters
that move a cursor, turn a line around or are not seen at all. Each of them is shown as its escape, such as `\u202e`.
JSON, NDJSON, CSV and files stay exact: they are read by programs, and quoting is theirs.

Some invisible characters belong to ordinary writing and stay where they do their work, and nowhere else: a joiner
inside an emoji or a word of a script that joins its letters (Arabic, Persian, Indic), one variation selector behind
what it selects, a word break in scripts without blanks. So emoji, right-to-left and Indic text read as they are, while
a run of such characters, which could carry a hidden message, is seen. Right-to-left letters are ordinary text; only
the controls that change the order are shown. Pure.
"""

import re
from collections.abc import Mapping
from typing import Any

_EMOJI = (
    "\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001faff"
)
_SELECTED = _EMOJI + "\u00a9\u00ae\u203c\u2049\u2122\u2139"
_JOINING = (
    "\u0600-\u08ff\u0900-\u109f\u1780-\u18af\u1cd0-\u1cff\ua8e0-\ua8ff\ua980-\ua9df\ufb50-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc"
    "\U00010a00-\U00010aff\U00011000-\U00011fff"
)
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_IDEOGRAPHS = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"
_FLAGS = "|".join(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in name) + "\U000e007f"
    for name in ("gbeng", "gbsct", "gbwls")
)

KEPT = "|".join(
    (
        _FLAGS,  # the three flags that are made of tag characters
        f"(?:(?<=[{_EMOJI}])|(?<=[{_SELECTED}]\ufe0f))\u200d(?=[{_EMOJI}])",
        f"(?<=[{_SELECTED}])[\ufe0e\ufe0f]",
        "(?<=[0-9#*])\ufe0f(?=\u20e3)",
        f"(?<=[{_JOINING}])[\u200c\u200d](?![\u200b-\u200f])",
        f"(?<=[{_UNSPACED}])\u200b(?=[{_UNSPACED}])",
        f"(?<=[{_IDEOGRAPHS}])[\ufe00-\ufe0f\U000e0100-\U000e01ef]",
        "(?<=[\u1820-\u18aa])[\u180b-\u180f]",
    )
)
"""Invisible characters that stay, each in its place."""

HARMFUL = (
    "\x00-\x1f\x7f-\x9f"  # controls, of both blocks
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, joiners, fillers, an Arabic mark, selectors
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero width, ends of lines, directions, invisible signs
    "\u3164\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"  # fillers, noncharacters, selectors, annotations
    "\ud800-\udfff"  # halves of pairs
    "\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # formats of hieroglyphs, shorthand and music
    "\U000e0000-\U000e0fff"  # tags and more selectors
    + "".join(f"{chr(plane * 0x10000 + 0xFFFE)}-{chr(plane * 0x10000 + 0xFFFF)}" for plane in range(17))
)
"""What is escaped, as a regular expression's class."""

_LINE = re.compile(f"{KEPT}|([{HARMFUL}])")
_BLOCK = re.compile(f"{KEPT}|\r?\n|\t|([{HARMFUL}])")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_ESCAPE = re.compile(r"\\(?:(\\)|u([0-9a-f]{4})|U([0-9a-f]{8})|([nrt]))")
_LONG = {escape[1]: character for character, escape in _SHORT.items()}
BMP_MAX = 0xFFFF


def line(text: object) -> str:
    """Return text as it is shown on one line: ends of lines and tabs are escaped, too."""
    shown = text if isinstance(text, str) else str(text)
    return shown if shown.isascii() and shown.isprintable() else _LINE.sub(_shown, shown)


def block(text: object) -> str:
    """Return text as it is shown on lines of its own: ends of lines and tabs stay."""
    shown = text if isinstance(text, str) else str(text)
    return shown if shown.isascii() and shown.isprintable() else _BLOCK.sub(_shown, shown)


def deep(value: Any) -> Any:
    """Return data with all its texts, names included, as `block` shows them."""
    if isinstance(value, str):
        return block(value)
    if isinstance(value, Mapping):
        return {block(name) if isinstance(name, str) else name: deep(each) for name, each in value.items()}
    return [deep(each) for each in value] if isinstance(value, list | tuple) else value


def handle(text: str) -> str:
    r"""Return a name by which something is asked for again; `named` takes it back. A backslash is doubled."""
    return line(text.replace("\\", "\\\\"))


def named(shown: str) -> str:
    """Return what a `handle` names; text that no handle is written like is taken as it is."""
    text = _ESCAPE.sub(_unescaped, shown)
    return text if handle(text) == shown else shown


def json_text(encoded: str) -> str:
    """Return JSON with the characters that `line` escapes as JSON's own escapes: the same data, for a terminal."""
    return _LINE.sub(lambda found: _utf16(found[1]) if found[1] else found[0], encoded)


def _shown(found: "re.Match[str]") -> str:
    character = found[1]
    if character is None:
        return "\n" if found[0] == "\r\n" else found[0]
    return _SHORT.get(character) or _escaped(ord(character))


def _escaped(code: int) -> str:
    return f"\\u{code:04x}" if code <= BMP_MAX else f"\\U{code:08x}"


def _utf16(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def _unescaped(found: "re.Match[str]") -> str:
    backslash, short, long, letter = found.groups()
    if backslash or letter:
        return backslash or _LONG[letter]
    code = int(short or long, 16)
    return chr(code) if code <= 0x10FFFF else found[0]  # noqa: PLR2004 (Unicode's end)
