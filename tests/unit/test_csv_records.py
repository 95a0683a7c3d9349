"""Records of CSV files as people have them: delimiters, encodings, and broken records that never leak."""

import csv
import io
import random
import time
import tracemalloc

import pytest

from facetline.streams.files import csv_records
from facetline.streams.files.csv_records import CsvFile, Refusal
from facetline.streams.files.csv_recovery import Recovery
from facetline.streams.files.text_files import InvalidFile


def read(text: str | bytes, **options: str) -> tuple[list[str], list[tuple[int, int, list[str] | None]]]:
    """Return the header, and first line, last line and fields (None: refused) of each record."""
    sheet = CsvFile(io.BytesIO(text.encode() if isinstance(text, str) else text), **options)
    records = [
        (line, (values.last_line or last) if isinstance(values, Refusal) else last, values)
        for line, last, values in sheet.records()
    ]
    return sheet.header, [
        (line, last, None if isinstance(values, Refusal) else values) for line, last, values in records
    ]


BROKEN = {
    "quotes after backslashes": (
        'id,body\n"1","Says \\"failed\\", and.\nOrder, 4711\nRegards, Anna"\n"2","ok"\n"3","5\\" pipe"\n"4","ok"\n',
        [(2, 4, None), (5, 5, ["2", "ok"]), (6, 6, None), (7, 7, ["4", "ok"])],
    ),
    "a line of the text has as many fields as a record": (
        'id,body,c\n"1","Says \\"no\\", and\nOrder, 4711, x\nRegards, Anna, y","z"\n"2","ok","y"\n"3","ok","r"\n',
        [(2, 4, None), (5, 5, ["2", "ok", "y"]), (6, 6, ["3", "ok", "r"])],
    ),
    "quotes that are not doubled": (
        'id,body\n1,"He said "stop", then left.\nOrder, 4711\nRegards"\n2,"ok"\n3,ok\n',
        [(2, 4, None), (5, 5, ["2", "ok"]), (6, 6, ["3", "ok"])],
    ),
    "the same among three columns": (
        'id,body,c\n1,"He said "stop", then left.\nOrder, 4711, x\nRegards, Anna, y",z\n2,"ok",y\n3,"ok",r\n',
        [(2, 4, None), (5, 5, ["2", "ok", "y"]), (6, 6, ["3", "ok", "r"])],
    ),
    "a record of the wrong length that goes on": (
        'id,body\n"1","says \\", and\nOrder, 4711\nbye"\n"2","ok"\n',
        [(2, 4, None), (5, 5, ["2", "ok"])],
    ),
    "one quote never closed": (
        'id,body\n1,"5"" pipe, ok"\n2,"Leaks\n3,"Invoice is wrong, twice"\n4,Nothing\n5,"Refund, please"\n6,ok\n',
        [
            (2, 2, ["1", '5" pipe, ok']),
            (3, 4, None),
            (5, 5, ["4", "Nothing"]),
            (6, 6, ["5", "Refund, please"]),
            (7, 7, ["6", "ok"]),
        ],
    ),
    "one quote never closed, and no other one": (
        'id,body\n1,ok\n2,"Leaks\n3,plain\n4,plain\n',
        [(2, 2, ["1", "ok"]), (3, 5, None)],
    ),
    "text after the closing quote": (
        'id,body\n1,"x" y\n2,ok\n',
        [(2, 2, None), (3, 3, ["2", "ok"])],
    ),
    "a quoted record with a field too many": (
        'id,body\n"1","a",extra\n"2","b"\n"3"\n"4","d"\n',
        [(2, 2, None), (3, 3, ["2", "b"]), (4, 4, None), (5, 5, ["4", "d"])],
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_record_is_refused_whole_and_its_neighbours_are_read(kind: str) -> None:
    """No line of a refused record becomes a record; reading goes on where it ended, with all lines accounted for."""
    text, wanted = BROKEN[kind]

    assert read(text)[1] == wanted


@pytest.mark.parametrize("seed", range(40))
def test_no_line_of_a_text_ever_becomes_a_record(seed: int) -> None:
    """Among many records with quotes that follow backslashes or are not doubled, what is read was a record."""
    dice = random.Random(seed)  # noqa: S311 (chance for a test)
    escape = dice.choice(['\\"', '"'])
    width = dice.choice([2, 3, 5])
    written, text = [], ["id,body" + "".join(f",c{n}" for n in range(width - 2)) + "\n"]
    for number in range(60):
        body = "\n".join(
            ", ".join(dice.choice(["Order", "4711", "yes", "so"]) for _ in range(dice.choice([1, width, 2])))
            for _ in range(dice.choice([1, 2, 4]))
        )
        rest = ["r"] * (width - 2)
        written.append([f"k{number}", body, *rest])
        if dice.random() < 0.15:
            # without backslashes only within a line: one that begins with a quoted word may be a record
            blank = " " if escape == '"' else ""
            broken = body.replace(f"{blank}yes", f"{blank}{escape}yes{escape}")
            text.append(f'"k{number}","it says {escape}no{escape} {broken}"' + ',"r"' * (width - 2) + "\n")
        else:
            sheet = io.StringIO()
            csv.writer(sheet, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(written[-1])
            text.append(sheet.getvalue())
    records = read("".join(text))[1]
    found = [values for _, _, values in records if values is not None]

    assert all(values in written for values in found)
    assert len(found) > len(written) // 2
    lines = [line for first, last, _ in records for line in range(first, last + 1)]
    assert lines == list(range(2, "".join(text).count("\n") + 1))


@pytest.mark.parametrize(
    "field",
    ["x" * (csv_records.RECORD_CHARS_MAX + 5), 'two ""quoted""\n' * 400_000],
    ids=["one line", "many lines"],
)
def test_a_huge_field_is_one_refusal(field: str) -> None:
    """A quoted field beyond the limit is refused once, as too large, and the records around it are read."""
    sheet = CsvFile(io.BytesIO(f'id,body\n1,"a"\n2,"{field}"\n3,"b"\n4,c\n'.encode()))
    found = [values for _, _, values in sheet.records()]

    assert [values for values in found if not isinstance(values, Refusal)] == [["1", "a"], ["3", "b"], ["4", "c"]]
    assert [values.reason[:10] for values in found if isinstance(values, Refusal)] == ["too_large:"]


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ('id;body;"Subject, short"\nT1;x;y\n', ["id", "body", "Subject, short"]),
        ("id|body\nT1|x; y, z\n", ["id", "body"]),
        ("id\tbody\nT1\tx, y\n", ["id", "body"]),
        ("\ufeffsep=;\r\nid;body\r\nT1;x\r\n", ["id", "body"]),
        ('"sep=|"\nid|body\nT1|x\n', ["id", "body"]),
        ('"a\nb, c";body\nT1;x\n', ["a\nb, c", "body"]),
        ("id\rbody\r", ["id"]),
        ("body\nx\n", ["body"]),
    ],
)
def test_the_delimiter_is_found_in_the_whole_first_record(text: str, header: list[str]) -> None:
    """Commas, semicolons, tabs and bars, also beside others within quotes, after Excel's own line, or none at all."""
    found, records = read(text)

    assert found == header
    assert all(values is not None for _, _, values in records)


def test_wanted_columns_decide_between_delimiters() -> None:
    """Where several delimiters could be, the one by which the named columns exist is taken."""
    sheet = CsvFile(io.BytesIO(b"id;Name, first, last;body\nT1;x;y\n"), wanted=["body"])

    assert sheet.header == ["id", "Name, first, last", "body"]


def test_a_delimiter_can_be_set() -> None:
    """An option goes before what the file seems to have; what cannot be a delimiter is refused by name."""
    assert read("a:b\n1:2,3\n", delimiter=":") == (["a", "b"], [(2, 2, ["1", "2,3"])])
    with pytest.raises(InvalidFile, match="--delimiter"):
        read("a,b\n", delimiter="ab")


def test_blanks_before_a_quoted_field_are_no_part_of_it() -> None:
    """`"a", "b"` with line breaks in b is one record, as its writer meant it."""
    assert read('id, body\n1, "x, y\nOrder, 4711"\n2, "b"\n')[1] == [
        (2, 3, ["1", "x, y\nOrder, 4711"]),
        (4, 4, ["2", "b"]),
    ]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_decides(encoding: str) -> None:
    """Files with a mark are read without any option."""
    assert read("id,body\n1,Müller ß ok\n".encode(encoding)) == (["id", "body"], [(2, 2, ["1", "Müller ß ok"])])


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16-be", "shift_jis"])
def test_an_encoding_can_be_named(encoding: str) -> None:
    """Files without a mark are read by the option."""
    text = "id,body\n1,表\n" if encoding == "shift_jis" else "id,body\n1,Müller\n"

    assert read(text.encode(encoding), encoding=encoding)[1] == [(2, 2, text.split("\n")[1].split(","))]


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("id,body\n1,x\n".encode("utf-16-le"), "--encoding utf-16-le"),
        ("id,body\n1,x\n".encode("utf-16-be"), "--encoding utf-16-be"),
        ("id,Größe\n1,x\n".encode("cp1252"), "--encoding cp1252"),
        (b"\x1f\x8b\x08\x00rest", "gzip"),
        (b"PK\x03\x04rest", "Excel"),
        (b",".join([b"a"] * 100_000), "100000 columns"),
        (b'"id,body\n1,x\n', "header"),
    ],
)
def test_what_is_no_csv_is_refused_with_the_way_out(file: bytes, words: str) -> None:
    """Other encodings, packed files, workbooks, far too many columns: one message each, before any record."""
    with pytest.raises(InvalidFile, match=words):
        read(file)


def test_ragged_and_odd_rows() -> None:
    """Surplus empty fields, empty lines, mixed line ends and NUL bytes cost no record; a missing field does."""
    text = "id,body\r\n1,a,,\n\n2,b\r3\r\n4,x\0y\n5,mid\ufeffdle"

    assert read(text)[1] == [
        (2, 2, ["1", "a"]),
        (4, 4, ["2", "b"]),
        (5, 5, None),
        (6, 6, ["4", "x\0y"]),
        (7, 7, ["5", "mid\ufeffdle"]),
    ]


@pytest.mark.parametrize("text", ["", "\n\n", "id,body\n", "id,body"])
def test_a_file_without_records_has_none(text: str) -> None:
    """An empty file and one with a header alone are no error."""
    assert read(text)[1] == []


def test_many_broken_records_cost_no_more_each_than_one() -> None:
    """Reading time grows with the file and not with its square, also when every record is broken."""

    def seconds(many: int) -> float:
        begun = time.process_time()
        assert len(read(b"id,body\n" + b'1,"a"b"\n' * many)[1]) == many
        return time.process_time() - begun

    small = seconds(1_000)
    assert seconds(8_000) < 8 * small * 4


@pytest.mark.parametrize("unit", ['",\n', ',\n"', '\n"'])
def test_a_file_of_doubtful_records_is_read_in_linear_time(unit: str) -> None:
    """Where each record could end in any of many lines, as much is read again as is in proportion to the file."""
    many = 20_000
    sheet = CsvFile(io.BytesIO(('a,b,c\n1,"a"b\n' + unit * many).encode()), delimiter=",")

    refused = sum(isinstance(values, Refusal) for _, _, values in sheet.records())

    assert refused > 0
    most = csv_records.AGAIN_CHARS_MIN + csv_records.AGAIN_PER_CHAR * many * len(unit)
    assert sheet.read_again <= most + csv_records.AHEAD_CHARS_MAX


@pytest.mark.parametrize("unit", ['",', "\\a", 'he said "hello", and '])
def test_a_long_broken_field_costs_little_time_and_memory(unit: str) -> None:
    """A quoted field of megabytes with quotes in it is followed at some megabytes a second, in bounded memory."""
    text = ('a,b,c\n1,"a"b' + unit * (1_000_000 // len(unit)) + "\n").encode()
    begun = time.process_time()
    assert read(text, delimiter=",")[1][0][2] is None
    assert time.process_time() - begun < 2.5  # a look-up for each quote; 4 s where its readings are worked out again

    text = text[: len(text) // 4]
    tracemalloc.start()
    list(CsvFile(io.BytesIO(text), delimiter=",").records())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * len(text)


@pytest.mark.parametrize("end", ["\\" * 3_000_000 + "x", '"' * 20_000_001, '"' * 20_000_000])
def test_a_line_that_comes_in_pieces_is_read_once(end: str) -> None:
    """Backslashes and quotes at the end of a piece are held back at a fixed size, however many they are."""
    begun = time.process_time()
    assert read('a,b\n1,"a"b' + end + "\n2,c\n")[1][0][2] is None
    assert time.process_time() - begun < 5


RECOVERED = ['"', '""', '"""', '""""', ",", "a", "\\", "\n", '","', '",\n', "1,x,y\n", " "]


@pytest.mark.parametrize("seed", range(40))
def test_a_line_means_the_same_in_pieces(seed: int) -> None:
    """A record ends in the same line however its lines are cut into pieces."""
    chance = random.Random(seed)  # noqa: S311
    lines = "".join(chance.choices(RECOVERED, k=60)).splitlines(keepends=True)
    whole, cut = Recovery(3, ","), Recovery(3, ",")
    for line in lines:
        at = chance.randint(0, len(line.rstrip("\n")))
        cut.feed(line[:at], ends=False)
        assert cut.feed(line[at:]) == whole.feed(line)
    assert cut.end_file() == whole.end_file()
