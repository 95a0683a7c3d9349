"""Words of texts in every script, with their places; globs, line patterns and snippets."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from facetline.facets.text import globs, highlights, lines
from facetline.facets.text.words import folded, spans, words

SPLIT = {
    "Straße naïve ORD-48213377 e-mail user_id 3.14": "strasse naive ord 48213377 e mail user id 3 14",
    "日本語テスト 한국어 C++ it's": "日本 本語 語テ テス スト 한국 국어 c it s",
    "ﬁne \uff12\uff10\uff12\uff14 İstanbul Ⅷ": "fine 2024 istanbul viii",
    "हिन्दी का": "हिन्दी का",
    "ไทย": "ไท ทย",
    "日 a日b": "日 a 日 b",
    "e\u0301te\u0301": "ete",
    "שָׁלוֹם مُحَمَّد": "שלום محمد",
    "": "",
    "-- !? \x00": "",
    "priority 🔘⭕ ❤\ufe0f 👨\u200d👩\u200d👧 ok👍🏽": "priority 🔘 ⭕ ❤ 👨 👩 👧 ok 👍",
    "protein\u2019s s/s F-16": "protein s s s f 16",
    "\u0301 x": "x",
}


@pytest.mark.parametrize("text", SPLIT)
def test_words_of_every_script(text: str):
    """Case, accents, width and ligatures are of no account; scripts without blanks become pairs."""
    assert words(text) == SPLIT[text].split()


def test_a_long_run_is_cut():
    """Encoded data makes no words of a thousand characters."""
    assert words("x" * 1000 + " y") == ["x" * 64, "y"]


@given(st.text(max_size=60))
def test_places_are_those_of_the_words(text: str):
    """Each word has a place in the text as it was given, in order, and what stands there gives the word."""
    found = list(spans(text))

    assert [span.word for span in found] == words(text)
    assert all(0 <= span.start < span.end <= len(text) for span in found)
    assert [span.start for span in found] == sorted(span.start for span in found)


@given(st.text(max_size=60))
def test_a_folded_text_splits_into_its_words(text: str):
    """What DuckDB splits gives the words that Python gives."""
    plain = folded(text)
    found = re.findall(r"[0-9a-z\u0080-\U0010ffff]+", text.lower() if plain is None else plain)

    assert [word[:64] for word in found] == words(text)


GLOBS = {
    "*.md": ({"a.md", ".md"}, {"a/b.md", "a.mdx"}),
    "**/*.md": ({"a.md", "a/b/c.md"}, {"a/b.txt"}),
    "docs/**": ({"docs/a", "docs/a/b"}, {"docs", "doc/a"}),
    "a/**/z": ({"a/z", "a/b/c/z"}, {"a/bz", "az"}),
    "n?[0-9]": ({"na1"}, {"n/1", "na", "nab"}),
    "[!ab]*": ({"c", "cab"}, {"a", "/a"}),
    "{a,b*}.x": ({"a.x", "bb.x"}, {"c.x", "a,b.x"}),
    "a[": ({"a["}, {"a"}),
    "x.y": ({"x.y"}, {"xay"}),
    "*hooks*": ({"use-hooks.md"}, {"a/hooks"}),
}


@pytest.mark.parametrize("glob", GLOBS)
def test_globs(glob: str):
    """`*` stays inside a segment, `**` does not, and what is no pattern is itself."""
    expression = re.compile(
        re.sub(r"\\x\{([0-9a-f]+)\}", lambda at: re.escape(chr(int(at[1], 16))), globs.expression(glob))
    )
    fitting, others = GLOBS[glob]

    assert {key for key in fitting | others if expression.fullmatch(key)} == fitting
    assert all(key.startswith(globs.literal_start(glob)) for key in fitting)


@pytest.mark.parametrize("at", [0, 3, 250, 498, 520])
def test_a_shown_line_is_short_and_holds_its_place(at: int):
    """A long line is cut around a place of it, and says so at each end."""
    line = "  " + "".join(chr(ord("a") + place % 26) for place in range(600)) + "  "

    shown = lines.shown(line, at)

    assert len(shown) <= lines.LINE_CHARS_MAX
    assert shown.strip("…") in line
    assert line[at + 2 : at + 6].strip() in shown


def test_places_lines_and_the_best_line():
    """Every field's places are in code points; the snippet is the line with most of the words."""
    body = "A card.\nMy lost card\n日本語"

    found = highlights.find({"body": body, "state_title": "Card"}, {"card", "lost", "日本", "本語"})

    marked = [
        (each["field"], {"body": body, "state_title": "Card"}[each["field"]][each["start"] : each["end"]])
        for each in found.places
    ]
    assert marked == [("body", "card"), ("body", "lost"), ("body", "card"), ("body", "日本語"), ("state_title", "Card")]
    assert found.snippet == "My lost card"
    assert found.line_range == {"start": 1, "end": 3}
