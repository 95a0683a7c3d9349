"""CSV for spreadsheets: no text becomes a formula, no number becomes a text, and everything can be read again."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from facetline.facets.export import spreadsheet

FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1+1", "\u00a0=1", "\u3000@x", "\ufeff=1",
            "\uff1d1+1", "\uff0b1", "\uff0d1", "\uff20x", " \uff1d1", "=cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0",
            "\u200b=1", "\x0b=1", "\u2212"]  # fmt: skip


@pytest.mark.parametrize("text", FORMULAS[:-1])
def test_no_text_is_a_formula(text: str):
    """A text that a spreadsheet might run has an apostrophe before it, and is otherwise as it was."""
    assert spreadsheet.harmless(text) == f"'{text}"


@pytest.mark.parametrize(
    "text", ["plain", "a=b", "'=1", "1+1", "", " ", "ä", "\u2212", "#", "\u2014 dash", "user@example.org"]
)
def test_text_that_is_no_formula_is_unchanged(text: str):
    """What no spreadsheet takes for a formula is as it was."""
    assert spreadsheet.harmless(text) == text


def test_numbers_stay_numbers():
    """Negative numbers, booleans, nulls and lists are as JSON has them."""
    text = spreadsheet.csv_text([[-5, -0.5, True, None, [1, "x"], {"a": None}]])

    assert text == '-5,-0.5,true,,"[1,""x""]","{""a"":null}"\r\n'


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1))
def test_rows_are_read_again(row: list[str]):
    """A reader of CSV gets each text back, with its apostrophe where it needs one."""
    text = spreadsheet.csv_text([["first", *row]])

    assert next(csv.reader(io.StringIO(text, newline=""))) == ["first", *map(spreadsheet.harmless, row)]
