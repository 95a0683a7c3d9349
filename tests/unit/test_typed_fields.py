"""Text of files as values: numbers as spreadsheets write them, dates as people do."""

import pytest

from facetline.streams.files.text_files import InvalidFile
from facetline.streams.files.typed_fields import check_date_formats, typed

TYPES = {"due": "datetime", "priority": "integer"}


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1.0", "integer", 1),
        (" 7 ", "integer", 7),
        ("-3.", "integer", -3),
        ("1.5", "number", 1.5),
        ("1E+05", "number", 100000.0),
        (".5", "number", 0.5),
        ("TRUE", "boolean", True),
        ("0.0", "boolean", False),
        ("", "integer", None),
        ("2026-06-02", "datetime", "2026-06-02T00:00:00Z"),
        ("2026-06-02T10:00:00+02:00", "datetime", "2026-06-02T10:00:00+02:00"),
        ("1.0", "string", "1.0"),
    ],
)
def test_values_are_read_as_they_are_written(text: str, kind: str, value: object) -> None:
    """Each is the value that its writer meant, of the field's type."""
    found = typed(text, kind)

    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "text", ["1_000", "\uff11\uff12", "٣", "1,000", "1.5", "1e3", "0x10", "1 000", "9" * 400, "¹", "--1", "nan"]
)
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    """Separators, digits of other scripts, fractions and notations of programs are no integers."""
    with pytest.raises(ValueError, match="not of type integer"):
        typed(text, "integer")


@pytest.mark.parametrize("text", ["1_0.5", "\uff11.5", "inf", "nan", "1e999", "1,5", "1.5.2", "."])
def test_what_is_no_number_is_refused(text: str) -> None:
    """Nothing that only a program would take for a number, and none that is not finite."""
    with pytest.raises(ValueError, match="not of type number"):
        typed(text, "number")


@pytest.mark.parametrize(
    ("text", "form", "value"),
    [
        ("04.06.2026", "%d.%m.%Y", "2026-06-04T00:00:00Z"),
        ("05/03/2024 14:00", "%d/%m/%Y %H:%M", "2024-03-05T14:00:00Z"),
        ("03/05/24 2:00 PM", "%m/%d/%y %I:%M %p", "2024-03-05T14:00:00Z"),
        ("05/03/2024 14:00 +0200", "%d/%m/%Y %H:%M %z", "2024-03-05T12:00:00Z"),
        ("03/May/24", "%d/%b/%y", "2024-05-03T00:00:00Z"),
    ],
)
def test_dates_are_read_by_their_declared_format(text: str, form: str, value: str) -> None:
    """A declared format is taken in UTC, or in its own offset."""
    check_date_formats({"due": form}, TYPES)

    assert typed(text, "datetime", form) == value


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("04.06.2026", None),
        ("05/03/2024 14:00", None),
        ("2026-02-30", None),
        ("45447", None),
        ("2026-06-04", "%d.%m.%Y"),
        ("٠٤.٠٦.2026", "%d.%m.%Y"),
        ("31.02.2026", "%d.%m.%Y"),
    ],
)
def test_dates_in_another_form_are_refused(text: str, form: str | None) -> None:
    """What could be meant in several ways is never guessed."""
    with pytest.raises(ValueError, match=r"date|day"):
        typed(text, "datetime", form)


@pytest.mark.parametrize(
    ("field", "form", "words"),
    [
        ("priority", "%d.%m.%Y", "no field of type datetime; of the state's these are: due"),
        ("due", "%d.%m", "needs a year"),
        ("due", "%d.%m.%Y %Z", "use %z"),
        ("due", "DD.MM.YYYY", "no format|needs a year"),
        ("due", "%Q", "no format"),
    ],
)
def test_formats_that_read_no_date_are_refused(field: str, form: str, words: str) -> None:
    """A format is tried before the file is read."""
    with pytest.raises(InvalidFile, match=words):
        check_date_formats({field: form}, TYPES)
