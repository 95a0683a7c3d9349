"""Read the records of a CSV file, however large it is: its delimiter is found, and a broken record never leaks.

Records come with the numbers of their first and last lines, from 1. A record that cannot be read is a refusal over all
lines that are lost with it; reading goes on where it surely ended (see `streams.files.csv_recovery`).
"""

import csv
import io
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Self, TextIO

from facetline.facets.documents import BODY_BYTES_MAX
from facetline.streams.files.csv_recovery import Recovery
from facetline.streams.files.text_files import InvalidFile, as_utf8

RECORD_CHARS_MAX = 5 * 1024 * 1024
"""Above the largest body with all of its quotes doubled; a longer record is refused and skipped."""
AHEAD_CHARS_MAX = 256 * 1024
"""How far is read ahead to see where a broken record ended."""
AGAIN_CHARS_MIN, AGAIN_PER_CHAR = 1024 * 1024, 1
"""How much of a file may be read again, at first and for each character of it; or time would grow with its square.

Only a file of nothing but doubtful records reaches this; its records then end where it is likeliest at once.
"""
COLUMNS_MAX = 16_384
"""As many as a sheet of Excel has."""
HEAD_LINES, HEAD_CHARS = 20, 64 * 1024
"""Of the file, to find out how its fields are separated."""
DELIMITERS = (",", ";", "\t", "|")
DELIMITER_NAMES = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
SEP_LINE = re.compile(r'"?sep=([^\r\n"])"?[\r\n]*', re.IGNORECASE)
TOO_LARGE = f"too_large: the record has more than {RECORD_CHARS_MAX} characters"
BROKEN = 'not_csv: a quoted field has a quote in it that is neither doubled ("") nor the field\'s end'
UNCLOSED = "not_csv: a quoted field is still open at the end of the file"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A line, or several up to `last_line`, that cannot be a document; `lost`: it may have been several records."""

    line: int
    reason: str
    last_line: int | None = None
    lost: bool = False


Record = tuple[int, int, list[str] | Refusal]
"""First line, last line, and the fields or why there are none."""


def delimiter_of(given: str | None) -> str | None:
    """Return the delimiter that an option names: one character, `tab`, `comma`, `semicolon` or `pipe`.

    Raises:
        InvalidFile: it is no delimiter.
    """
    if given is None:
        return None
    found = DELIMITER_NAMES.get(given.lower(), given)
    if len(found) != 1 or found in '\r\n" \\' or found.isalnum():
        raise InvalidFile(f"--delimiter {given!r:.40} is no delimiter; give one character such as ';', or 'tab'")
    return found


class CsvFile:
    """A CSV file that is being read: its header, then its records."""

    def __init__(
        self,
        file: BinaryIO,
        *,
        delimiter: str | None = None,
        encoding: str | None = None,
        wanted: Collection[str] = (),
    ) -> None:
        """Read the header; `wanted` are names of columns, by which the delimiter is chosen where several could be.

        Raises:
            InvalidFile: the header cannot be read.
        """
        csv.field_size_limit(2 * RECORD_CHARS_MAX)  # records are bounded by their lines
        text = io.TextIOWrapper(as_utf8(file, encoding), encoding="utf-8", errors="surrogateescape", newline="")
        self._encoding = encoding
        self._lines = _Lines(text)
        self.read_again = 0  # characters, by records that were broken
        self._delimiter, self._skip_blanks = self._dialect(delimiter_of(delimiter), wanted)
        self._reader = csv.reader(
            self._lines, strict=True, delimiter=self._delimiter, skipinitialspace=self._skip_blanks
        )
        self.header = self._read_header()

    def records(self) -> Iterator[Record]:
        """Read the records after the header; empty lines are passed over."""
        width = len(self.header)
        lines, reader = self._lines, self._reader
        while width:
            first = lines.begin_record()
            try:
                values = next(reader)
            except StopIteration:
                return
            except _TooLong:
                yield self._refused(first, TOO_LARGE)
                continue
            except csv.Error as error:
                yield self._refused(first, UNCLOSED if "end of data" in str(error) else BROKEN)
                continue
            if len(values) == width:
                yield first, lines.number, values
            elif values:
                yield self._misshapen(first, values)

    def _misshapen(self, first: int, values: list[str]) -> Record:
        """Take a record with surplus fields that are empty, as spreadsheets write them; refuse another one."""
        surplus = len(values) - len(self.header)
        if surplus > 0 and not any(values[len(self.header) :]):
            return first, self._lines.number, values[: len(self.header)]
        reason = f"not_csv: {abs(surplus)} fields too {'many' if surplus > 0 else 'few'}"
        if any('"' in line for line in self._lines.record):  # which may have been read otherwise than it was meant
            return self._refused(first, reason, ragged=True)
        return first, self._lines.number, Refusal(first, reason)

    def _refused(self, first: int, reason: str, *, ragged: bool = False) -> Record:
        """Refuse the record that begins in line `first`, and go on behind it."""
        recovery = Recovery(len(self.header), self._delimiter, skip_blanks=self._skip_blanks, ragged=ragged)
        ahead: deque[tuple[int, str]] = deque()
        ahead_chars = fed = 0
        ended: int | None = None
        again = AGAIN_CHARS_MIN + AGAIN_PER_CHAR * self._lines.position - self.read_again
        ahead_max = max(0, min(AHEAD_CHARS_MAX, again))
        for piece, ends in self._lines.again():
            fed += ends
            ended = recovery.feed(piece, ends=ends)
            ahead.append((fed if ends else fed + 1, piece))
            ahead_chars += len(piece)
            if ended is None and ahead_chars > ahead_max and recovery.first_end is not None:
                ended = recovery.give_up_waiting()
            if ended is not None:
                break
            start = recovery.first_end
            while ahead and (start is None or ahead[0][0] <= start):
                ahead_chars -= len(ahead.popleft()[1])
        else:
            ended = recovery.end_file()
        back = [piece for number, piece in ahead if number > ended]
        self.read_again += sum(map(len, back))
        self._lines.go_back(back, first + ended - 1)
        last = first + ended - 1
        several = last > first
        return first, last, Refusal(first, reason, last if several else None, lost=several)

    def _read_header(self) -> list[str]:
        self._lines.begin_record()
        try:
            names = next(self._reader, [])
        except _TooLong:
            raise InvalidFile(f"the header has more than {RECORD_CHARS_MAX} characters") from None
        except csv.Error as error:
            raise InvalidFile(f"the header line is not CSV: {error}") from None
        if len(names) > COLUMNS_MAX:
            raise InvalidFile(f"the header has {len(names)} columns; at most {COLUMNS_MAX} are read")
        try:
            "".join(names).encode()
        except UnicodeEncodeError:
            raise InvalidFile(f"the header line is {not_in(self._encoding)}") from None
        return names

    def _dialect(self, delimiter: str | None, wanted: Collection[str]) -> tuple[str, bool]:
        """Return the delimiter, and whether blanks before a quoted field are none of it."""
        head = self._lines.peek()
        named = SEP_LINE.fullmatch(head[0]) if head else None
        if named:
            self._lines.begin_record()
            next(self._lines)
            head = head[1:]
        found = delimiter or (named[1] if named else None) or _likeliest(head, wanted)
        text = "".join(head)[:HEAD_CHARS]
        apart = re.escape(found)
        spaced = len(re.findall(rf'{apart} +"(?!")', text))
        return found, spaced > len(re.findall(rf'{apart}"', text))


def not_in(encoding: str | None) -> str:
    """Return what to say of bytes that are no text in the encoding."""
    if encoding is None:
        return "not UTF-8; name the file's encoding, such as --encoding cp1252 (Windows) or latin-1"
    return f"not {encoding}; name the encoding that the file is in with --encoding"


def _likeliest(head: list[str], wanted: Collection[str]) -> str:
    """Return the delimiter by which the first record has the wanted columns, or else the most columns."""
    record: list[str] = []
    for line in head:
        record.append(line)
        if sum(each.count('"') for each in record) % 2 == 0 and line.strip():
            break

    def columns(delimiter: str) -> tuple[int, int]:
        try:
            names = next((row for row in csv.reader(record, delimiter=delimiter) if row), [])
        except csv.Error:
            return 0, 0
        known = {name.strip() for name in names}
        return sum(name.strip() in known for name in wanted), len(names)

    return max(DELIMITERS, key=columns)


class _TooLong(Exception):
    """The record is longer than any that is taken."""


class _Lines:
    """The lines of a CSV file for `csv.reader`; those of the record at hand are kept, and may be read again."""

    def __init__(self, text: TextIO) -> None:
        self._readline: Callable[[int], str] = text.readline
        self._waiting: deque[str] = deque()
        self._chars = 0
        self._open = False
        self.number = 0
        self.position = 0
        self.record: list[str] = []

    def begin_record(self) -> int:
        """Forget the record before; return the number of the next line."""
        self.record.clear()
        self._chars = 0
        return self.number + 1

    def peek(self) -> list[str]:
        """Return the first lines without reading them."""
        chars = 0
        while len(self._waiting) < HEAD_LINES and chars < HEAD_CHARS and (line := self._readline(RECORD_CHARS_MAX)):
            self._waiting.append(line)
            chars += len(line)
        return list(self._waiting)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = self._piece()
        if not line:
            raise StopIteration
        self.record.append(line)
        self._chars += len(line)
        if self._chars >= RECORD_CHARS_MAX:
            raise _TooLong
        return line

    def _piece(self) -> str:
        piece = self._waiting.popleft() if self._waiting else self._readline(RECORD_CHARS_MAX)
        if piece and not self._open:
            self.number += 1
        self._open = not _is_whole(piece)
        self.position += len(piece)
        return piece

    def again(self) -> Iterator[tuple[str, bool]]:
        """Read the record at hand once more, and on from there; a line may come in pieces, of which the last one ends.

        The lines of the record are let go one by one.
        """
        read = deque(self.record)
        self.record.clear()
        while read:
            piece = read.popleft()
            yield piece, _is_whole(piece)
        while piece := self._piece():
            yield piece, _is_whole(piece)

    def go_back(self, pieces: list[str], number: int) -> None:
        """Have these pieces read again, after line `number`."""
        self._waiting.extendleft(reversed(pieces))
        self.position -= sum(map(len, pieces))
        self.number = number
        self._open = False


def _is_whole(piece: str) -> bool:
    return len(piece) < RECORD_CHARS_MAX or piece.endswith(("\n", "\r"))


assert RECORD_CHARS_MAX > 2 * BODY_BYTES_MAX  # noqa: S101 (a body whose quotes are all doubled is read)
