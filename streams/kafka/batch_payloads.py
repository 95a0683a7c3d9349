"""Decompression of record batches, with a bound: a batch of a few megabytes may unpack to many gigabytes."""

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import cramjam
from aiokafka import codec
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBase

UNPACKED_BYTES_MAX = 128 * 1024 * 1024
"""Largest batch once unpacked; topics take batches of 4 MiB, and text is packed ten to twenty times at the most."""
GZIP = 31
"""zlib's window bits for a gzip stream."""
XERIAL_HEADER_BYTES = 16

_HEADER_BYTES = DefaultRecordBase.HEADER_STRUCT.size
_ATTRIBUTES = slice(DefaultRecordBase.ATTRIBUTES_OFFSET, DefaultRecordBase.ATTRIBUTES_OFFSET + 2)


def unpacked(batch: memoryview) -> memoryview | bytearray:
    """Return the bytes of a batch (format v2) as they would be without compression; its checksum no longer fits.

    Raises:
        CorruptRecordException: it cannot be unpacked, or is larger than `UNPACKED_BYTES_MAX` then.
    """
    attributes = int.from_bytes(batch[_ATTRIBUTES])
    number = attributes & DefaultRecordBase.CODEC_MASK
    if number == DefaultRecordBase.CODEC_NONE:
        return batch
    if number not in _CODECS:
        raise CorruptRecordException(f"unknown compression codec {number}")
    name, unpack = _CODECS[number]
    try:
        payload = unpack(batch[_HEADER_BYTES:].tobytes())
    except CorruptRecordException:
        raise
    except BaseException as error:  # a panic of the library is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if "whole buffer" in str(error):
            raise _too_large(name) from error
        raise CorruptRecordException(f"{name} cannot unpack it: {error}") from error
    header = bytearray(batch[:_HEADER_BYTES])
    header[_ATTRIBUTES] = (attributes & ~DefaultRecordBase.CODEC_MASK).to_bytes(2)
    return header + payload


def _gzip(data: bytes) -> bytes:
    parts, left = [], UNPACKED_BYTES_MAX
    while data:
        stream = zlib.decompressobj(GZIP)
        parts.append(stream.decompress(data, left + 1))
        left -= len(parts[-1])
        if left < 0:
            raise _too_large("gzip")
        if not stream.eof:
            raise CorruptRecordException("gzip cannot unpack it: the stream is cut off")
        data = stream.unused_data
    return b"".join(parts)


def _snappy(data: bytes) -> bytes:
    """Unpack one block, or a row of them as Java's library writes it (xerial): each with its length before it."""
    if not codec._detect_xerial_stream(data):  # noqa: SLF001 (aiokafka is pinned for this)
        return _snappy_block(data, UNPACKED_BYTES_MAX)
    parts, at, left = [], XERIAL_HEADER_BYTES, UNPACKED_BYTES_MAX
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4])
        if end > len(data):
            raise CorruptRecordException("snappy cannot unpack it: a block is cut off")
        parts.append(_snappy_block(data[at + 4 : end], left))
        at, left = end, left - len(parts[-1])
    return b"".join(parts)


def _snappy_block(data: bytes, most: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > most:
        raise _too_large("snappy")
    return bytes(cramjam.snappy.decompress_raw(data))


def _into(library: Any) -> Callable[[bytes], memoryview]:
    def unpack(data: bytes) -> memoryview:
        # Memory is only taken as it is written to; what does not fit is refused by the library.
        room = bytearray(UNPACKED_BYTES_MAX)
        size = library.decompress_into(data, room)
        return memoryview(room)[:size]

    return unpack


def _too_large(name: str) -> CorruptRecordException:
    return CorruptRecordException(f"unpacked by {name} it has more than {UNPACKED_BYTES_MAX} bytes")


_CODECS: Mapping[int, tuple[str, Callable[[bytes], bytes | memoryview]]] = {
    DefaultRecordBase.CODEC_GZIP: ("gzip", _gzip),
    DefaultRecordBase.CODEC_SNAPPY: ("snappy", _snappy),
    DefaultRecordBase.CODEC_LZ4: ("lz4", _into(cramjam.lz4)),
    DefaultRecordBase.CODEC_ZSTD: ("zstd", _into(cramjam.zstd)),
}
