"""What is shown of text from outside: nothing acts or hides, ordinary writing reads as it is, names can be given back.

Method: Hypothesis makes texts of any characters, and Unicode's own tables say which of them act.
"""

import json
import subprocess
import sys
import unicodedata

import pytest
from commands import environment
from hostile import ACTS, READABLE, harmful
from hypothesis import example, given
from hypothesis import strategies as st

from facetline.facets import display

ANY = st.text(st.characters(), max_size=60)
HIDING = st.text(st.sampled_from(ACTS + READABLE + "ab\\"), max_size=60)
MARKS = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
"""Formats that are seen: Arabic and Kaithi number signs, the ends of verses, an abbreviation's mark."""


def test_every_control_and_format_is_escaped():
    """Of all of Unicode each control, format, surrogate and end of a line is escaped, but for signs that are seen."""
    shown = [
        code
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and display.line(chr(code)) == chr(code)
    ]

    assert set(shown) == MARKS


@given(text=ANY | HIDING)
def test_a_shown_line_is_one_line_and_stays_as_it_is(text: str):
    """A line has no end inside, is encodable, and showing it again changes nothing; what was readable is unchanged."""
    shown = display.line(text)

    assert len(shown.splitlines()) <= 1
    assert "\t" not in shown
    assert shown.encode("utf-8", "strict") is not None
    assert display.line(shown) == shown


@pytest.mark.parametrize("text", [READABLE, *READABLE.split(), "1️⃣ ☎️ ©️ 👨🏽‍💻 🏴‍☠️", "ไทย\u200bไทย", "naïve 日本語"])
def test_ordinary_writing_reads_as_it_is(text: str):
    """Emoji of several parts, right-to-left, Indic and Thai text are shown unchanged."""
    assert display.line(text) == display.block(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a\\u001b[31mb"),
        ("\x9b\x7f", "\\u009b\\u007f"),
        ("a\u202eb\u2066", "a\\u202eb\\u2066"),
        ("a\u2028b", "a\\u2028b"),
        ("hi\U000e0041\U000e0042", "hi\\U000e0041\\U000e0042"),
        ("\ud800\ufffe", "\\ud800\\ufffe"),
        ("a\u200db", "a\\u200db"),  # joins nothing
        ("😀\u200d\u200d😀", "😀\\u200d\\u200d😀"),  # a run carries a message
        ("😀\ufe0f\ufe0f\U000e0101", "😀\ufe0f\\ufe0f\\U000e0101"),
        ("می\u200c\u200c\u200dx", "می\\u200c\\u200c\\u200dx"),
        ("🏴\U000e0067\U000e0062", "🏴\\U000e0067\\U000e0062"),  # no flag
        ("1\ufe0f2", "1\\ufe0f2"),
        ("\u3164\uffa0\u115f", "\\u3164\\uffa0\\u115f"),  # blanks that are letters
        ("a\r\nb\rc\td", "a\\r\\nb\\rc\\td"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
    ],
    ids=ascii,
)
def test_what_acts_or_hides_is_seen(text: str, shown: str):
    """Each such character is shown as its escape, also where a place of it in ordinary writing is only imitated."""
    assert display.line(text) == shown


def test_texts_of_several_lines_keep_their_ends():
    """Ends of lines and tabs stay in a block, a carriage return alone does not: it would overwrite the line."""
    assert display.block("a\r\nb\tc\rd\x0b") == "a\nb\tc\\rd\\u000b"


@given(text=ANY | HIDING)
def test_a_handle_is_taken_back(text: str):
    """What was shown in place of a name stands for that name and no other, and is harmless itself."""
    assert display.named(display.handle(text)) == text
    assert display.line(display.handle(text)) == display.handle(text)


@pytest.mark.parametrize("name", ["tickets/t1", "C:\\users\\x", "a\\b", "\\u12", "tickets/ü\u202e"])
def test_a_name_that_is_no_handle_is_taken_as_it_is(name: str):
    """A uri as it is in the store is understood as well, with its backslashes."""
    assert display.named(name) == name


@given(
    value=st.recursive(
        ANY | HIDING | st.integers() | st.none(), lambda each: st.lists(each) | st.dictionaries(ANY, each)
    )
)
@example(value="\ufe0f\u200d\U0001f000")
def test_json_for_a_terminal_is_the_same_data(value: object):
    """JSON whose characters are escaped for a terminal is read as exactly what it was."""
    encoded = json.dumps(value, ensure_ascii=False)

    assert json.loads(display.json_text(encoded)) == value
    assert display.line(display.json_text(encoded)) == display.json_text(encoded)


def test_data_is_shown_with_its_names():
    """All texts of nested data are shown, names of fields too; numbers and nulls stay what they are."""
    assert display.deep({"a\x1b": ["\u202e", 1, None, {"b": True}]}) == {"a\\u001b": ["\\u202e", 1, None, {"b": True}]}


LOG = """
import logging, structlog
from facetline.streams import logs
from hostile import ACTS, READABLE
logs.configure("warning", STYLE)
structlog.get_logger().warning("document_failed", reason=ACTS, uri=READABLE, parts=[ACTS], error=ValueError(ACTS))
logging.getLogger("aiokafka").error("broker says %s", ACTS)
try:
    raise ValueError(ACTS)
except ValueError:
    structlog.get_logger().error("crashed", exc_info=True)
    logging.getLogger("faust").exception("failed")
"""


@pytest.mark.parametrize("style", ["text", "json"])
def test_logs_show_nothing_that_acts(style: str):
    """Values, libraries' messages and tracebacks are shown harmless in a log of text, and escaped in one of JSON."""
    program = LOG.replace("STYLE", repr(style))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment({})
    )

    colours = done.stderr
    for code in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[35m", "\x1b[36m"):
        colours = colours.replace(code, "") if style == "text" else colours
    assert harmful(colours) == []
    assert "owned" in done.stderr
    entries = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert (entries[0]["reason"], entries[0]["uri"]) == (ACTS, READABLE) if style == "json" else not entries
