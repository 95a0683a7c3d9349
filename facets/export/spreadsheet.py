"""CSV that spreadsheets open without running anything: the one place where rows become CSV text.

A text that a spreadsheet may take for a formula has an apostrophe put before it. Numbers stay numbers.
"""

import csv
import io
import json
import unicodedata
from collections.abc import Iterable
from typing import Any

_FORMULA = ("=", "+", "-", "@")
_CONTROLS = ("\t", "\r", "\n")


def csv_text(rows: Iterable[Iterable[Any]], *, line_end: str = "\r\n") -> str:
    """Return rows of JSON values as CSV (RFC 4180); null is nothing, lists and objects are JSON."""
    text = io.StringIO()
    csv.writer(text, lineterminator=line_end).writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def harmless(text: str) -> str:
    """Return a text as a cell that is not taken for a formula.

    Blanks, invisible characters before it and full-width signs do not hide one: some spreadsheets pass over them.
    """
    if text.startswith(_CONTROLS):
        return f"'{text}"
    begins = next((letter for letter in text if not _is_passed_over(letter)), "")
    return f"'{text}" if unicodedata.normalize("NFKC", begins).startswith(_FORMULA) else text


def _is_passed_over(letter: str) -> bool:
    # Blanks, controls, and what has no width, such as a byte order mark.
    return letter.isspace() or unicodedata.category(letter) in {"Cc", "Cf"}


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return value
