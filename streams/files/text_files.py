"""Bytes of a file as UTF-8: a byte order mark or a named encoding decides, and what is no text is refused at once."""

import codecs
import io
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from facetline.facets import errors

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

READ_BYTES = 64 * 1024
HEAD_BYTES = 4
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins as UTF-16's does
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
PACKED = (
    (b"\x1f\x8b", "a gzip file; unpack it: gunzip -c FILE | facetline import -"),
    (b"PK\x03\x04", "a zip file or an Excel workbook; unpack it, or save the sheet as 'CSV UTF-8'"),
    (b"\xd0\xcf\x11\xe0", "an Excel workbook; save the sheet as 'CSV UTF-8'"),
    (b"\x28\xb5\x2f\xfd", "a zstd file; unpack it first"),
    (b"BZh", "a bzip2 file; unpack it first"),
    (b"\xfd7zX", "an xz file; unpack it first"),
    (b"PAR1", "a Parquet file; write it as CSV or NDJSON first"),
)


class InvalidFile(errors.InvalidQuery):
    """The file is not what was asked for: its format, its encoding or its columns."""

    code = "invalid-file"


def as_utf8(file: BinaryIO, encoding: str | None = None) -> BinaryIO:
    """Return the file's text as UTF-8 without a byte order mark; a mark decides before `encoding` (default: UTF-8).

    What cannot be decoded becomes a byte that is no UTF-8, so that the record with it is refused.

    Raises:
        InvalidFile: there is no such encoding, or the file holds no text.
    """
    check_encoding(encoding)
    head = file.read(HEAD_BYTES)
    for start, what in PACKED:
        if head.startswith(start):
            raise InvalidFile(f"the file is {what}")
    mark, found = next(((mark, name) for mark, name in MARKS if head.startswith(mark)), (b"", None))
    if found is None and encoding is None and 0 in head:
        raise InvalidFile(_without_mark(head))
    name = found or encoding or "utf-8"
    rest = io.BufferedReader(_Joined(head[len(mark) :], file), READ_BYTES)
    if codecs.lookup(name).name in {"utf-8", "ascii", "utf-8-sig"}:
        return cast("BinaryIO", rest)
    return cast("BinaryIO", io.BufferedReader(_Transcoded(rest, name), READ_BYTES))


def check_encoding(encoding: str | None) -> None:
    """Refuse what is no encoding of text.

    Raises:
        InvalidFile: naming some that there are.
    """
    if encoding is None:
        return
    try:
        "a".encode(encoding)
    except (LookupError, ValueError) as error:
        known = "utf-8, utf-16-le, cp1252, latin-1, cp1251, shift_jis"
        raise InvalidFile(f"no encoding {encoding!r:.80}; such as {known}") from error


def _without_mark(head: bytes) -> str:
    odd = head[1::2].count(0) > head[::2].count(0)
    name = "utf-16-le" if odd else "utf-16-be"
    return f"the file is not UTF-8: it holds NUL bytes, as UTF-16 does; if it is that, pass --encoding {name}"


class _Joined(io.RawIOBase):
    """What was read of a file already, and the rest of it."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer)
        part = self._head[: len(view)] or self._rest.read1(len(view))  # type: ignore[attr-defined]
        self._head = self._head[len(view) :]
        view[: len(part)] = part
        return len(part)


class _Transcoded(io.RawIOBase):
    """A file of another encoding, read as UTF-8."""

    def __init__(self, file: Any, encoding: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="facetline-invalid")
        self._left = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer)
        while not self._left and not self._ended:
            chunk = self._file.read1(READ_BYTES)
            self._ended = not chunk
            self._left = self._decoder.decode(chunk, self._ended).encode(errors="surrogateescape")
        part = self._left[: len(view)]
        self._left = self._left[len(part) :]
        view[: len(part)] = part
        return len(part)


def _invalid(error: UnicodeError) -> tuple[str, int]:
    """Put a byte that is no UTF-8 in the place of what cannot be decoded."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udcff", error.end


codecs.register_error("facetline-invalid", _invalid)
