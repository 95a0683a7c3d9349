"""Elements of JSON arrays, read one by one in bounded memory."""

import io
import json

import pytest

from facetline.streams.files import json_elements
from facetline.streams.files.csv_records import Refusal
from facetline.streams.files.documents import Row, read_ndjson


def elements(text: bytes) -> list[tuple[int, bytes | Refusal]]:
    """Read these elements."""
    return list(json_elements.elements(io.BytesIO(text)))


def test_elements_come_with_their_lines() -> None:
    """Brackets and quotes within texts end nothing; lines are those of the file."""
    given = [
        {"key": "a", "body": 'x ] } " \\ y'},
        {"key": "b", "body": "two\nlines"},
        {"key": "c", "state": {"t": [1]}},
    ]
    found = elements(json.dumps(given, indent=2).encode())

    assert [json.loads(element) for _, element in found if isinstance(element, bytes)] == given
    assert [line for line, _ in found] == [2, 6, 10]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_elements_across_reads(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a read of the file ends, within an escape too, the elements are the same."""
    monkeypatch.setattr(json_elements, "READ_BYTES", size)
    given = [{"key": "a\\", "body": '\\"'}, {"key": "é", "body": "\\\\"}]

    assert [json.loads(element) for _, element in elements(json.dumps(given).encode()) if element] == given


def test_a_bad_element_is_refused_alone() -> None:
    """What is no JSON, no object or too large is refused with its line, and the next one is read."""
    huge = b'{"key": "h", "body": "' + b"x" * json_elements.ELEMENT_BYTES_MAX + b'"}'
    text = b'[{"key": "a", "body": "x",},\n7,\n' + huge + b',\n{"key": "b", "body": "y"}]'
    found = list(read_ndjson(io.BytesIO(text), kind="json"))

    assert [(each.line, each.reason[:9]) for each in found if isinstance(each, Refusal)] == [
        (1, "not_json:"),
        (2, "not_json:"),
        (3, "too_large"),
    ]
    assert [each for each in found if isinstance(each, Row)] == [Row(4, "b", None, "y", None)]


def test_a_file_that_is_cut_off_says_so() -> None:
    """An array that ends within an element loses that one, with its lines."""
    (_, first), (_, second) = elements(b'[{"key": "a"},\n{"key":\n"b')

    assert first == b'{"key": "a"}'
    assert isinstance(second, Refusal)
    assert (second.line, second.last_line, second.lost) == (2, 3, True)
