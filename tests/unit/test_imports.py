"""Files of documents: rows, refusals with their lines, and what concerns the whole file."""

import io
from typing import Any

import pytest

from facetline.streams.files import documents
from facetline.streams.files.documents import Columns, Refusal, Row

STATE = {"title": "string", "priority": "integer", "weight": "number", "open": "boolean", "due": "datetime"}
COLUMNS = Columns(body="text", key="id", ignore=frozenset(), state=STATE)


def ndjson(*lines: bytes) -> list[Row | Refusal]:
    """Read these lines."""
    return list(documents.read_ndjson(io.BytesIO(b"\n".join(lines))))


def csv(text: str, columns: Columns = COLUMNS, **options: Any) -> list[Row | Refusal]:
    """Read this CSV text."""
    return list(documents.read_csv(io.BytesIO(text.encode()), columns, **options))


def test_ndjson_rows_keep_their_lines() -> None:
    """Blank lines are passed and still counted, a byte order mark is no part of the first line."""
    rows = ndjson(b'\xef\xbb\xbf{"key":"a","body":"x"}', b"", b'{"uri":"tickets/b","state":{"title":"t"}}')

    assert rows == [Row(1, "a", None, "x", None), Row(3, None, "tickets/b", None, {"title": "t"})]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "not_json"),
        (b"\xff", "UTF-8"),
        (b"[]", "object"),
        (b'{"key":"a","uri":"b","body":"x"}', "either key or uri"),
        (b'{"body":"x"}', "either key or uri"),
        (b'{"key":7,"body":"x"}', "text"),
        (b'{"key":"a","bodi":"x"}', "did you mean 'body'"),
        (b'{"key":"a","body":null}', "body is text"),
        (b'{"key":"a","state":[]}', "state is an object"),
        (b'{"key":"a"}', "neither"),
    ],
)
def test_bad_ndjson_line_is_refused_and_the_next_is_read(line: bytes, words: str) -> None:
    """A refusal names its line and its reason, and holds nothing up."""
    rows = ndjson(line, b'{"key":"a","body":"x"}')

    assert isinstance(rows[0], Refusal)
    assert rows[0].line == 1
    assert words in rows[0].reason
    assert rows[1] == Row(2, "a", None, "x", None)


def test_a_line_beyond_the_limit_is_refused_without_being_held() -> None:
    """A line longer than the limit is skipped to its end, and the count of lines stays right."""
    huge = b'{"key":"a","body":"' + b"x" * (2 * documents.LINE_BYTES_MAX) + b'"}'

    rows = ndjson(huge, b'{"key":"b","body":"y"}')

    assert isinstance(rows[0], Refusal)
    assert "too_large" in rows[0].reason
    assert rows[1] == Row(2, "b", None, "y", None)


def test_a_csv_line_beyond_the_limit_is_refused_without_being_held() -> None:
    """A line that never ends is passed over in pieces; the records around it are read."""
    long = b"x" * (2 * documents.LINE_BYTES_MAX + 7)
    file = io.BytesIO(b"id,body\n1,first\n2," + long + b"\n3,third\n")

    rows = list(documents.read_csv(file, Columns("body", "id", frozenset(), {})))

    assert [getattr(row, "body", None) for row in rows] == ["first", None, "third"]
    assert "more than" in rows[1].reason


def test_csv_columns_become_typed_state() -> None:
    """Fields take the types of the collection's state; an empty one is null."""
    rows = csv("id,text,title,priority,weight,open,due\na,hello,T,3,1.5,yes,2026-11-30T00:00:00Z\nb,you,,,,,\n")

    assert rows[0] == Row(
        2, "a", None, "hello",
        {"title": "T", "priority": 3, "weight": 1.5, "open": True, "due": "2026-11-30T00:00:00Z"},
    )  # fmt: skip
    assert rows[1] == Row(3, "b", None, "you", dict.fromkeys(STATE))


def test_csv_rows_can_be_keyed_by_their_number() -> None:
    """Without a key column the row's number is the key; a quoted line break does not count as a row."""
    rows = csv('text\n"one\nmore"\ntwo\n', Columns("text", None, frozenset(), {}))

    assert rows == [Row(2, "1", None, "one\nmore", None), Row(4, "2", None, "two", None)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a,x,T,high", "priority"),
        ("a,x,T", "too few"),
        ("a,x,T,1,2", "too many"),
        ('a,"x" y,T,1', "not_csv"),
    ],
)
def test_bad_csv_line_is_refused_and_the_next_is_read(line: str, words: str) -> None:
    """A refusal names its line and column, and holds nothing up."""
    rows = csv(f"id,text,title,priority\n{line}\nb,y,,\n", COLUMNS)

    assert isinstance(rows[0], Refusal)
    assert rows[0].line == 2
    assert words in rows[0].reason
    assert isinstance(rows[1], Row)
    assert rows[1].key == "b"


@pytest.mark.parametrize(
    ("header", "columns", "words"),
    [
        ("id,txt", COLUMNS, "did you mean 'txt'"),
        ("text", COLUMNS, "no column 'id'"),
        ("id,text,text", COLUMNS, "stands twice in the file (columns 2, 3)"),
        ("id,text", Columns("text", "id", frozenset({"x"}), {}), "'x' to ignore"),
    ],
)
def test_wrong_columns_refuse_the_whole_file(header: str, columns: Columns, words: str) -> None:
    """A file whose columns are not those asked for is refused before anything is written, with the way out."""
    with pytest.raises(documents.InvalidFile, match="column") as refused:
        csv(f"{header}\na,b\n", columns)

    assert words in refused.value.message


def test_columns_without_a_use_are_left_out_with_one_note() -> None:
    """No column that was not asked for stops an import; the note names the option for one that is like a field."""
    notes: list[str] = []
    text = "id,text,colour,priorty\na,b,c,2\n"
    rows = csv(text, note=notes.append)
    taken = csv(text, Columns("text", "id", frozenset(), STATE, named={"priority": "priorty"}))

    assert rows == [Row(2, "a", None, "b", None)]
    assert notes == ["columns left out: 'colour', 'priorty'; to take them as fields: --state-column priority=priorty"]
    assert taken == [Row(2, "a", None, "b", {"priority": 2})]
    assert csv(text, Columns("text", "id", ["colour", "priorty"], STATE), note=notes.append) == rows
    assert len(notes) == 1


def test_a_missing_body_names_the_option() -> None:
    """A file whose text is in another column says with which option to name it."""
    with pytest.raises(documents.InvalidFile, match=r"no column 'text'.*--body-column"):
        csv("id,message\na,b\n")


def test_columns_called_otherwise_become_fields() -> None:
    """A column is taken for the field that it is named for; one called like the field is then nothing."""
    columns = Columns("text", "id", frozenset(), STATE, named={"priority": "Prio (1-3)"})
    rows = csv("id,text,Prio (1-3)\na,x,3\nb,y,high\n", columns)

    assert rows[0] == Row(2, "a", None, "x", {"priority": 3})
    assert isinstance(rows[1], Refusal)
    assert "'Prio (1-3)'" in rows[1].reason
    assert csv("id,text,Prio (1-3),priority\na,x,3,4\n", columns) == rows[:1]


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_semicolons_and_tabs_separate_where_the_header_has_no_comma(delimiter: str) -> None:
    """What spreadsheets write where commas are decimal is read; commas in the texts then are text."""
    rows = csv(f"id{delimiter}text\na{delimiter}one, two\n")

    assert rows == [Row(2, "a", None, "one, two", None)]


def test_a_comma_in_the_header_decides() -> None:
    """With a comma in the first line, semicolons are text."""
    rows = csv("id,text\na,one; two\n")

    assert rows == [Row(2, "a", None, "one; two", None)]


def test_ignored_columns_are_left_out() -> None:
    """An ignored column is no state, also when the state has its name."""
    rows = csv("id,text,title\na,x,T\n", Columns("text", "id", frozenset({"title"}), STATE))

    assert rows == [Row(2, "a", None, "x", None)]


def test_one_of_several_columns_with_one_name_is_named_by_its_place() -> None:
    """`Comments.2` is the second of them, also to leave it out; a column that is called so comes first."""
    text = b"id,Comments,Comments,Comments.3,Comments\na,one,two,named,four\n"

    def body(name: str, ignore: frozenset[str] = frozenset()) -> str | None:
        [row] = documents.read_csv(io.BytesIO(text), Columns(name, "id", ignore, {}))
        assert isinstance(row, Row)
        return row.body

    assert [body("Comments.1"), body("Comments.2"), body("Comments.3")] == ["one", "two", "named"]
    assert body("Comments.2", frozenset({"Comments.1"})) == "two"
    for name in ("Comments.4", "Comments.0", "id.1"):
        with pytest.raises(documents.InvalidFile, match="no column"):
            body(name)
    with pytest.raises(documents.InvalidFile, match=r"such as 'Comments.2'"):
        body("Comments")


def test_rows_of_empty_fields_are_counted() -> None:
    """They are no documents, and the import says how many there were."""
    notes: list[str] = []
    text = io.BytesIO(b"id,body\n,\na,x\n,\n\n")

    rows = list(documents.read_csv(text, Columns("body", "id", frozenset(), {}), note=notes.append))

    assert [row.line for row in rows] == [3]
    assert notes == ["2 rows of empty fields passed over"]


def test_a_decimal_comma_is_refused_with_its_column_and_the_way_out() -> None:
    """The comma of a sheet in German is named as such, with how to write the number."""
    file = io.BytesIO(b"id;text;weight\na;x;1.234,50\n")

    [row] = documents.read_csv(file, Columns("text", "id", frozenset(), {"weight": "number"}))

    assert isinstance(row, Refusal)
    assert "column 'weight': '1.234,50'" in row.reason
    assert "decimal comma, write 1234.50" in row.reason
