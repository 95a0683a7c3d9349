"""Lines of recorded events: any bytes survive, kcat's own output is read, damage is told by line and never guessed at.

Method: round trips of generated records, and lines as kcat 1.7.1 printed them from a real broker.
"""

import io
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from facetline.storage.log.events import Raw
from facetline.streams.files import kcat
from facetline.streams.files.kcat import Line, Recorded, Refusal

PLAIN: dict[str, Any] = {
    "topic": "facetline.documents.v1",
    "partition": 3,
    "offset": 17,
    "tstype": "logappend",
    "ts": 1764500000000,
    "broker": 1,
    "headers": ["ce_id", "4711", "odd", None],
    "key": "tickets/t1",
    "payload": '{"body":"Größe"}',
}

names = st.binary(max_size=12).map(lambda name: name.decode(errors="surrogateescape"))
raws = st.builds(
    Raw,
    key=st.none() | st.binary(max_size=30) | st.text(max_size=30).map(str.encode),
    value=st.none() | st.binary(max_size=60) | st.text(max_size=60).map(str.encode),
    headers=st.lists(st.tuples(names, st.binary(max_size=20)), max_size=3).map(tuple),
    timestamp_ms=st.none() | st.integers(0, 2**62),
)


def read(*lines: bytes | dict[str, Any]) -> list[Line | Refusal]:
    """Read lines as a file."""
    text = [line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines]
    return list(kcat.read(io.BytesIO(b"".join(text))))


@given(raws, st.none() | st.integers(1, 9), st.sampled_from([None, 0, 1]))
def test_any_record_survives_its_line(raw: Raw, incarnation: int | None, kind: int | None):
    """Key, value, headers, time and place come back exactly, whatever their bytes are, from one line."""
    recorded = Recorded("a.b", 2, 5, raw, incarnation, kind if raw.timestamp_ms is not None else None)
    line = kcat.encode(recorded)

    assert line.count("\n") == 1
    assert read(line.encode()) == [Line(1, recorded)]


def test_a_line_is_what_kcat_prints():
    """Names, order and form are kcat's, so that tools for its output read ours; nothing is added to plain text."""
    raw = Raw(b"tickets/t1", b"1", (("ce_id", b"4711"),), 1764500000000)
    line = kcat.encode(Recorded("t", 3, 17, raw, None, 1))

    assert line == (
        '{"topic":"t","partition":3,"offset":17,"tstype":"logappend","ts":1764500000000,'
        '"headers":["ce_id","4711"],"key":"tickets/t1","payload":"1"}\n'
    )


def test_what_kcat_prints_is_read():
    """Members that we do not know are passed, a null header is an empty one, a null payload is a tombstone."""
    found = read(PLAIN, {**PLAIN, "offset": 18, "payload": None, "headers": []})

    headers = (("ce_id", b"4711"), ("odd", b""))
    wrote = Raw(b"tickets/t1", '{"body":"Größe"}'.encode(), headers, 1764500000000)
    assert found == [
        Line(1, Recorded("facetline.documents.v1", 3, 17, wrote, None, 1)),
        Line(2, Recorded("facetline.documents.v1", 3, 18, Raw(b"tickets/t1", None, (), 1764500000000), None, 1)),
    ]


def test_bytes_that_kcat_prints_as_they_are_come_back():
    """What is above ASCII is not escaped by kcat: a key or value that is not UTF-8 is in the line byte for byte."""
    line = b'{"topic":"t","partition":0,"offset":0,"key":"\xff/\xc3\xa4","payload":"\xed\xa0\x80\\u0001"}\n'
    (found,) = read(line)

    assert isinstance(found, Line)
    assert (found.recorded.raw.key, found.recorded.raw.value) == (b"\xff/\xc3\xa4", b"\xed\xa0\x80\x01")


def without(name: str) -> dict[str, Any]:
    """A good line without one member."""
    return {key: value for key, value in PLAIN.items() if key != name}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{\n", "not one JSON object"),
        (b"[" * 100_000 + b"\n", "not one JSON object"),
        (b"[1]\n", "not a JSON object"),
        (without("topic"), "topic is missing"),
        ({**PLAIN, "topic": "a/b"}, "topic"),
        (without("partition"), "partition is missing"),
        ({**PLAIN, "offset": -1}, "offset is no whole number"),
        ({**PLAIN, "offset": True}, "offset is no whole number"),
        ({**PLAIN, "partition": 2**31}, "partition is no whole number"),
        ({**PLAIN, "ts": "now"}, "ts is no whole number"),
        (without("payload"), "payload is missing; null"),
        (without("key"), "key is missing; null"),
        ({**PLAIN, "payload": {"body": "x"}}, "payload is not text"),
        ({**PLAIN, "key": "\ud800"}, "key holds half a surrogate pair"),
        ({**PLAIN, "key_base64": "?"}, "key_base64 is not base64"),
        ({**PLAIN, "headers": {"a": ["b"]}}, "headers are no list"),
        ({**PLAIN, "headers": ["a"]}, "one has no value"),
    ],
)
def test_a_damaged_line_says_what_is_wrong(line: Any, said: str):
    """A line that is no record is refused by its number, and the lines around it are read."""
    before, refused, after = read(PLAIN, line, b"\n", PLAIN)

    assert isinstance(before, Line)
    assert isinstance(after, Line)
    assert isinstance(refused, Refusal)
    assert (refused.number, after.number) == (2, 4)
    assert said in refused.reason


def test_a_line_that_is_too_long_is_passed():
    """A line beyond the limit is refused, and what follows it is read."""
    long = b'{"topic": "' + b"x" * kcat.LINE_BYTES_MAX + b'"}\n'

    refused, line = read(long, PLAIN)
    assert isinstance(refused, Refusal)
    assert isinstance(line, Line)
    assert (refused.number, line.number) == (1, 2)


def test_a_file_may_begin_with_a_byte_order_mark():
    """Editors of one system write one; it is no part of the first line."""
    (found,) = read(b"\xef\xbb\xbf" + json.dumps(PLAIN).encode())

    assert isinstance(found, Line)


class Pipe(io.RawIOBase):
    """Gives its pieces one after another, each as one read."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Give the next piece; none means the end."""
        if not self._pieces:
            return 0
        piece, self._pieces = self._pieces[0][: len(buffer)], [self._pieces[0][len(buffer) :], *self._pieces[1:]]
        if not self._pieces[0]:
            self._pieces.pop(0)
        buffer[: len(piece)] = piece
        return len(piece)


@given(st.data())
def test_a_pipe_is_read_like_a_file(data: st.DataObject):
    """However its bytes come, the lines are those of the file, and all that have come stand before each pause."""
    text = json.dumps(PLAIN).encode() + b"\n\n{\n" + json.dumps(PLAIN).encode()
    cuts = sorted({0, len(text), *data.draw(st.lists(st.integers(1, len(text) - 1), max_size=6))})
    pieces = [text[start:end] for start, end in itertools.pairwise(cuts)]
    found = list(kcat.follow(io.BufferedReader(Pipe(list(pieces)))))

    assert [each for each in found if each is not kcat.IDLE] == read(text)
    numbers, come = 0, b""
    for each in found[:-1]:
        if each is kcat.IDLE:
            come += pieces.pop(0)
            assert numbers == sum(bool(line.strip()) for line in come.split(b"\n")[:-1])
        else:
            numbers += 1


def test_a_pipes_line_that_is_too_long_is_passed():
    """As in a file, and no more of it is kept than its limit and one read."""
    long = b"x" * (kcat.LINE_BYTES_MAX + 1)
    pipe = io.BufferedReader(Pipe([long, b"y\n" + json.dumps(PLAIN).encode() + b"\n"]))
    refused, line = [each for each in kcat.follow(pipe) if each is not kcat.IDLE]

    assert refused == Refusal(1, kcat.TOO_LONG)
    assert isinstance(line, Line)
    assert line.number == 2


def test_a_record_without_a_timestamp_is_taken():
    """Where a record has none, kcat prints -1; anything else below zero is refused."""
    (line,), (other,) = read({**PLAIN, "ts": -1}), read({**PLAIN, "ts": -2})

    assert isinstance(line, Line)
    assert line.recorded.raw.timestamp_ms is None
    assert isinstance(other, Refusal)
