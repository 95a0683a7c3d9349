"""Read the elements of a JSON array one by one, however large the file is; also objects that follow each other."""

import re
from collections.abc import Iterator
from typing import BinaryIO

from facetline.streams.files.csv_records import Refusal

READ_BYTES = 64 * 1024
ELEMENT_BYTES_MAX = 5 * 1024 * 1024
TOO_LARGE = f"too_large: the element has more than {ELEMENT_BYTES_MAX} bytes"
BLANKS = b" \t\r\n"
_BRACKETS = re.compile(rb'["{}\[\]]')
_IN_TEXT = re.compile(rb'["\\]')


def elements(file: BinaryIO) -> Iterator[tuple[int, bytes | Refusal]]:
    """Return the elements with the numbers of their first lines; one that is too long or cut off is a refusal.

    A file that begins with `[` is an array. An element ends at its closing bracket, also a bad one.
    """
    reader = _Reader(file)
    is_array = reader.skip(BLANKS) == b"["
    if is_array:
        reader.pass_over()
    while start := reader.skip(BLANKS + b","):
        if is_array and start == b"]":
            reader.pass_over()
            is_array = False
            continue
        line = reader.line
        yield line, reader.element()


class _Reader:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._buffer = b""
        self._at = 0
        self.line = 1

    def _fill(self) -> bool:
        self._buffer, self._at = self._file.read(READ_BYTES), 0
        return bool(self._buffer)

    def skip(self, letters: bytes) -> bytes:
        """Go to the next byte that is none of these, and return it; nothing at the end of the file."""
        while self._at < len(self._buffer) or self._fill():
            byte = self._buffer[self._at : self._at + 1]
            if byte not in letters:
                return byte
            self.line += byte == b"\n"
            self._at += 1
        return b""

    def pass_over(self) -> None:
        """Go past one byte."""
        self._at += 1

    def element(self) -> bytes | Refusal:
        """Return one value, and go past it: to its closing bracket; where it has none, to the end of its line."""
        first, parts, size = self.line, [], 0
        end = self._bracketed() if self._buffer[self._at : self._at + 1] in (b"{", b"[") else self._to_line_end()
        for part in end:
            size += len(part)
            self.line += part.count(b"\n")
            if size <= ELEMENT_BYTES_MAX:
                parts.append(part)
            else:
                parts.clear()
        if size > ELEMENT_BYTES_MAX:
            return Refusal(first, TOO_LARGE, self.line)
        if self._cut_off:
            return Refusal(first, "not_json: the file ends within this element", self.line, lost=True)
        return b"".join(parts)

    def _bracketed(self) -> Iterator[bytes]:
        depth, in_text, escaped = 0, False, False
        self._cut_off = False
        while True:
            at = self._at + escaped
            escaped = False
            while found := (_IN_TEXT if in_text else _BRACKETS).search(self._buffer, at):
                at = found.end()
                if found[0] == b'"':
                    in_text = not in_text
                elif found[0] == b"\\":
                    escaped = at == len(self._buffer)
                    at += 1
                else:
                    depth += 1 if found[0] in (b"{", b"[") else -1
                    if depth == 0:
                        yield self._buffer[self._at : at]
                        self._at = at
                        return
            yield self._buffer[self._at :]
            if not self._fill():
                self._cut_off = True
                return

    def _to_line_end(self) -> Iterator[bytes]:
        self._cut_off = False
        while (end := self._buffer.find(b"\n", self._at)) < 0:
            yield self._buffer[self._at :]
            if not self._fill():
                return
        yield self._buffer[self._at : end]
        self._at = end
